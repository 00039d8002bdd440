"""The metrics of epochs: of the coordinator, and where nodes compute, wait and block.

The protocol in the words of the metrics: a marker is an epoch that begins, an ack is the commit of a sink, a finalizer
is the end of the epoch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamling.engine.protocol.epoch_times import EpochTimes
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import Role
from streamling.telemetry.meters import NodeMeter
from streamling.telemetry.metrics import Metrics

COORDINATOR = "checkpoint_coordinator"
# A rate over less than a second jumps with every epoch.
_WINDOW_S = 5.0


def coordinator_labels(instance: str) -> dict[str, str]:
    return {"id": COORDINATOR, "service_instance_id": instance}


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """An epoch that has begun, on the monotonic clock, and is not finalized."""

    number: int
    since: float


class EpochMetrics:
    """Records every finalized epoch, once."""

    def __init__(
        self,
        plan: Plan,
        meter: Callable[[str], NodeMeter],
        metrics: Metrics,
        instance: str,
        backpressure_ms: int = 100,
    ) -> None:
        """`backpressure_ms`: the shortest wait that is an event."""
        self._plan = plan
        self._meter = meter
        self._metrics = metrics
        self._labels = coordinator_labels(instance)
        self._streams = [node for node in plan.nodes if node not in plan.dynamic_tables]
        self._sinks_behind = {node.id: _sinks_behind(plan, node) for node in plan.nodes}
        self._began = time.monotonic()
        self._last_finalized: float | None = None
        self.open_epoch: OpenEpoch | None = None
        """Any thread may read it."""
        self._rates: dict[str, tuple[Rate, Mapping[str, str]]] = {}
        self._backpressure_ms = backpressure_ms
        self._buffers: dict[str, tuple[Callable[[], int], Mapping[str, str]]] = {}
        """By source: reads the rows that are buffered, and the labels of that gauge."""
        metrics.gauge("checkpoint_epochs_in_flight", 0, self._labels)

    def watch_buffer(self, source: str, rows: Callable[[], int]) -> None:
        """`rows`: how many are buffered for a source; read from other threads."""
        if source in self._buffers:
            self._metrics.forget("node_inflight_buffered", self._buffers[source][1])
        labels = self._meter(source).flow_labels
        self._buffers[source] = (rows, labels)
        self._metrics.watch("node_inflight_buffered", rows, labels)

    def begin(self, number: int) -> None:
        """An epoch begins, or begins anew."""
        self.open_epoch = OpenEpoch(number, time.monotonic())
        self._count("checkpoint_markers_sent")
        self._metrics.gauge("checkpoint_epochs_in_flight", 1, self._labels)

    def given_up(self) -> None:
        """The epoch that began is not finalized here: its rows are read again, or are those of another process."""
        self.open_epoch = None
        self._metrics.gauge("checkpoint_epochs_in_flight", 0, self._labels)

    def overdue(self) -> None:
        """An epoch is open for so long that it counts as failed; its writes go on."""
        self._count("checkpoint_epochs_failed")

    def skipped_last(self) -> None:
        """A run ends without the finalization of its last epoch."""
        self._count("checkpoint_terminal_finalizer_skipped")

    def finalized(self, times: EpochTimes) -> None:
        self.open_epoch = None
        self._record_coordinator(times)
        for node in self._streams:
            self._record_node(node, times)

    def _record_coordinator(self, times: EpochTimes) -> None:
        self._count("checkpoint_acks_received", len(times.commits))
        self._count("checkpoint_finalizers_sent")
        self._count("checkpoint_epochs_succeeded")
        self._metrics.gauge("checkpoint_epochs_in_flight", 0, self._labels)
        now = time.monotonic()
        if self._last_finalized is not None:
            self._latency("checkpoint_epoch_duration", (now - self._last_finalized) * 1000)
        self._last_finalized = now
        self._latency("checkpoint_finalization_wait", times.finalize_ms)
        for sink, milliseconds in times.commits.items():
            labels = {**self._labels, "sink_id": sink}
            self._metrics.latency("checkpoint_per_sink_ack_latency", round(milliseconds), labels)

    def _record_node(self, node: PlannedNode, times: EpochTimes) -> None:
        meter, name = self._meter(node.id), node.spec.name
        if node.spec.role is Role.SINK:
            if name not in times.sinks:
                return  # it had the epoch already
            compute, arrival = times.sinks[name], times.commits.get(name, 0.0) - times.sinks[name]
            meter.latency("checkpoint_sink_flush", compute)
        else:
            compute = times.nodes.get(node.id, 0.0)
            arrival = 0.0 if node.spec.role is Role.SOURCE else times.transform_ms - compute
        meter.latency("elapsed_compute", compute)
        meter.latency("checkpoint_marker_arrival", max(arrival, 0.0))
        meter.latency("output_rows_latency", self._latency_of(node, times))
        if node.id in self._buffers and self._buffers[node.id][1] != meter.flow_labels:
            self.watch_buffer(node.id, self._buffers[node.id][0])
        self._rate(node, meter).add(meter.rows_out or 0)
        self._record_waits(node, meter, times)

    def _rate(self, node: PlannedNode, meter: NodeMeter) -> Rate:
        """Known by the labels that the node has now: those of plugins and of phases come late."""
        began, counted = self._began, 0
        if node.id in self._rates:
            rate, labels = self._rates[node.id]
            if labels == meter.labels:
                return rate
            began, counted = rate.last
            self._metrics.forget("output_rows_rate", labels)
        rate = Rate(counted, began=began)
        self._rates[node.id] = (rate, meter.labels)
        self._metrics.watch("output_rows_rate", rate.per_second, meter.labels)
        return rate

    def _latency_of(self, node: PlannedNode, times: EpochTimes) -> float:
        """From the reading of the epoch to the output of the node."""
        if node.spec.role is Role.SOURCE:
            return times.read_ms
        if node.spec.role is Role.SINK:
            return times.read_ms + times.commits.get(node.spec.name, times.total_ms)
        return times.read_ms + times.transform_ms

    def _record_waits(self, node: PlannedNode, meter: NodeMeter, times: EpochTimes) -> None:
        meter.wait("starved", times.wait_ms)
        meter.idle_wait(times.wait_ms)
        if node.spec.role is Role.SINK:
            return
        readers = [reader for reader in self._plan.consumers(node.ref) if reader not in self._plan.dynamic_tables]
        blocked = {reader.spec.name: self._blocked_ms(reader, times) for reader in readers}
        for name, milliseconds in blocked.items():
            meter.wait("blocked", milliseconds, downstream_id=name)
        if blocked:
            meter.backpressure_wait(max(blocked.values()), self._backpressure_ms)

    def _blocked_ms(self, reader: PlannedNode, times: EpochTimes) -> float:
        """How long rows have waited for a reader: for the slowest sink behind it, and for its own computation."""
        flush = max((times.sinks.get(sink, 0.0) for sink in self._sinks_behind[reader.id]), default=0.0)
        return flush + (times.nodes.get(reader.id, 0.0) if reader.spec.role is Role.TRANSFORM else 0.0)

    def _count(self, name: str, value: int = 1) -> None:
        self._metrics.count(name, value, self._labels)

    def _latency(self, name: str, milliseconds: float) -> None:
        self._metrics.latency(name, round(milliseconds), self._labels)


class Rate:
    """Rows per second over the last window; 0 after a window without rows."""

    def __init__(
        self, counted: int = 0, now: Callable[[], float] = time.monotonic, *, began: float | None = None
    ) -> None:
        """`counted`: the rows until the rate began, which is now unless `began` says otherwise."""
        self._now = now
        self._points = deque([(now() if began is None else began, counted)])

    @property
    def last(self) -> tuple[float, int]:
        """When rows were added last, and how many there were."""
        return self._points[-1]

    def add(self, rows: int) -> None:
        """`rows` since the start."""
        self._points.append((self._now(), rows))
        while len(self._points) > 2 and self._points[1][0] < self._now() - _WINDOW_S:
            self._points.popleft()

    def per_second(self) -> float:
        """Any thread may call it."""
        now, points = self._now(), list(self._points)
        before = [rows for at, rows in points if at <= now - _WINDOW_S]
        seconds = min(now - points[0][0], _WINDOW_S)
        return round((points[-1][1] - (before[-1] if before else points[0][1])) / max(seconds, 0.001), 3)


def _sinks_behind(plan: Plan, node: PlannedNode) -> frozenset[str]:
    """The names of the sinks that get rows of a node."""
    if node.spec.role is Role.SINK:
        return frozenset({node.spec.name})
    found: frozenset[str] = frozenset()
    for reader in plan.consumers(node.ref):
        if reader not in plan.dynamic_tables:
            found |= _sinks_behind(plan, reader)
    return found

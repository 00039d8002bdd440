"""One meter per node: the display, the summary and the exporters show its counts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from streamling.telemetry.buckets import BucketCounts
from streamling.telemetry.event_time import EventTimes
from streamling.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The rows of one node in one finalized epoch. None: not known, or the node has no such rows."""

    rows_in: int | None = None
    rows_out: int | None = None
    filtered: int = 0
    """Rows that the node leaves out: by its filter or query, or because a sink writes one row per key."""
    unaccounted: int = 0
    """Input rows that are neither output, nor filtered, nor bad rows."""


class NodeMeter:
    """The counts of one node since the start of the run. Any thread may read and add."""

    def __init__(self, labels: Mapping[str, str], metrics: Metrics | None = None) -> None:
        self.labels = labels
        """The labels of all its metrics. A plugin adds its own once it is open."""
        self._name = labels.get("id", "")
        self._metrics = metrics
        self._lock = threading.Lock()
        self.rows_in: int | None = None
        self.rows_out: int | None = None
        self.rejected = 0
        """Bad rows that were skipped or became dead letters."""
        self._watermark_ms = 0
        self._empty_streak = 0

    def set_phase(self, phase: str | None) -> None:
        """Count for a phase of a source from now on: the `id` has its name."""
        name = f"{self._name}_{phase}"
        if phase is not None and self.labels.get("id") != name:
            self.labels = {**self.labels, "id": name}
            with self._lock:
                self._watermark_ms = 0

    def set_labels(self, labels: Mapping[str, str]) -> None:
        self.labels = labels

    def count(self, rows: RowCounts) -> None:
        with self._lock:
            self.rows_in = _sum(self.rows_in, rows.rows_in)
            self.rows_out = _sum(self.rows_out, rows.rows_out)
        self._record("input_rows", rows.rows_in)
        self._record("output_rows", rows.rows_out)
        self._record("rows_filtered", rows.filtered)
        self._record("rows_unaccounted", abs(rows.unaccounted))
        if self.labels.get("operator_type") == "sql":
            self._record("df_input_rows", rows.rows_in)
        self._note_empty(rows.rows_in if self.labels.get("topology_node_type") == "sink" else rows.rows_out)

    def reject(self, metric: str, rows: int, *, stage: str, reason: str) -> None:
        """Count bad rows under `rows_skipped` or `rows_dead_lettered`."""
        with self._lock:
            self.rejected += rows
        if self._metrics is not None:
            self._metrics.count(metric, rows, {**self.labels, "stage": stage, "reason": reason})

    def latency(self, name: str, milliseconds: float) -> None:
        if self._metrics is not None:
            self._metrics.latency(name, round(milliseconds), self.labels)

    def note_event_times(self, times: EventTimes) -> None:
        if self._metrics is None or times.watermark_ms is None:
            return
        with self._lock:
            self._watermark_ms = max(self._watermark_ms, times.watermark_ms)
        self._metrics.gauge("event_time_watermark", self._watermark_ms, self.labels)
        self._metrics.merge("event_time_lag", times.lag, self.labels)

    def merge(self, latencies: Mapping[str, BucketCounts]) -> None:
        """Add samples of latencies, by metric."""
        if self._metrics is not None:
            for name, samples in latencies.items():
                self._metrics.merge(name, samples, self.labels)

    @property
    def flow_labels(self) -> dict[str, str]:
        """The labels of the metrics of waits, empty batches and buffers."""
        return {**self.labels, "execution_kind": "plugin" if self.labels.get("operator_type") == "plugin" else "native"}

    def idle_wait(self, milliseconds: float) -> None:
        """Note how long the node has waited for the input of an epoch."""
        if self._metrics is not None:
            self._metrics.latency("node_idle_wait", round(milliseconds), self.flow_labels)

    def backpressure_wait(self, milliseconds: float, threshold_ms: int) -> None:
        """Note how long the rows of an epoch have waited for those who read the node."""
        if self._metrics is None:
            return
        labels = self.flow_labels
        self._metrics.latency("node_backpressure_wait", round(milliseconds), labels)
        if milliseconds >= threshold_ms:
            self._metrics.count("node_backpressure_events", 1, labels)

    def wait(self, state: str, milliseconds: float, **downstream: str) -> None:
        """Add to the time in which the node was `blocked` or `starved`."""
        if self._metrics is not None and round(milliseconds) > 0:
            self._metrics.count("node_wait", round(milliseconds), {**self.labels, "state": state, **downstream})

    def _note_empty(self, rows: int | None) -> None:
        """Count epochs without rows, and how many of them there were in a row."""
        if self._metrics is None or rows is None:
            return
        self._empty_streak = 0 if rows else self._empty_streak + 1
        labels = self.flow_labels
        self._metrics.gauge("node_empty_streak", self._empty_streak, labels)
        if not rows:
            self._metrics.count("node_empty_batch", 1, labels)

    def _record(self, name: str, rows: int | None) -> None:
        if self._metrics is not None and rows:
            self._metrics.count(name, rows, self.labels)


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else (one or 0) + other

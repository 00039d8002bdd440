"""The progress of a run, for displays: a few numbers per node, read at any time from any thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from streamling.connector import Extent
from streamling.engine.protocol.activity import Activity
from streamling.engine.protocol.epoch_times import EpochTimes
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.mask import mask_text
from streamling.spec.pipeline import Role
from streamling.spec.places import place_of
from streamling.telemetry.labels import node_labels
from streamling.telemetry.meters import NodeMeter
from streamling.telemetry.metrics import Metrics

# Enough for a dashboard to show where time goes.
_KEPT_EPOCHS = 100


class HasTrouble(Protocol):
    """A source or sink that may be unable to make progress for a while."""

    @property
    def trouble(self) -> str | None: ...


class Phase(Enum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """The rows of a node so far; None if they are not counted. `extent`: how far a source has read."""

    name: str
    role: Role
    type: str
    rows_in: int | None = None
    rows_out: int | None = None
    rejected: int = 0
    """Bad rows that were skipped or became dead letters."""
    extent: Extent | None = None
    trouble: str | None = None
    """Why a source or a sink makes no progress now, without secrets."""

    @property
    def throughput(self) -> int | None:
        """The rows that measure the speed of a node: those that a source gives, those that another node gets."""
        return self.rows_out if self.role is Role.SOURCE else self.rows_in


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment. The nodes are in the order of the plan: sources, transforms, sinks."""

    phase: Phase
    nodes: tuple[NodeProgress, ...]
    epochs: int
    rows: int
    last_epoch_ms: float | None
    seconds: float
    """Since the run began."""
    start_seconds: float
    """The part of `seconds` in which the run started: until rows could be read."""
    bounded: bool
    """All sources end by themselves: the sum of their extents is the whole work."""

    def per_second(self, count: int) -> float:
        """The average since the start."""
        return count / max(self.seconds - self.start_seconds, 0.001)

    @property
    def troubles(self) -> tuple[str, ...]:
        """The current troubles, one line per node; empty if the run is healthy."""
        return tuple(f"{node.name}: {node.trouble}" for node in self.nodes if node.trouble)


class Progress:
    """Written by the engine, read by displays. Nodes are identified by their ids in the plan."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._started: float | None = None
        self._phase = Phase.STARTING
        self._meters: dict[str, NodeMeter] = {}
        self._plan: Plan | None = None
        self._extents: Mapping[str, Callable[[], Extent | None]] = {}
        self._troubled: Mapping[str, HasTrouble] = {}
        self._reading: Mapping[str, Callable[[], float | None]] = {}
        self._bounded = False
        self._failure: BaseException | None = None
        self.activity = Activity()
        """What the run is doing now."""
        self._epochs = 0
        self._rows = 0
        self._last_epochs: deque[EpochTimes] = deque(maxlen=_KEPT_EPOCHS)

    def snapshot(self) -> Snapshot:
        with self._lock:
            troubles = {id_: mask_text(text) for id_, one in self._troubled.items() if (text := one.trouble)}
            nodes = tuple(
                self._node(node, self._meters[node.id], troubles.get(node.id))
                for node in (self._plan.nodes if self._plan is not None else ())
            )
            now = time.monotonic()
            return Snapshot(
                phase=self._phase,
                nodes=nodes,
                epochs=self._epochs,
                rows=self._rows,
                last_epoch_ms=self._last_epochs[-1].total_ms if self._last_epochs else None,
                seconds=now - self._began,
                start_seconds=(self._started or now) - self._began,
                bounded=self._bounded,
            )

    def _node(self, node: PlannedNode, meter: NodeMeter, trouble: str | None) -> NodeProgress:
        extent = self._extents[node.id]() if node.id in self._extents else None
        counts = (meter.rows_in, meter.rows_out, meter.rejected)
        return NodeProgress(node.spec.name, node.spec.role, node.spec.type, *counts, extent, trouble)

    @property
    def phase(self) -> Phase:
        return self._phase

    def epochs(self) -> tuple[EpochTimes, ...]:
        """The latest finalized epochs, at most 100, the newest last."""
        with self._lock:
            return tuple(self._last_epochs)

    @property
    def plan(self) -> Plan | None:
        """The plan of the run, once it is known."""
        return self._plan

    @property
    def lookups(self) -> frozenset[str]:
        """The names of the lookups of the plan."""
        return frozenset(node.spec.name for node in self._plan.lookups) if self._plan is not None else frozenset()

    @property
    def failure(self) -> BaseException | None:
        """The first error that has ended the run."""
        return self._failure

    def places(self) -> dict[str, str]:
        """Where the rows of a node come from or go to, by node name; empty where there is no such place."""
        return {node.spec.name: place_of(node.spec) or "" for node in self._plan.nodes} if self._plan else {}

    def node_ids(self) -> tuple[str, ...]:
        """The ids of the nodes, in the order of the plan."""
        return tuple(node.id for node in self._plan.nodes) if self._plan is not None else ()

    def node_name(self, id_: str) -> str:
        nodes = self._plan.nodes if self._plan is not None else ()
        return next((node.spec.name for node in nodes if node.id == id_), id_)

    def reading_since(self) -> dict[str, float]:
        """The sources that are reading now, by name, and since when, on the monotonic clock."""
        with self._lock:
            since = {self.node_name(id_): began() for id_, began in self._reading.items()}
        return {name: began for name, began in since.items() if began is not None}

    # The engine's side

    def set_plan(self, plan: Plan, metrics: Metrics | None = None) -> None:
        """Set the nodes; all counts start at zero."""
        with self._lock:
            self._plan = plan
            self._meters = {node.id: NodeMeter(node_labels(node.spec), metrics) for node in plan.nodes}

    def set_running(
        self,
        extents: Mapping[str, Callable[[], Extent | None]],
        troubled: Mapping[str, HasTrouble],
        *,
        bounded: bool,
        reading: Mapping[str, Callable[[], float | None]] | None = None,
    ) -> None:
        """`reading`: by source, since when it has been reading without a result; None if it is not reading now."""
        with self._lock:
            self._reading = reading or {}
            self._phase = Phase.RUNNING
            self._started = time.monotonic()
            self._bounded = bounded
            self._extents = extents
            self._troubled = troubled

    def set_failure(self, error: BaseException) -> None:
        """Note an error that ends the run; only the first one counts."""
        with self._lock:
            self._failure = self._failure or error

    def set_stopping(self) -> None:
        with self._lock:
            self._phase = Phase.STOPPING

    def set_done(self) -> None:
        with self._lock:
            self._phase = Phase.DONE

    def meter(self, id_: str) -> NodeMeter:
        """The meter of a node, which the engine counts with."""
        return self._meters[id_]

    def count_epoch(self, times: EpochTimes) -> None:
        """Count an epoch that was finalized."""
        with self._lock:
            self._epochs += 1
            self._rows += times.rows
            self._last_epochs.append(times)

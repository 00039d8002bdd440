"""How a run is getting on, for whoever wants to show it: a few numbers per node, read at any time from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from streamling.connector import Extent
from streamling.plan.pipeline import Plan
from streamling.spec.pipeline import Role


class Troubled(Protocol):
    """Something of a node that may be in trouble for a while."""

    @property
    def trouble(self) -> str | None: ...


class Phase(Enum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """The rows of a node so far; None where nobody counts them. `extent`: how far a source has got."""

    name: str
    role: Role
    type: str
    rows_in: int | None = None
    rows_out: int | None = None
    set_aside: int = 0
    """Rows that `on_error` has taken out."""
    extent: Extent | None = None
    trouble: str | None = None
    """What keeps a source or a sink from getting on, at the moment."""

    @property
    def throughput(self) -> int | None:
        """The rows whose number says how fast the node is: those a source gives, those another node gets."""
        return self.rows_out if self.role is Role.SOURCE else self.rows_in


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment. Nodes in the order of the plan: sources, transforms, sinks."""

    phase: Phase
    nodes: tuple[NodeProgress, ...]
    epochs: int
    rows: int
    last_epoch_ms: float | None
    seconds: float
    """Since the run began."""
    bounded: bool
    """All sources end by themselves: the sum of their extents is the whole work."""

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong at the moment, node by node. Nothing: the run is healthy."""
        return tuple(f"{node.name}: {node.trouble}" for node in self.nodes if node.trouble)


class Progress:
    """Written by the engine, read by displays. Nodes go by their ids in the plan."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._phase = Phase.STARTING
        self._nodes: dict[str, NodeProgress] = {}
        self._plan: Plan | None = None
        self._inputs: dict[str, tuple[str, ...]] = {}
        self._extents: Mapping[str, Callable[[], Extent | None]] = {}
        self._troubled: Mapping[str, Troubled] = {}
        self._bounded = False
        self._epochs = self._rows = 0
        self._last_epoch_ms: float | None = None

    def snapshot(self) -> Snapshot:
        with self._lock:
            troubles = {id_: troubled.trouble for id_, troubled in self._troubled.items()}
            nodes = tuple(
                replace(node, extent=self._extents[id_]() if id_ in self._extents else None, trouble=troubles.get(id_))
                for id_, node in self._nodes.items()
            )
            seconds = time.monotonic() - self._began
            return Snapshot(self._phase, nodes, self._epochs, self._rows, self._last_epoch_ms, seconds, self._bounded)

    @property
    def plan(self) -> Plan | None:
        """What is being run, once that is known."""
        return self._plan

    # The engine's side

    def planned(self, plan: Plan) -> None:
        """The nodes are known; all counts are zero."""
        with self._lock:
            self._plan = plan
            self._nodes = {n.id: NodeProgress(n.spec.name, n.spec.role, n.spec.type) for n in plan.nodes}
            self._inputs = {n.id: n.inputs for n in plan.nodes}

    def running(
        self,
        extents: Mapping[str, Callable[[], Extent | None]],
        troubled: Mapping[str, Troubled],
        *,
        bounded: bool,
    ) -> None:
        with self._lock:
            self._phase, self._bounded = Phase.RUNNING, bounded
            self._extents, self._troubled = extents, troubled

    def stopping(self) -> None:
        with self._lock:
            self._phase = Phase.STOPPING

    def done(self) -> None:
        with self._lock:
            self._phase = Phase.DONE

    def epoch_passed(self, given: Mapping[str, int]) -> None:
        """What sources and transforms have given in an epoch, as far as anybody has counted it."""
        with self._lock:
            for id_, node in self._nodes.items():
                if node.role is Role.SINK:
                    continue
                got = [given.get(input_, 0) for input_ in self._inputs[id_]]
                if id_ in given:
                    node = replace(node, rows_out=(node.rows_out or 0) + given[id_])
                if got:
                    node = replace(node, rows_in=(node.rows_in or 0) + sum(got))
                self._nodes[id_] = node

    def passed(self, id_: str, *, rows_in: int = 0, rows_out: int = 0, set_aside: int = 0) -> None:
        """Rows have passed a node."""
        with self._lock:
            node = self._nodes[id_]
            self._nodes[id_] = replace(
                node,
                rows_in=(node.rows_in or 0) + rows_in if node.role is Role.SINK else node.rows_in,
                rows_out=(node.rows_out or 0) + rows_out if node.role is Role.SINK else node.rows_out,
                set_aside=node.set_aside + set_aside,
            )

    def epoch(self, rows: int, milliseconds: float) -> None:
        """An epoch is durable everywhere."""
        with self._lock:
            self._epochs, self._rows, self._last_epoch_ms = self._epochs + 1, self._rows + rows, milliseconds

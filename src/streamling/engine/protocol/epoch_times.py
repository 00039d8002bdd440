"""Where the time of a finalized epoch went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamling.engine.data.epoch_clock import EpochClock


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """One epoch, in milliseconds. Sinks flush in parallel, each after the rows of its input are computed."""

    number: int
    began: float
    """When its rows were taken, as unix time in seconds."""
    rows: int
    """The rows read."""
    wait_ms: float
    """How long the run waited for the rows, or for the interval of a sink."""
    read_ms: float
    """How long the driver read; it reads while the epoch before is delivered. Executors read in `transform_ms`."""
    transform_ms: float
    """Until the rows of the slowest sink were computed. Executors that compute and write in one task count as sink."""
    sinks: Mapping[str, float]
    """By name: how long the sink wrote and committed."""
    finalize_ms: float
    """Bad rows, state and the notification of sources."""
    replayed: bool
    """An interrupted epoch that was delivered again."""
    commits: Mapping[str, float] = field(default_factory=dict)
    """By sink: from the beginning to its commit."""
    nodes: Mapping[str, float] = field(default_factory=dict)
    """By id of a source or transform: how long it computed."""
    inspect_ms: float = 0.0
    """How long samples for live inspection took."""
    total_ms: float = 0.0
    """From the beginning to the end, without `wait_ms` and `read_ms`."""


@dataclass(slots=True)
class EpochWatch:
    """An epoch that runs: its clock, and the marks that its steps set."""

    wait_ms: float = 0.0
    read_s: Mapping[str, float] = field(default_factory=dict)
    """By source."""
    replayed: bool = False
    clock: EpochClock = field(default_factory=EpochClock)
    computed_s: float = 0.0
    """Seconds of the step that computes rows, before the sinks pull them."""
    flushed_s: float = 0.0
    """When every sink had the epoch, in seconds since the beginning."""
    inspected_s: float = 0.0
    """Seconds for samples, after that."""

    def times(self, number: int, rows: int, names: Mapping[str, str]) -> EpochTimes:
        """`names` of sinks by id."""
        clock = self.clock
        slowest = max(clock.waited.values(), default=0.0)
        nodes = {
            node: clock.computed.get(node, 0.0) + self.read_s.get(node, 0.0) for node in {*clock.computed, *self.read_s}
        }
        total = clock.seconds
        return EpochTimes(
            number=number,
            began=round(clock.began, 3),
            rows=rows,
            wait_ms=round(self.wait_ms, 3),
            read_ms=_milliseconds(sum(self.read_s.values())),
            transform_ms=_milliseconds(self.computed_s + slowest),
            sinks={names[sink]: _milliseconds(s - clock.waited[sink]) for sink, s in clock.flushed.items()},
            finalize_ms=_milliseconds(total - self.flushed_s - self.inspected_s),
            replayed=self.replayed,
            commits={names[sink]: _milliseconds(seconds) for sink, seconds in clock.committed.items()},
            nodes={node: _milliseconds(seconds) for node, seconds in nodes.items()},
            inspect_ms=_milliseconds(self.inspected_s),
            total_ms=_milliseconds(total),
        )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)

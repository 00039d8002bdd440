"""When an epoch closes.

Sinks have batch policies (`batch_size`, `batch_flush_interval`): what they wait for at least, not a limit of the epoch.
Sources may have one for the rows they gather. A due checkpoint, a full buffer or the end of input closes an epoch in
any case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamling.connector import BatchPolicy

# New rows wake the loop; without rows there is nothing to check.
_IDLE_S = 60.0
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True)
class Buffered:
    """Rows that sources have read ahead and no epoch has taken yet.

    waited      the age of the oldest row
    full        a source cannot buffer more before the epoch closes
    last        no more rows will come
    gathering   seconds that a source still wants to gather rows, 0 when it has enough; None if no source batches
    """

    rows: int
    waited: float
    full: bool
    last: bool
    gathering: float | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds: the time since the last epoch began, the checkpoint interval, the interval of source batches."""

    since_last_epoch: float
    checkpoint_interval: float
    batch_interval: float


Policies = Sequence[tuple[BatchPolicy, float]]
"""Batch policies of sinks, each with the share of rows that reaches its sink: filters must not make batches smaller."""


def closes(buffered: Buffered, policies: Policies, timing: Timing) -> bool:
    """Whether the buffered rows become an epoch now."""
    if buffered.rows == 0:
        return False
    if buffered.full or buffered.last or buffered.waited >= timing.checkpoint_interval:
        return True
    if buffered.gathering:
        return False
    if not policies:
        return buffered.gathering is not None or timing.since_last_epoch >= timing.batch_interval
    return all(_is_met(policy, buffered.rows * share, buffered.waited) for policy, share in policies)


def wait_seconds(buffered: Buffered, policies: Policies, timing: Timing) -> float:
    """How long to wait for new rows before checking again: until the next interval is over."""
    if buffered.rows == 0:
        return _IDLE_S
    if buffered.gathering:
        return max(min(buffered.gathering, timing.checkpoint_interval - buffered.waited), _SHORTEST_S)
    if not policies:
        return max(timing.batch_interval - timing.since_last_epoch, _SHORTEST_S)
    intervals = [timing.checkpoint_interval, *(policy.seconds for policy, _ in policies if policy.seconds is not None)]
    waits = [interval - buffered.waited for interval in intervals if interval > buffered.waited]
    return max(min(waits, default=_SHORTEST_S), _SHORTEST_S)


def seconds_to_gather(policy: BatchPolicy, rows: int, waited: float) -> float:
    """How long a source with this policy still gathers rows; 0 when it has enough rows or has waited long enough."""
    if _is_met(policy, rows, waited):
        return 0.0
    return policy.seconds - waited if policy.seconds is not None else math.inf


def _is_met(policy: BatchPolicy, rows: float, waited: float) -> bool:
    enough = policy.rows is not None and rows >= policy.rows
    late = policy.seconds is not None and waited >= policy.seconds
    return enough or late

"""When an epoch closes.

Sinks say what they would like to wait for (`batch_size`, `batch_flush_interval`); that is the least they wait, not a
ceiling of the epoch. Sources may say the same of what they gather. A due checkpoint, a full buffer or the end of input
closes it in any case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamling.connector import BatchPolicy

# Rows wake the loop; without any there is nothing to look at.
_IDLE_S = 60.0
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True)
class InHand:
    """What the sources hold ready.

    `waited` is the age of the oldest row; `full` means no source can take more before the epoch closes;
    `last` that no more will come. `gathering` are the seconds that a source wants to go on gathering for, unless it has
    enough rows before; None if it hands on what there is.
    """

    rows: int
    waited: float
    full: bool
    last: bool
    gathering: float | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that decide: since the last epoch began, between checkpoints, of a source batch."""

    since_last_epoch: float
    checkpoint_interval: float
    batch_interval: float


Wishes = Sequence[tuple[BatchPolicy, float]]
"""Each with the share of rows that arrives at its sink: a filter must not make batches smaller than asked for."""


def closes(hand: InHand, wishes: Wishes, timing: Timing) -> bool:
    """Whether the rows in hand become an epoch now."""
    if hand.rows == 0:
        return False
    if hand.full or hand.last or hand.waited >= timing.checkpoint_interval:
        return True
    if hand.gathering:
        return False
    if not wishes:
        return hand.gathering is not None or timing.since_last_epoch >= timing.batch_interval
    return all(_granted(wish, hand.rows * share, hand.waited) for wish, share in wishes)


def patience(hand: InHand, wishes: Wishes, timing: Timing) -> float:
    """How long to wait before looking again, unless new rows wake us: until the next thing falls due."""
    if hand.rows == 0:
        return _IDLE_S
    if hand.gathering:
        return max(min(hand.gathering, timing.checkpoint_interval - hand.waited), _SHORTEST_S)
    if not wishes:
        return max(timing.batch_interval - timing.since_last_epoch, _SHORTEST_S)
    dues = [timing.checkpoint_interval, *(wish.seconds for wish, _ in wishes if wish.seconds is not None)]
    waits = [due - hand.waited for due in dues if due > hand.waited]
    return max(min(waits, default=_SHORTEST_S), _SHORTEST_S)


def still_gathering(wish: BatchPolicy, rows: int, waited: float) -> float:
    """How long a source that waits for this goes on gathering; 0 when it has enough or never will wait longer."""
    if _granted(wish, rows, waited):
        return 0.0
    return wish.seconds - waited if wish.seconds is not None else math.inf


def _granted(wish: BatchPolicy, rows: float, waited: float) -> bool:
    enough = wish.rows is not None and rows >= wish.rows
    late = wish.seconds is not None and waited >= wish.seconds
    return enough or late

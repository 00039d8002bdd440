"""When an epoch closes.

Sinks say what they would like to wait for (`batch_size`, `batch_flush_interval`); that is the least they wait, not a
ceiling of the epoch. A due checkpoint, a full buffer or the end of input closes it in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Rows wake the loop; without any there is nothing to look at.
_IDLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What one batching sink waits for: enough rows, or long enough. None = does not matter."""

    rows: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class InHand:
    """What the sources hold ready.

    `waited` is the age of the oldest row; `full` means no source can take more before the epoch closes;
    `last` that no more will come.
    """

    rows: int
    waited: float
    full: bool
    last: bool


def closes(
    hand: InHand,
    wishes: Sequence[tuple[Wish, float]],
    *,
    since_last_epoch: float,
    checkpoint_interval: float,
    batch_interval: float,
) -> bool:
    """Whether the rows in hand become an epoch now.

    Each wish comes with the share of rows that lately arrived at its sink: a filter must not make batches
    smaller than asked for.
    """
    if hand.rows == 0:
        return False
    if hand.full or hand.last or hand.waited >= checkpoint_interval:
        return True
    if not wishes:
        return since_last_epoch >= batch_interval
    return all(_granted(wish, hand.rows * share, hand.waited) for wish, share in wishes)


def patience(hand: InHand, wishes: Sequence[tuple[Wish, float]], *, batch_interval: float) -> float:
    """How long to wait before looking again, unless new rows wake us: the next instant something falls due."""
    if hand.rows == 0:
        return _IDLE_S
    waits = [w.seconds - hand.waited for w, _ in wishes if w.seconds is not None]
    return min([batch_interval, *(max(s, 0.001) for s in waits)])


def _granted(wish: Wish, rows: float, waited: float) -> bool:
    enough = wish.rows is not None and rows >= wish.rows
    late = wish.seconds is not None and waited >= wish.seconds
    return enough or late

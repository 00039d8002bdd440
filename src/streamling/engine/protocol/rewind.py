"""Continue from the positions in the ledger of a sink, after its target or the state has lost its last commits.

Other exactly-once sinks have the rows already. Their ledgers are set to the same positions, so that they accept the
rows again; where that makes doubles, the user is told before anything is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamling.connector import Json, Sink
from streamling.engine.protocol.state.store import PENDING_PREFIX, StateStore
from streamling.errors import STATE_MOVED, UserError

# Positions of these sources are numbers that can be compared.
_COUNTERS = ("offset", "next")


@dataclass(frozen=True, slots=True)
class Move:
    """A position that is replaced by the one in the ledger that is followed."""

    key: str
    before: Json
    after: Json

    @property
    def rows(self) -> int | None:
        """How many rows lie between them, negative if they are repeated; None if the positions cannot be compared."""
        before, after = _count(self.before), _count(self.after)
        return None if before is None or after is None else after - before


@dataclass(frozen=True, slots=True)
class Rewind:
    """What changes: positions in the state, and in the ledgers of other sinks."""

    sink: str
    moves: tuple[Move, ...]
    others: Mapping[str, tuple[Move, ...]]
    records: Mapping[str, Json]
    """Records of interrupted epochs that are removed."""

    def __bool__(self) -> bool:
        return bool(self.moves or self.others)


def plan_rewind(store: StateStore, sinks: Mapping[str, Sink], sink: str) -> Rewind:
    """What `apply_rewind` would do. Raises UserError if another sink would lose rows by it.

    Keys that the ledger lacks are left alone: the sink has never written rows of them.
    """
    stored = store.items()
    ledgers = {name: ledger for name, one in sinks.items() if (ledger := one.ledger()) is not None}
    if sink not in ledgers:
        known = ", ".join(ledgers) or "none"
        raise UserError(STATE_MOVED, f"there is no sink '{sink}' with a ledger", hint=f"sinks with a ledger: {known}")
    followed = ledgers.pop(sink)
    others = {}
    for name, ledger in ledgers.items():
        moves = _moves(followed, {key: position for key, position in ledger.items() if key in followed})
        _refuse_losses(name, moves)
        if moves:
            others[name] = moves
    records = {f"{PENDING_PREFIX}{key}" for key in followed}
    return Rewind(
        sink,
        _moves(followed, {key: stored.get(key) for key in followed}),
        others,
        {key: value for key, value in stored.items() if key in records},
    )


def apply_rewind(store: StateStore, sinks: Mapping[str, Sink], rewind: Rewind) -> None:
    """Set the ledgers of other sinks, then the positions. Interrupted epochs are forgotten: their rows are read again.
    Raises UserError if the state has changed since `plan_rewind`: a pipeline is running."""
    for name, moves in rewind.others.items():
        sinks[name].rewind({move.key: move.after for move in moves})
    expected = {move.key: move.before for move in rewind.moves} | dict(rewind.records)
    if not store.exchange(expected, {move.key: move.after for move in rewind.moves}, list(rewind.records)):
        message = "the stored positions have changed meanwhile: the pipeline is running"
        raise UserError(STATE_MOVED, message, hint="stop it, then run this command again")


def _moves(followed: Mapping[str, Json], positions: Mapping[str, Json]) -> tuple[Move, ...]:
    return tuple(Move(key, before, followed[key]) for key, before in positions.items() if before != followed[key])


def _refuse_losses(sink: str, moves: tuple[Move, ...]) -> None:
    for move in moves:
        if (move.rows or 0) > 0:
            raise UserError(
                STATE_MOVED,
                f"the sink '{sink}' lacks {move.rows} rows of {move.key} that would be skipped",
                node=sink,
                hint=f"follow that sink: --to {sink}",
            )


def _count(position: Json) -> int | None:
    if position is None:
        return 0
    values = [position.get(name) for name in _COUNTERS] if isinstance(position, dict) else []
    return next((value for value in values if isinstance(value, int)), None)

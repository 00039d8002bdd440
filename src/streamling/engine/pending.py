"""The record of an epoch under way, kept per state key, and what becomes of it after a crash.

A pending record holds all that is needed to compute the epoch again, row by row. It is written before a sink sees
a row and removed in the transaction that moves the positions. Found at a start, it means: some sinks may have the
epoch and some may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamling.engine.state.store import EPOCH_KEY, PENDING_PREFIX, StateStore
from streamling.errors import STATE_MOVED, Fenced
from streamling.plugin.contract import Epoch, Json, Slice


@dataclass(frozen=True, slots=True)
class Pending:
    """An epoch found recorded but not finalized."""

    epoch: Epoch
    plan: str


class Ledger:
    """Records, finalizes and drops epochs in the state store; every step is conditional on the one before."""

    def __init__(self, store: StateStore, *, recording: bool) -> None:
        self._store, self._recording = store, recording

    def positions(self) -> dict[str, Json]:
        """Where the sources stand: everything in the store that is not ours."""
        return {key: value for key, value in self._store.items().items() if not key.startswith("__")}

    def next_number(self) -> int:
        stored = self._store.get(EPOCH_KEY)
        return (stored if isinstance(stored, int) else 0) + 1

    def record(self, epoch: Epoch, plan: str) -> None:
        """Announce the epoch. Raises Fenced if another owner has moved or announced one of its keys."""
        if not self._recording:
            return
        expected: dict[str, Json] = {s.key: s.start for s in epoch.slices}
        expected |= {_pending_key(s): None for s in epoch.slices}
        values: dict[str, Json] = {_pending_key(s): _record(epoch, s, plan) for s in epoch.slices}
        self._exchange(expected, values | {EPOCH_KEY: epoch.number})

    def finalize(self, epoch: Epoch, plan: str) -> None:
        """Move the positions and forget the record, at once. Raises Fenced if another owner was quicker."""
        expected: dict[str, Json] = {s.key: s.start for s in epoch.slices}
        if self._recording:
            expected |= {_pending_key(s): _record(epoch, s, plan) for s in epoch.slices}
        values: dict[str, Json] = {s.key: s.end for s in epoch.slices}
        removed = [_pending_key(s) for s in epoch.slices]
        self._exchange(expected, values | {EPOCH_KEY: epoch.number}, removed)

    def drop(self, pending: Pending) -> None:
        """Forget a record that no sink has seen anything of."""
        keys = {_pending_key(s): _record(pending.epoch, s, pending.plan) for s in pending.epoch.slices}
        self._exchange(keys, {}, list(keys))

    def pending(self, application: str, generation: str) -> list[Pending]:
        """Epochs that were announced and not finalized, by number."""
        found: dict[str, list[Mapping[str, Json]]] = {}
        for key, value in self._store.items().items():
            if key.startswith(PENDING_PREFIX) and isinstance(value, dict):
                found.setdefault(str(value["epoch"]), []).append(value)
        epochs = [_pending(records, application, generation) for records in found.values()]
        return sorted(epochs, key=lambda p: p.epoch.number)

    def _exchange(self, expected: Mapping[str, Json], values: Mapping[str, Json], removed: Sequence[str] = ()) -> None:
        if not self._store.exchange(expected, values, removed):
            raise Fenced(
                STATE_MOVED,
                "another process with this application id has moved the stored positions: "
                + ", ".join(key for key in expected if not key.startswith("__")),
                hint="give each pipeline an application_id of its own",
            )


def _pending_key(slice_: Slice) -> str:
    return f"{PENDING_PREFIX}{slice_.key}"


def _record(epoch: Epoch, slice_: Slice, plan: str) -> dict[str, Json]:
    return {
        "epoch": epoch.id,
        "number": epoch.number,
        "now_us": epoch.now_us,
        "seed": epoch.seed,
        "plan": plan,
        "slice": slice_.to_json(),
    }


def _pending(records: Sequence[Mapping[str, Json]], application: str, generation: str) -> Pending:
    first = records[0]
    slices = tuple(Slice.from_json(r["slice"]) for r in records if isinstance(r["slice"], dict))
    number, now_us, seed = (int(str(first[name])) for name in ("number", "now_us", "seed"))
    epoch = Epoch(str(first["epoch"]), number, application, generation, now_us, seed, slices)
    return Pending(epoch, str(first["plan"]))

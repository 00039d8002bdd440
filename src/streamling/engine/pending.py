"""The record of an epoch under way, kept per state key, and what becomes of it after a crash.

A pending record holds all that is needed to compute the epoch again, row by row. It is written before a sink sees
a row and removed in the transaction that moves the positions. Found at a start, it means: some sinks may have the
epoch and some may not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from streamling.engine.state.store import EPOCH_KEY, PENDING_PREFIX, StateStore
from streamling.errors import STATE_MOVED, Fenced
from streamling.plugin.contract import Epoch, Json, Slice


@dataclass(frozen=True, slots=True)
class Pending:
    """An epoch announced and not finalized, and the fingerprint of the plan it was announced with.

    `stored`: the announcement stands in the state store. Pipelines without an exactly-once sink make none.
    """

    epoch: Epoch
    plan: str
    stored: bool = True

    @property
    def records(self) -> dict[str, Json]:
        """What stands in the store for it, by key."""
        if not self.stored:
            return {}
        return {f"{PENDING_PREFIX}{s.key}": _record(self, index, s) for index, s in enumerate(self.epoch.slices)}


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

    def record(self, epoch: Epoch, plan: str) -> Pending:
        """Announce the epoch. Raises Fenced if another owner has moved or announced one of its keys."""
        pending = Pending(epoch, plan, stored=self._recording)
        if pending.stored:
            expected: dict[str, Json] = {s.key: s.start for s in epoch.slices}
            expected |= dict.fromkeys(pending.records)
            self._exchange(expected, pending.records | {EPOCH_KEY: epoch.number})
        return pending

    def finalize(self, pending: Pending) -> None:
        """Move the positions and forget the record, at once. Raises Fenced if another owner was quicker."""
        epoch, records = pending.epoch, pending.records
        expected: dict[str, Json] = {s.key: s.start for s in epoch.slices} | records
        values: dict[str, Json] = {s.key: s.end for s in epoch.slices}
        if not pending.stored:  # otherwise the number was stored with the record
            values[EPOCH_KEY] = epoch.number
        self._exchange(expected, values, list(records))

    def rename(self, pending: Pending, epoch_id: str) -> Pending:
        """Announce the same slices under another id, in place of the old one.

        Whoever drops the record later abandons the id that is at work, not one that was given up before.
        """
        renamed = replace(pending, epoch=replace(pending.epoch, id=epoch_id))
        self._exchange(pending.records, renamed.records)
        return renamed

    def drop(self, pending: Pending) -> None:
        """Forget a record that no sink has seen anything of."""
        self._exchange(pending.records, {}, list(pending.records))

    def pending(self, application: str, generation: str, nodes: Collection[str]) -> list[Pending]:
        """Epochs of these sources that were announced and not finalized, by number."""
        found: dict[str, list[Mapping[str, Json]]] = {}
        for key, value in self._store.items().items():
            if key.startswith(PENDING_PREFIX) and isinstance(value, dict):
                slice_ = value["slice"]
                if isinstance(slice_, dict) and slice_["node"] in nodes:
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


def _record(pending: Pending, index: int, slice_: Slice) -> dict[str, Json]:
    epoch = pending.epoch
    return {
        "epoch": epoch.id,
        "number": epoch.number,
        "now_us": epoch.now_us,
        "seed": epoch.seed,
        "plan": pending.plan,
        "index": index,
        "slice": slice_.to_json(),
    }


def _pending(records: Sequence[Mapping[str, Json]], application: str, generation: str) -> Pending:
    records = sorted(records, key=lambda record: int(str(record["index"])))  # rows come again in the order they came
    first = records[0]
    slices = tuple(Slice.from_json(r["slice"]) for r in records if isinstance(r["slice"], dict))
    number, now_us, seed = (int(str(first[name])) for name in ("number", "now_us", "seed"))
    epoch = Epoch(str(first["epoch"]), number, application, generation, now_us, seed, slices)
    return Pending(epoch, str(first["plan"]))

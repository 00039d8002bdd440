"""The record of an epoch under way, kept per state key, and what becomes of it after a crash.

A pending record holds all that is needed to compute the epoch again, row by row. It is written before a sink sees
a row and removed in the transaction that moves the positions. Found at a start, it means: some sinks may have the
epoch and some may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamling.connector import Epoch, Json, Slice
from streamling.engine.protocol.state.store import EPOCH_KEY, PENDING_PREFIX, StateStore
from streamling.errors import STATE_MOVED, Fenced

# Of a row in a record that does not say how large the rows were.
_LIKELY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Pending:
    """An epoch announced and not finalized, and the fingerprint of the plan it was announced with.

    `records` is what stands in the state store for it, by key. Pipelines without an exactly-once sink store none.
    Where several processes divide the keys, each sees the slices of its own keys only.
    """

    epoch: Epoch
    plan: str
    records: Mapping[str, Json]

    def apart(self) -> list[Pending]:
        """Each slice as an epoch of its own."""
        parts = []
        for slice_ in self.epoch.slices:
            key = _record_key(slice_)
            parts.append(Pending(replace(self.epoch, slices=(slice_,)), self.plan, {key: self.records[key]}))
        return parts


class Journal:
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
        """Announce the epoch, under a higher number if another process has taken its own in the meantime.

        Raises Fenced if another owner has moved or announced one of its keys.
        """
        if not self._recording:
            return Pending(epoch, plan, {})
        while True:
            records = _records(epoch, plan)
            expected: dict[str, Json] = {s.key: s.start for s in epoch.slices} | dict.fromkeys(records)
            expected[EPOCH_KEY] = epoch.number - 1 or None
            if self._store.exchange(expected, records | {EPOCH_KEY: epoch.number}):
                return Pending(epoch, plan, records)
            if announced := self._announced(epoch, plan):
                return announced
            number = self.next_number()
            if number == epoch.number:
                raise _moved(epoch)
            epoch = replace(epoch, number=number)

    def _announced(self, epoch: Epoch, plan: str) -> Pending | None:
        """What an earlier attempt has left whose answer was lost, while another process went on counting."""
        stored = self._store.items()
        records = {key: stored.get(key) for key in map(_record_key, epoch.slices)}
        numbers = [r["number"] for r in records.values() if isinstance(r, dict) and r["epoch"] == epoch.id]
        if not numbers or len(numbers) < len(records):
            return None
        return Pending(replace(epoch, number=int(str(numbers[0]))), plan, records)

    def finalize(self, pending: Pending) -> None:
        """Move the positions and forget the record, at once. Raises Fenced if another owner was quicker."""
        epoch, records = pending.epoch, pending.records
        expected: dict[str, Json] = {s.key: s.start for s in epoch.slices} | dict(records)
        values: dict[str, Json] = {s.key: s.end for s in epoch.slices}
        if not records:  # otherwise the number was stored with them
            values[EPOCH_KEY] = max(epoch.number, self.next_number() - 1)
        self._exchange(epoch, expected, values, list(records))

    def rename(self, pending: Pending, epoch_id: str) -> Pending:
        """Announce the same slices under another id, in place of the old one.

        Whoever drops the record later abandons the id that is at work, not one that was given up before.
        """
        epoch = replace(pending.epoch, id=epoch_id)
        renamed = Pending(epoch, pending.plan, _records(epoch, pending.plan))
        self._exchange(epoch, pending.records, renamed.records)
        return renamed

    def drop(self, pending: Pending) -> None:
        """Forget a record that no sink has seen anything of."""
        self._exchange(pending.epoch, pending.records, {}, list(pending.records))

    def pending(self, application: str, generation: str, mine: Callable[[Slice], bool]) -> list[Pending]:
        """What was announced of these slices and not finalized, by the number of the epoch."""
        found: dict[str, dict[str, tuple[Mapping[str, Json], Slice]]] = {}
        for key, value in self._store.items().items():
            if key.startswith(PENDING_PREFIX) and isinstance(value, dict) and isinstance(value["slice"], dict):
                slice_ = Slice.from_json(value["slice"])
                if mine(slice_):
                    found.setdefault(str(value["epoch"]), {})[key] = value, slice_
        epochs = [_pending(records, application, generation) for records in found.values()]
        return sorted(epochs, key=lambda p: p.epoch.number)

    def _exchange(
        self, epoch: Epoch, expected: Mapping[str, Json], values: Mapping[str, Json], removed: Sequence[str] = ()
    ) -> None:
        if not self._store.exchange(expected, values, removed):
            raise _moved(epoch)


def _moved(epoch: Epoch) -> Fenced:
    return Fenced(
        STATE_MOVED,
        "another process with this application id has moved the stored positions: "
        + ", ".join(s.key for s in epoch.slices),
        hint="give each pipeline an application_id of its own",
    )


def _record_key(slice_: Slice) -> str:
    return f"{PENDING_PREFIX}{slice_.key}"


def _records(epoch: Epoch, plan: str) -> dict[str, Json]:
    return {_record_key(s): _record(epoch, plan, index, s) for index, s in enumerate(epoch.slices)}


def _record(epoch: Epoch, plan: str, index: int, slice_: Slice) -> dict[str, Json]:
    return {
        "epoch": epoch.id,
        "number": epoch.number,
        "now_us": epoch.now_us,
        "seed": epoch.seed,
        "plan": plan,
        "index": index,
        "slice": slice_.to_json(),
        "bytes": epoch.bytes,
        "chunk_rows": epoch.chunk_rows.get(slice_.node, 0),
    }


def _pending(found: Mapping[str, tuple[Mapping[str, Json], Slice]], application: str, generation: str) -> Pending:
    # Rows come again in the order they came.
    ordered = sorted(found.values(), key=lambda item: int(str(item[0]["index"])))
    first, slices = ordered[0][0], tuple(slice_ for _, slice_ in ordered)
    number, now_us, seed = (int(str(first[name])) for name in ("number", "now_us", "seed"))
    # Records of earlier versions lack the last two.
    chunk_rows = {s.node: r["chunk_rows"] for r, s in ordered if isinstance(r.get("chunk_rows"), int)}
    epoch = Epoch(
        str(first["epoch"]),
        number,
        application,
        generation,
        now_us,
        seed,
        slices,
        bytes=int(str(first.get("bytes", _LIKELY_BYTES * sum(s.rows for s in slices)))),
        chunk_rows={node: int(str(rows)) for node, rows in chunk_rows.items()},
    )
    return Pending(epoch, str(first["plan"]), {key: dict(record) for key, (record, _) in found.items()})

"""The records of an epoch under way, one per state key.

A pending record holds everything needed to replay the epoch, row by row. It is written before a sink gets a row and
removed in the transaction that moves the positions. A record found at a start means that some sinks may have the epoch
and others may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamling.connector import Epoch, Json, Slice
from streamling.engine.protocol.state.store import EPOCH_KEY, LOOSE_KEY, PENDING_PREFIX, StateStore
from streamling.errors import STATE_MOVED, Fenced
from streamling.plan.replay import LETTERS_PREFIX

# Assumed size of a row, for records without the size of their rows.
_LIKELY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Pending:
    """An epoch that is recorded and not finalized, and the fingerprint of the plan it was recorded with.

    `records` are its records in the state store, by key. Pipelines without an exactly-once sink store none. If several
    processes share the keys, each sees only the slices of its own keys.
    """

    epoch: Epoch
    plan: str
    records: Mapping[str, Json]
    replays: int = 0
    """How often its replay has begun."""

    def split(self) -> list[Pending]:
        """One pending epoch per slice."""
        parts = []
        for slice_ in self.epoch.slices:
            key = _record_key(slice_)
            epoch = replace(self.epoch, slices=(slice_,))
            parts.append(Pending(epoch, self.plan, {key: self.records[key]}, self.replays))
        return parts


class Journal:
    """Records, finalizes and drops epochs in the state store; every step is conditional on the one before."""

    def __init__(self, store: StateStore, *, recording: bool) -> None:
        self._store = store
        self._recording = recording

    def positions(self) -> dict[str, Json]:
        """The positions of the sources and of replays of dead letters: every key in the store except the engine's own,
        which begin with `__`."""
        stored = self._store.items().items()
        return {key: value for key, value in stored if not key.startswith("__") or key.startswith(LETTERS_PREFIX)}

    def next_number(self) -> int:
        stored = self._store.get(EPOCH_KEY)
        return (stored if isinstance(stored, int) else 0) + 1

    def last_loose(self) -> int:
        """The number of the last epoch with rows without slices of which the sources were told that it is finalized."""
        stored = self._store.get(LOOSE_KEY)
        return stored if isinstance(stored, int) else 0

    def set_last_loose(self, number: int) -> None:
        self._store.put({LOOSE_KEY: number})

    def record(self, epoch: Epoch, plan: str) -> Pending:
        """Record the epoch, under a higher number if another process has used its number in the meantime.

        Raises Fenced if another owner has moved or recorded one of its keys.
        """
        if not self._recording:
            return Pending(epoch, plan, {})
        while True:
            records = _records(epoch, plan)
            expected: dict[str, Json] = {s.key: s.start for s in epoch.slices} | dict.fromkeys(records)
            expected[EPOCH_KEY] = epoch.number - 1 or None
            if self._store.exchange(expected, records | {EPOCH_KEY: epoch.number}):
                return Pending(epoch, plan, records)
            if pending := self._find_recorded(epoch, plan):
                return pending
            number = self.next_number()
            if number == epoch.number:
                raise _fenced(epoch)
            epoch = replace(epoch, number=number)

    def _find_recorded(self, epoch: Epoch, plan: str) -> Pending | None:
        """The record of an earlier attempt whose answer was lost, after which another process used the next number."""
        stored = self._store.items()
        records = {key: stored.get(key) for key in map(_record_key, epoch.slices)}
        numbers = [r["number"] for r in records.values() if isinstance(r, dict) and r["epoch"] == epoch.id]
        if not numbers or len(numbers) < len(records):
            return None
        return Pending(replace(epoch, number=int(str(numbers[0]))), plan, records)

    def lookup_versions(self) -> set[str]:
        """The versions of lookups in the records of all processes."""
        records = (value for key, value in self._store.items().items() if key.startswith(PENDING_PREFIX))
        return {version for record in records if isinstance(record, dict) for version in _lookups(record).values()}

    def finalize(self, pending: Pending) -> None:
        """Move the positions and remove the record in one transaction. Raises Fenced if another owner was faster."""
        epoch, records = pending.epoch, pending.records
        expected: dict[str, Json] = {s.key: s.start for s in epoch.slices} | dict(records)
        values: dict[str, Json] = {s.key: s.end for s in epoch.slices}
        if not records:  # otherwise `record` has stored the number
            values[EPOCH_KEY] = max(epoch.number, self.next_number() - 1)
        self._exchange(epoch, expected, values, list(records))

    def rename(self, pending: Pending, epoch_id: str) -> Pending:
        """Record the same slices under another epoch id, in place of the old one.

        A process that drops the record later then abandons the id in use, not one that was abandoned before.
        """
        epoch, replays = replace(pending.epoch, id=epoch_id), pending.replays + 1
        renamed = Pending(epoch, pending.plan, _records(epoch, pending.plan, replays), replays)
        self._exchange(epoch, pending.records, renamed.records)
        return renamed

    def drop(self, pending: Pending) -> None:
        """Remove the record of an epoch of which no sink has anything."""
        self._exchange(pending.epoch, pending.records, {}, list(pending.records))

    def pending(self, application: str, generation: str, owns: Callable[[Slice], bool]) -> list[Pending]:
        """The epochs recorded for the slices that this process owns and not finalized, by their number."""
        records_by_epoch: dict[str, dict[str, tuple[Mapping[str, Json], Slice]]] = {}
        for key, value in self._store.items().items():
            if key.startswith(PENDING_PREFIX) and isinstance(value, dict) and isinstance(value["slice"], dict):
                slice_ = Slice.from_json(value["slice"])
                if owns(slice_):
                    records_by_epoch.setdefault(str(value["epoch"]), {})[key] = value, slice_
        epochs = [_pending(records, application, generation) for records in records_by_epoch.values()]
        return sorted(epochs, key=lambda p: p.epoch.number)

    def _exchange(
        self, epoch: Epoch, expected: Mapping[str, Json], values: Mapping[str, Json], removed: Sequence[str] = ()
    ) -> None:
        if not self._store.exchange(expected, values, removed):
            raise _fenced(epoch)


def _fenced(epoch: Epoch) -> Fenced:
    return Fenced(
        STATE_MOVED,
        "another process with this application id has moved the stored positions: "
        + ", ".join(s.key for s in epoch.slices),
        hint="give each pipeline its own application_id",
    )


def _record_key(slice_: Slice) -> str:
    return f"{PENDING_PREFIX}{slice_.key}"


def _records(epoch: Epoch, plan: str, replays: int = 0) -> dict[str, Json]:
    return {_record_key(s): _record(epoch, plan, index, s, replays) for index, s in enumerate(epoch.slices)}


def _record(epoch: Epoch, plan: str, index: int, slice_: Slice, replays: int) -> dict[str, Json]:
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
        "replays": replays,
        **({"lookups": dict(epoch.lookups)} if epoch.lookups else {}),
    }


def _pending(records: Mapping[str, tuple[Mapping[str, Json], Slice]], application: str, generation: str) -> Pending:
    # A replay reads rows in the order in which they were first read.
    ordered = sorted(records.values(), key=lambda item: int(str(item[0]["index"])))
    first, slices = ordered[0][0], tuple(slice_ for _, slice_ in ordered)
    number, now_us, seed = (int(str(first[name])) for name in ("number", "now_us", "seed"))
    # Records of earlier versions lack `bytes` and `chunk_rows`.
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
        lookups=_lookups(first),
    )
    all_records = {key: dict(record) for key, (record, _) in records.items()}
    return Pending(epoch, str(first["plan"]), all_records, int(str(first.get("replays", 0))))


def _lookups(record: Mapping[str, Json]) -> dict[str, str]:
    stored = record.get("lookups")
    return {ref: str(version) for ref, version in stored.items()} if isinstance(stored, dict) else {}

"""Which phase a hybrid source begins with, and when it goes on to the next; with phases that need no server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from streamling.connector import Json, Offer, Room, Runtime, Slice, Source
from streamling.errors import PermanentError
from streamling.plan.types import Schema
from streamling.sources.hybrid.phases import Phase, PhaseRecord, latest_begun
from streamling.sources.hybrid.source import HybridSource
from streamling.telemetry.metrics import Metrics

KEY = "hybrid_source_s_v1"
ROOM = Room(3, 1, 1)


class Numbers(Source):
    """Counts from its position up to `end`; without an end it never ends."""

    def __init__(self, key: str, end: int | None) -> None:
        self._key, self._end = key, end
        self.columns = Schema(())
        self._at = 0

    def open(self, positions: Mapping[str, Json]) -> None:
        self._at = int(str(positions.get(self._key, 0)))

    def offer(self, room: Room) -> Offer | None:
        if self.ended:
            return None
        first, self._at = self._at, min(self._at + room.rows, self._end or 10**9)
        part: Json = [first, self._at]
        return Offer((Slice("s", self._key, first or None, self._at, (part,), self._at - first),))

    @property
    def ended(self) -> bool:
        return self._at == self._end

    @property
    def bounded(self) -> bool:
        return self._end is not None

    def reader(self) -> Any:
        class Reader:
            def read(self, part: Json) -> Iterator[Any]:
                yield part

        return Reader()


class Store(dict[str, Json]):
    """The state."""

    def items(self) -> Any:
        return dict(self)


def hybrid(
    *ends: int, state: Mapping[str, Json] | None = None, job: bool = False, snapshot: Callable[[], Any] = dict
) -> HybridSource:
    phases = [Phase(n, Numbers(f"b{n}", end), f"b{n}") for n, end in enumerate(ends)]
    last = None if job else Phase(len(phases), Numbers("u", None), "u")
    made = HybridSource(node="s", name="s", bounded=phases, unbounded=last, snapshot=snapshot, grouped=False)
    made.prepare(Schema(()), ())
    store: Any = Store(state or {})
    made.attach(Runtime("app", store, Metrics()))
    made.open(state or {})
    return made


def ends(offer: Offer | None) -> dict[str, Json]:
    assert offer is not None
    return {s.key: s.end for s in offer.slices}


def test_phases_come_in_order_and_the_record_goes_with_the_first_rows_of_each() -> None:
    source = hybrid(3, 2, snapshot=lambda: {"0": 7})
    record: dict[str, Json] = {"current_phase": 0, "completed_phases": [False, False], "unbounded_offsets": {"0": 7}}
    assert ends(source.offer(ROOM)) == {KEY: record, "b0": 3}
    record = {**record, "current_phase": 1, "completed_phases": [True, False]}
    assert ends(source.offer(ROOM)) == {KEY: record, "b1": 2}
    record = {**record, "current_phase": 2, "completed_phases": [True, True]}
    assert ends(source.offer(ROOM)) == {KEY: record}
    assert not source.ended and not source.bounded and source.drains


def test_the_unbounded_phase_waits_until_the_rows_of_the_others_are_durable() -> None:
    source = hybrid(3)
    source.offer(ROOM)
    last = source.offer(ROOM)
    assert last is not None and source.offer(ROOM) is None and source.offer(ROOM) is None
    source.committed(last.slices)
    assert ends(source.offer(ROOM)) == {"u": 3}


def test_parts_say_which_phase_they_belong_to() -> None:
    source = hybrid(2, 1)
    offers = [source.offer(ROOM), source.offer(ROOM)]
    parts = [part for offer in offers if offer for s in offer.slices for part in s.parts]
    assert parts == [{"phase": 0, "part": [0, 2]}, {"phase": 1, "part": [0, 1]}]
    assert [list(source.reader().read(part)) for part in parts] == [[[0, 2]], [[0, 1]]]


def test_a_job_ends_after_the_bounded_phases_without_a_look_at_the_offsets() -> None:
    def snapshot() -> Any:
        raise AssertionError("not asked for")

    source = hybrid(3, job=True, snapshot=snapshot)
    assert source.bounded
    assert ends(source.offer(ROOM))["b0"] == 3
    assert not source.ended
    record = {"current_phase": 1, "completed_phases": [True], "unbounded_offsets": None}
    assert ends(source.offer(ROOM)) == {KEY: record}
    assert source.ended and source.offer(ROOM) is None
    again = hybrid(3, job=True, snapshot=snapshot, state={KEY: dict(record), "b0": 3})
    assert again.offer(ROOM) is None and again.ended


def test_a_finished_job_continues_as_a_stream_with_what_the_tables_got_since() -> None:
    done: dict[str, Json] = {"current_phase": 1, "completed_phases": [True], "unbounded_offsets": None}
    source = hybrid(5, state={KEY: done, "b0": 3}, snapshot=lambda: {"0": 9})
    offer = source.offer(ROOM)
    assert offer is not None
    assert ends(offer) == {
        KEY: {"current_phase": 0, "completed_phases": [False], "unbounded_offsets": {"0": 9}},
        "b0": 5,
    }
    assert offer.slices[0].start == done


@pytest.mark.parametrize(
    ("state", "first"),
    [
        ({}, "b0"),
        ({"b0": 1}, "b0"),
        ({"b0": 3, "b1": 1}, "b1"),
        ({"b1": 1}, "b1"),
        ({"b0": 3, "b1": 3, "u": 5}, None),
        ({KEY: {"current_phase": 1, "completed_phases": [True, False], "unbounded_offsets": None}}, "b1"),
        ({KEY: {"current_phase": 1, "completed_phases": [True, False], "unbounded_offsets": {"0": 3}}, "b1": 1}, "b1"),
    ],
)
def test_positions_decide_where_a_source_without_a_record_continues(state: dict[str, Json], first: str | None) -> None:
    keys = list(ends(hybrid(3, 3, state=state).offer(ROOM)))
    assert keys[-1] == (first or KEY)


def test_a_stream_that_was_in_its_last_phase_stays_there() -> None:
    record: dict[str, Json] = {"current_phase": 1, "completed_phases": [True], "unbounded_offsets": {}}
    assert ends(hybrid(3, state={KEY: record}).offer(ROOM)) == {"u": 3}
    # Another program may not have stored the offsets.
    record["unbounded_offsets"] = None
    assert ends(hybrid(3, state={KEY: record, "u": 5}).offer(ROOM)) == {"u": 8}


def test_the_offsets_are_read_once_and_a_restart_uses_the_same() -> None:
    first = hybrid(9, snapshot=lambda: {"0": 7}).offer(ROOM)
    again = hybrid(9, state=ends(first), snapshot=lambda: {"0": 8})
    assert list(ends(again.offer(ROOM))) == ["b0"]


def test_a_phase_that_was_added_later_is_not_read_by_a_stream_in_its_last_phase() -> None:
    record: dict[str, Json] = {"current_phase": 1, "completed_phases": [True], "unbounded_offsets": {"0": 1}}
    assert ends(hybrid(3, 3, state={KEY: record}).offer(ROOM)) == {"u": 3}


def test_a_record_that_cannot_be_read_ends_the_run() -> None:
    with pytest.raises(PermanentError, match="not a record of phases"):
        hybrid(3, state={KEY: {"phase": 1}})


def test_a_record_is_what_it_was_after_a_round_trip() -> None:
    record = PhaseRecord(1, (True, False), {"0": 2**40}, ("5", None))
    assert PhaseRecord.from_json(record.to_json(), 2) == record
    assert "bounded_ends" not in record.advance().to_json()
    with pytest.raises(ValueError, match="not a record"):
        PhaseRecord.from_json([], 2)


def test_the_last_phase_with_a_position_is_the_one_to_continue() -> None:
    phases = [Phase(0, Numbers("a:b", 1), "a:b"), Phase(1, Numbers("a:t:0", None), "a:t:")]
    assert latest_begun(phases, {"a:b": 1, "a:b:0": 1}) == 0
    assert latest_begun(phases, {"a:b": 1, "a:t:3": 1}) == 1

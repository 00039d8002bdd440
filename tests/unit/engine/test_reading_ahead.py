"""A thread per source reads ahead of the epochs, within limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from streamling.connector import (
    BadRow,
    BatchPolicy,
    Json,
    Offer,
    Reached,
    Report,
    Room,
    Slice,
    SourceCapabilities,
)
from streamling.engine.data.capacity import Caps
from streamling.engine.data.intake import Intake
from streamling.engine.data.readahead import ReadAhead
from streamling.engine.data.row_size import RowSize
from streamling.errors import SINK_FAILED, PermanentError, TransientError
from streamling.formats.arrow import arrow_schema
from streamling.plan.types import BOOLEAN, INT64, STRING, Field, Schema
from streamling.spec.pipeline.options import OnError
from support.doubles import NumberReader, NumberSource, until

MANY = 1 << 30
MB = 1 << 20


def limits(
    driver_rows: int = 10,
    rows: int = 100,
    bytes_: int = MANY,
    *,
    large_bytes: int = MANY,
    parts: int = 2,
    part_rows: int = 1,
    part_bytes: int | None = None,
    first_rows: int | None = None,
) -> Caps:
    return Caps(driver_rows, rows, bytes_, large_bytes, parts, part_rows, part_bytes, first_rows)


@pytest.fixture
def started() -> Iterator[list[ReadAhead]]:
    """Readers to be stopped after the test."""
    readers: list[ReadAhead] = []
    yield readers
    for reader in readers:
        reader.stop()


@pytest.fixture
def ahead(started: list[ReadAhead]):
    """Starts reading a source ahead."""

    def start(
        source: NumberSource,
        *,
        wake=lambda: None,
        batch: BatchPolicy | None = None,
        is_paused=lambda: False,
        on_error: OnError = OnError.FAIL,
        caps: Callable[[], Caps] | None = None,
        **bounds: int | None,
    ) -> ReadAhead:
        source.capabilities = replace(source.capabilities, batch=batch)
        fixed = limits(**bounds)
        reader = ReadAhead(
            "numbers",
            source,
            caps or (lambda: fixed),
            poll_s=0.001,
            wake=wake,
            on_error=on_error,
            is_paused=is_paused,
        )
        started.append(reader)
        reader.start({})
        return reader

    return start


def numbers(intake: Intake | None) -> list[int]:
    assert intake is not None and intake.batches is not None
    return [n for batch in intake.batches for n in batch.column(0).to_pylist()]


def test_small_offers_are_read_at_once_and_joined_per_key(ahead) -> None:
    reader = ahead(NumberSource(there=6, chunk=2, keys=("a", "b")), driver_rows=100)
    until(lambda: reader.buffered().last)
    assert reader.buffered().rows == 12
    taken = reader.take(1)
    assert [(s.key, s.start, s.end, s.rows, s.parts) for s in taken.slices] == [
        ("numbers:a", None, {"next": 6}, 6, ([0, 2], [2, 4], [4, 6])),
        ("numbers:b", None, {"next": 6}, 6, ([0, 2], [2, 4], [4, 6])),
    ]
    # In the order of a replay, so that values that depend on the place of a row are the same.
    assert numbers(taken) == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert numbers(reader.replay(taken.slices, taken.chunk_rows)) == numbers(taken)


def test_the_next_take_begins_where_the_last_one_ended(ahead) -> None:
    source = NumberSource(there=4, ends=False)
    reader = ahead(source)
    until(lambda: reader.buffered().rows == 4)
    first = reader.take(1)
    source.there = 7
    until(lambda: reader.buffered().rows == 3)
    assert reader.take(1).slices[0].start == first.slices[0].end
    assert reader.take(1) is None


def test_a_large_offer_is_kept_as_a_range(ahead) -> None:
    reader = ahead(NumberSource(there=50), driver_rows=10)
    until(lambda: reader.buffered().rows == 50)
    taken = reader.take(1)
    assert taken.batches is None
    assert [(s.parts, s.rows) for s in taken.slices] == [(([0, 50],), 50)]


def test_while_a_large_offer_waits_nothing_more_is_asked_for(ahead) -> None:
    source = NumberSource(there=90, chunk=30)
    reader = ahead(source, driver_rows=10)
    until(lambda: reader.buffered().full)
    time.sleep(0.02)
    assert len(source.rooms) == 1
    reader.take(1)
    until(lambda: len(source.rooms) == 2)


def test_beside_rows_in_hand_only_small_offers_fit(ahead) -> None:
    source = NumberSource(there=4, ends=False)
    reader = ahead(source, driver_rows=10, rows=100)
    until(lambda: reader.buffered().rows == 4)
    until(lambda: source.rooms[-1].rows < 100)
    assert source.rooms[0].rows == 100
    assert source.rooms[-1].rows == 6


def test_no_more_rows_are_held_than_the_driver_takes(ahead) -> None:
    source = NumberSource(there=100, chunk=3)
    reader = ahead(source, driver_rows=10)
    until(lambda: reader.buffered().full)
    time.sleep(0.02)
    assert reader.buffered().rows == 10
    assert source.next("numbers:") == 10
    assert numbers(reader.take(1)) == list(range(10))
    until(lambda: reader.buffered().rows == 10)
    assert numbers(reader.take(1)) == list(range(10, 20))


def test_reading_stops_once_the_bytes_are_used_up(ahead) -> None:
    source = NumberSource(there=100, chunk=5)  # 40 bytes an offer
    reader = ahead(source, driver_rows=100, bytes_=100)
    until(lambda: reader.buffered().full)
    time.sleep(0.02)
    # Room for twelve and a half: the last offer passes the limit by no more than a row.
    assert reader.buffered().rows == 13


def test_nothing_is_offered_in_a_pause_and_what_is_in_hand_is_not_held_back(ahead) -> None:
    paused = threading.Event()
    source = NumberSource(there=6, chunk=2)
    source.before_offer = paused.set
    reader = ahead(source, driver_rows=100, is_paused=paused.is_set)
    until(lambda: reader.buffered().rows == 2)
    assert numbers(reader.take(1)) == [0, 1]
    time.sleep(0.1)
    assert len(source.rooms) == 1
    source.before_offer = lambda: None
    paused.clear()
    until(lambda: reader.buffered().last)
    assert numbers(reader.take(2)) == [2, 3, 4, 5]


def test_an_ended_source_says_so_and_is_finished_once_all_is_taken(ahead) -> None:
    reader = ahead(NumberSource(there=3))
    until(lambda: reader.buffered().last)
    assert not reader.finished
    reader.take(1)
    assert reader.finished


def test_an_idle_source_is_neither_last_nor_finished(ahead) -> None:
    source = NumberSource(there=0, ends=False)
    reader = ahead(source)
    until(lambda: len(source.rooms) > 3)
    assert reader.buffered() == type(reader.buffered())(0, 0.0, full=False, last=False)
    assert not reader.finished


def test_the_age_is_that_of_the_oldest_row(ahead) -> None:
    source = NumberSource(there=2, ends=False)
    reader = ahead(source)
    until(lambda: reader.buffered().rows == 2)
    time.sleep(0.03)
    source.there = 3
    until(lambda: reader.buffered().rows == 3)
    assert reader.buffered().waited >= 0.03
    reader.take(1)
    assert reader.buffered().waited == 0.0


def test_new_rows_and_the_end_wake_the_loop(ahead) -> None:
    woken = threading.Semaphore(0)
    source = NumberSource(there=1, ends=False)
    ahead(source, wake=woken.release)
    assert woken.acquire(timeout=2)
    assert not woken.acquire(timeout=0.02)
    source.ends = True
    assert woken.acquire(timeout=2)


def test_a_failure_of_the_source_surfaces_in_the_loop(ahead) -> None:
    source, error = NumberSource(there=5), PermanentError(SINK_FAILED, "broken")

    def fail() -> None:
        raise error

    source.before_offer = fail
    reader = ahead(source)
    with pytest.raises(PermanentError) as caught:
        until(lambda: reader.buffered().rows > 0)
    assert caught.value is error


def test_rows_that_do_not_fit_the_columns_surface_in_the_loop(ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: NumberReader, part: Json) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": ["not a number"]})

    monkeypatch.setattr(NumberReader, "read", read)
    reader = ahead(NumberSource(there=5))
    with pytest.raises(PermanentError, match="column 'n' does not fit"):
        until(lambda: reader.buffered().rows > 0)


def test_a_transient_failure_is_tried_again(ahead) -> None:
    source, failures = NumberSource(there=5), [TransientError(SINK_FAILED, "not now")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    source.before_offer = fail_once
    reader = ahead(source)
    until(lambda: reader.buffered().rows == 5)
    assert numbers(reader.take(1)) == [0, 1, 2, 3, 4]


def test_a_restart_forgets_what_was_held_and_begins_behind_the_positions(ahead) -> None:
    source = NumberSource(there=8)
    reader = ahead(source)
    until(lambda: reader.buffered().rows == 8)
    reader.start({"numbers:": {"next": 5}})
    until(lambda: reader.buffered().last)
    assert numbers(reader.take(1)) == [5, 6, 7]
    assert source.opened == [{}, {"numbers:": {"next": 5}}]


def test_a_restart_forgets_a_failure(ahead) -> None:
    source, failures = NumberSource(there=3), [PermanentError(SINK_FAILED, "broken")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    source.before_offer = fail_once
    reader = ahead(source)
    until(lambda: not failures)
    reader.start({})
    until(lambda: reader.buffered().rows == 3)
    assert numbers(reader.take(1)) == [0, 1, 2]


def test_a_stop_reads_no_further_but_what_is_held_can_be_taken(ahead) -> None:
    source = NumberSource(there=4, ends=False)
    reader = ahead(source)
    until(lambda: reader.buffered().rows == 4)
    reader.stop()
    source.there = 9
    time.sleep(0.01)
    assert reader.buffered().last
    assert numbers(reader.take(1, only_read=True)) == [0, 1, 2, 3]
    assert reader.finished


def test_taking_only_what_was_read_leaves_a_large_offer_out(ahead) -> None:
    reader = ahead(NumberSource(there=50), driver_rows=10)
    until(lambda: reader.buffered().rows == 50)
    reader.stop()
    assert reader.take(1, only_read=True) is None


def test_slices_to_be_repeated_are_read_if_they_are_few(ahead) -> None:
    reader = ahead(NumberSource(there=30, chunk=30, ends=False), driver_rows=10)
    until(lambda: reader.buffered().rows == 30)
    (large,) = reader.take(1).slices
    assert reader.read(Offer((large,))).batches is None
    small = type(large)("numbers", "numbers:", None, {"next": 3}, ([0, 3],), 3)
    assert numbers(reader.read(Offer((small,)))) == [0, 1, 2]


def test_a_stop_does_not_wait_for_the_pause_of_a_retry(ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamling.retry._FIRST_S", 5.0)
    source, attempts = NumberSource(there=5), []

    def fail() -> None:
        attempts.append(1)
        raise TransientError(SINK_FAILED, "not now")

    source.before_offer = fail
    reader = ahead(source)
    until(lambda: attempts)
    began = time.monotonic()
    reader.stop()
    assert time.monotonic() - began < 2.5


def test_a_read_that_hangs_does_not_keep_a_run_from_its_end(ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, answered = threading.Event(), threading.Event()
    plain = NumberReader.read

    def read(self: NumberReader, part: Json) -> Iterator[pa.RecordBatch]:
        if part == [4, 6]:
            hanging.set()
            answered.wait(30)
        return plain(self, part)

    monkeypatch.setattr(NumberReader, "read", read)
    reader = ahead(NumberSource(there=8, chunk=2))
    assert hanging.wait(10)
    began = time.monotonic()
    reader.stop(within=0.2)
    assert time.monotonic() - began < 5
    assert numbers(reader.take(1, only_read=True)) == [0, 1, 2, 3]
    answered.set()


class Oddballs(NumberSource):
    """Numbers of which every third cannot be read."""

    def reader(self):
        return OddballReader()


class OddballReader:
    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow]:
        for n in range(part[0], part[1]):
            if n % 3 == 2:
                yield BadRow("decode_error", f"{n} is odd", {"row": n})
            else:
                yield pa.RecordBatch.from_pydict({"n": [n]})


def test_bad_rows_are_counted_and_kept_apart_from_the_others(ahead) -> None:
    reader = ahead(Oddballs(there=7), driver_rows=100, on_error=OnError.SKIP)
    until(lambda: reader.buffered().last)
    taken = reader.take(1)
    assert numbers(taken) == [0, 1, 3, 4, 6]
    assert (taken.report.rows, taken.report.rejected) == (5, 2)
    assert [bad.source for bad in taken.report.bad_rows] == [{"row": 2}, {"row": 5}]
    assert [s.rows for s in taken.slices] == [5]


def test_a_bad_row_ends_the_reading_where_rows_must_be_good(ahead) -> None:
    reader = ahead(Oddballs(there=7))
    with pytest.raises(PermanentError, match="row 2: 2 is odd"):
        until(lambda: reader.buffered().last)


class Loose(NumberSource):
    """Gives each number only once, and keeps its own position."""

    capabilities = SourceCapabilities(replayable=False)

    def __init__(self, there: int) -> None:
        super().__init__(there=there)
        self.given, self.marked, self.late = 0, [], 0

    def offer(self, room: Room) -> Offer | None:
        self.before_offer()
        return self._give() if self.given < self.there else None

    def _give(self) -> Offer:
        self.given += 1
        return Offer(batches=(pa.RecordBatch.from_pydict({"n": [self.given - 1]}),))

    def mark(self, epoch: int, *, last: bool = False) -> Offer | None:
        late = self._give() if self.late else None
        self.late, self.last = 0, last
        self.marked.append((epoch, self.given))
        return late

    @property
    def ended(self) -> bool:
        return self.given >= self.there


def test_a_marker_finds_every_row_given_so_far_in_the_epoch(ahead) -> None:
    source = Loose(there=1_000_000)
    source.before_offer = lambda: time.sleep(0.0005)
    reader = ahead(source, driver_rows=10_000, rows=10_000)
    rows: list[int] = []
    for epoch in range(1, 8):
        until(lambda: reader.buffered().rows > 3)
        taken = reader.take(epoch)
        rows += numbers(taken)
        assert taken.slices == () and taken.loose_rows == len(numbers(taken))
        assert source.marked[-1] == (epoch, len(rows))
    assert rows == list(range(len(rows)))


def test_rows_that_were_on_their_way_come_with_the_marker(ahead) -> None:
    source = Loose(there=2)
    reader = ahead(source)
    until(lambda: reader.buffered().last)
    source.there, source.late = 3, 1
    assert numbers(reader.take(1)) == [0, 1, 2]
    assert not source.last
    assert reader.finished


def test_the_marker_behind_a_stop_is_the_last_one(ahead) -> None:
    source = Loose(there=MANY)
    reader = ahead(source)
    until(lambda: reader.buffered().full)
    reader.stop()
    assert len(numbers(reader.take(1, only_read=True))) == source.given
    assert source.last


def test_no_more_rows_that_cannot_be_read_again_are_held_than_an_epoch_takes(ahead) -> None:
    reader = ahead(Loose(there=1000), driver_rows=10, rows=50)
    until(lambda: reader.buffered().full)
    time.sleep(0.05)
    assert numbers(reader.take(1)) == list(range(50))
    until(lambda: reader.buffered().full)
    assert numbers(reader.take(2)) == list(range(50, 100))


class LooseSource(NumberSource):
    """Has one bad row, and nothing else."""

    capabilities = SourceCapabilities(replayable=False)

    def offer(self, room: Room) -> Offer | None:
        if self.there == 0:
            return None
        self.there = 0
        return Offer(bad_rows=(BadRow("unknown_operation", "odd", {}),))

    @property
    def ended(self) -> bool:
        return self.there == 0


def test_a_bad_row_in_hand_ends_the_run(ahead) -> None:
    reader = ahead(LooseSource(there=1))
    with pytest.raises(PermanentError, match="odd"):
        until(lambda: reader.buffered().rows)


def test_a_bad_row_in_hand_is_taken_with_the_epoch_where_the_node_goes_on(ahead) -> None:
    reader = ahead(LooseSource(there=1), on_error=OnError.SKIP)
    until(lambda: reader.buffered().last)
    assert (reader.buffered().rows, reader.finished) == (1, False)
    taken = reader.take(1)
    assert taken is not None
    assert (taken.batches, taken.report.rows, taken.report.rejected) == ((), 0, 1)
    assert reader.finished


def test_epochs_that_are_taken_right_after_each_other_do_not_wait_for_ever(ahead) -> None:
    class Idle(LooseSource):
        ended = False

    reader = ahead(Idle(there=0))

    def take_two() -> None:
        with reader._changed:  # so that the reading thread does not run in between
            reader.take(1)
            reader.take(2)

    taking = threading.Thread(target=take_two, daemon=True)
    taking.start()
    taking.join(5)
    assert not taking.is_alive()


def test_a_source_that_gathers_says_so_until_it_has_enough(ahead) -> None:
    source = NumberSource(there=4, ends=False)
    reader = ahead(source, driver_rows=100, batch=BatchPolicy(7, 3600.0))
    until(lambda: reader.buffered().rows == 4)
    assert 3000 < reader.buffered().gathering <= 3600
    source.there = 7
    until(lambda: reader.buffered().rows == 7)
    assert reader.buffered().gathering == 0
    reader.take(1)
    assert reader.buffered().gathering is None  # without a row there is nothing to add to


COLUMNS = Schema((Field("n", INT64), Field("text", STRING)))


def long_row(number: int, length: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [number], "text": ["x" * length]}, schema=arrow_schema(COLUMNS))


ROW = long_row(0, 100).nbytes


class LongRows(NumberSource):
    """Numbers with a text whose length is not known in advance."""

    columns = COLUMNS

    def __init__(
        self,
        there: int,
        *,
        keys: Sequence[str] = ("",),
        length: Callable[[int], int] = lambda n: 100,
        ends: bool = True,
    ) -> None:
        super().__init__(there=there, chunk=MANY, keys=keys, ends=ends)
        self.read: list[int] = []
        self._length = length

    def reader(self):
        return LongRowReader(self.read, self._length)


class LongRowsThatComeBack(LongRows):
    """Takes back what there is no room for."""

    capabilities = SourceCapabilities(takes_back=True)

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        (part,) = slice_.parts
        assert isinstance(part, list)
        self._at[slice_.key] = {"next": place} if place is not None else slice_.start
        return None if place is None else replace(slice_, end={"next": place}, parts=([part[0], place],))


@dataclass
class LongRowReader:
    """One row after the other, in batches of one."""

    told: list[int]
    length: Callable[[int], int]

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Reached]:
        assert isinstance(part, list)
        for number in range(part[0], part[1]):
            self.told.append(number)
            yield long_row(number, self.length(number))
            yield Reached(number + 1)


def test_an_offer_is_read_no_further_than_there_is_room_for(ahead) -> None:
    source = LongRowsThatComeBack(there=10)
    reader = ahead(source, driver_rows=100, bytes_=3 * ROW)
    until(lambda: reader.buffered().full)
    taken = reader.take(1)
    assert numbers(taken) == [0, 1, 2]
    assert [(s.start, s.end, s.rows) for s in taken.slices] == [(None, {"next": 3}, 3)]
    until(lambda: reader.buffered().full)
    assert numbers(reader.take(2)) == [3, 4, 5]
    assert source.read[:6] == [0, 1, 2, 3, 4, 5]


def test_slices_that_nobody_has_begun_to_read_are_offered_again(ahead) -> None:
    reader = ahead(LongRowsThatComeBack(there=4, keys=("a", "b")), driver_rows=100, bytes_=4 * ROW)
    until(lambda: reader.buffered().full)
    first = reader.take(1)
    assert [(s.key, s.end) for s in first.slices] == [("numbers:a", {"next": 4})]
    until(lambda: reader.buffered().rows == 4)
    second = reader.take(2)
    assert [(s.key, s.start, s.end) for s in second.slices] == [("numbers:b", None, {"next": 4})]
    until(lambda: reader.finished)


# Replays of recorded epochs


FIVE = Slice("numbers", "numbers:", None, {"next": 5}, ([0, 5],), 5)


@pytest.mark.parametrize("chunk_rows", [None, 5])
def test_slices_to_be_repeated_are_read_whole_whatever_room_there_is(ahead, chunk_rows: int | None) -> None:
    reader = ahead(LongRowsThatComeBack(there=0), driver_rows=100, bytes_=8)
    intake = reader.replay((FIVE,), chunk_rows)
    assert numbers(intake) == [0, 1, 2, 3, 4]
    assert (intake.slices, intake.report.rows) == ((FIVE,), 5)


def test_rows_that_executors_have_read_are_read_by_executors_again_though_they_are_few(ahead) -> None:
    source = LongRows(there=0)
    reader = ahead(source, driver_rows=100)
    intake = reader.replay((FIVE,), 0)
    assert intake.large
    assert (intake.slices, intake.chunk_rows, source.read) == ((FIVE,), 0, [])


@pytest.mark.parametrize("chunk_rows", [1, 2, 5])
def test_rows_that_the_driver_has_read_are_read_by_the_driver_again_though_they_are_many(
    ahead, chunk_rows: int
) -> None:
    """And in the same chunks: `random()` depends on the place of a row."""
    reader = ahead(LongRows(there=0), driver_rows=1)
    intake = reader.replay((FIVE,), chunk_rows)
    assert numbers(intake) == [0, 1, 2, 3, 4]
    assert intake.chunk_rows == chunk_rows


@pytest.mark.parametrize(("driver_rows", "large"), [(4, True), (5, False)])
def test_of_a_record_without_the_path_the_number_of_rows_decides(ahead, driver_rows: int, large: bool) -> None:
    reader = ahead(LongRows(there=0), driver_rows=driver_rows)
    assert reader.replay((FIVE,), None).large is large


@pytest.mark.parametrize("chunk_rows", [None, 0, 3])
def test_a_replay_reads_what_the_source_still_has(ahead, chunk_rows: int | None) -> None:
    source = LongRows(there=0)
    source.recall = lambda slices: tuple(replace(s, parts=([2, 5],), rows=3) for s in slices)
    intake = ahead(source).replay((FIVE,), chunk_rows)
    assert intake.parts == [[2, 5]]
    assert intake.large or numbers(intake) == [2, 3, 4]


# How long rows are


def test_the_size_of_a_row_with_fixed_columns_is_known_beforehand() -> None:
    size = RowSize(Schema((Field("n", INT64), Field("yes", BOOLEAN))))
    assert (size.known, size.likely) == (9, 9)


def test_the_size_of_a_row_with_a_text_is_guessed_until_one_was_seen() -> None:
    size = RowSize(COLUMNS)
    assert (size.known, size.likely) == (None, 1024)
    size.note(Report(rows=10, bytes=500))
    assert (size.known, size.likely) == (50, 50)


def test_longer_rows_count_at_once_and_shorter_ones_little_by_little() -> None:
    size = RowSize(COLUMNS)
    size.note(Report(rows=1, bytes=100))
    size.note(Report(rows=2, bytes=2000))
    assert size.known == 1000
    size.note(Report(rows=10, bytes=2000))
    assert size.known == 600
    size.note(Report(rows=10, bytes=2000))
    assert size.known == 400


@pytest.mark.parametrize("report", [Report(), Report(rejected=3), Report(rows=7)])
def test_a_report_that_says_nothing_of_the_size_changes_nothing(report: Report) -> None:
    size = RowSize(COLUMNS)
    size.note(report)
    assert size.known is None


def test_rows_without_columns_take_a_byte_and_not_none() -> None:
    assert RowSize(Schema(())).known == 1


def test_a_first_look_at_rows_of_unknown_size_is_short_where_none_can_be_taken_back(ahead) -> None:
    source = LongRows(there=5000, ends=False)
    reader = ahead(source, driver_rows=20_000, rows=20_000)
    until(lambda: reader.buffered().rows == 5000)
    assert source.rooms[0].rows == 1000
    assert source.rooms[1].rows == 19_000


def test_a_first_look_takes_what_the_driver_takes_where_rows_can_be_taken_back(ahead) -> None:
    source = LongRowsThatComeBack(there=50, ends=False)
    ahead(source, driver_rows=20_000, rows=1_000_000)
    until(lambda: source.rooms != [])
    assert source.rooms[0].rows == 20_000


def test_rows_of_known_size_need_no_first_look(ahead) -> None:
    source = NumberSource(there=50, ends=False)
    ahead(source, driver_rows=20_000, rows=1_000_000)
    until(lambda: source.rooms != [])
    assert source.rooms[0].rows == 1_000_000


@pytest.mark.parametrize("kind", [LongRows, LongRowsThatComeBack])
def test_long_rows_make_small_rooms(ahead, kind: type[LongRows]) -> None:
    source = kind(there=3, ends=False, length=lambda n: 100_000)
    reader = ahead(source, driver_rows=20_000, rows=20_000, bytes_=MB, large_bytes=MB)
    until(lambda: reader.buffered().rows == 3)
    reader.take(1)
    source.there = 1000
    until(lambda: reader.buffered().full)
    assert all(room.rows <= 10 for room in source.rooms[2:])
    taken = reader.take(2)
    assert taken.report.rows == 11  # at most one row more than fits
    assert taken.report.bytes < MB + 101_000


def test_rows_that_get_longer_do_not_pass_the_limit_where_they_can_be_taken_back(ahead) -> None:
    """The engine expects a hundred bytes and gets a hundred thousand."""
    source = LongRowsThatComeBack(there=100, ends=False, length=lambda n: 100 if n < 100 else 100_000)
    reader = ahead(source, driver_rows=20_000, rows=20_000, bytes_=MB, large_bytes=MB)
    until(lambda: reader.buffered().rows == 100)
    reader.take(1)
    source.there = 1000
    until(lambda: reader.buffered().full)
    taken = reader.take(2)
    assert taken.report.bytes < MB + 101_000
    assert numbers(taken) == list(range(100, 111))
    until(lambda: reader.buffered().full)
    assert numbers(reader.take(3)) == list(range(111, 122))


def test_what_is_left_of_the_bytes_is_the_next_room(ahead) -> None:
    source = NumberSource(there=4, ends=False)
    reader = ahead(source, driver_rows=100, rows=100, bytes_=80)
    until(lambda: reader.buffered().rows == 4)
    until(lambda: len(source.rooms) > 1)
    assert [source.rooms[0].rows, source.rooms[-1].rows] == [10, 6]


def test_a_little_room_at_the_end_of_an_epoch_is_not_offered(ahead) -> None:
    source = NumberSource(there=999, chunk=990, ends=False)
    reader = ahead(source, driver_rows=1000, rows=1000)
    until(lambda: reader.buffered().full)
    assert reader.buffered().rows == 990
    assert len(source.rooms) == 1


def test_rows_for_the_executors_are_limited_by_their_own_bytes(ahead) -> None:
    source = NumberSource(there=1000, chunk=1000)
    reader = ahead(source, driver_rows=10, rows=1000, bytes_=80, large_bytes=800)
    until(lambda: reader.buffered().full)
    assert (source.rooms[0].rows, source.rooms[0].bytes) == (100, 800)
    intake = reader.take(1)
    assert intake.large
    assert intake.report == Report(rows=100, bytes=800)


def test_parts_that_are_collected_are_no_larger_than_they_may_be(ahead) -> None:
    source = NumberSource(there=1000, chunk=1000)
    ahead(source, driver_rows=10, rows=1000, parts=2, part_rows=300, part_bytes=800)
    until(lambda: source.rooms != [])
    assert source.rooms[0] == Room(rows=1000, parts=10, part_rows=100, bytes=MANY)


def test_parts_of_rows_that_the_driver_reads_are_as_they_are(ahead) -> None:
    source = NumberSource(there=10)
    ahead(source, driver_rows=10, rows=10, parts=1, part_rows=300, part_bytes=8)
    until(lambda: source.rooms != [])
    assert source.rooms[0] == Room(rows=10, parts=1, part_rows=300, bytes=MANY)


def test_what_executors_have_measured_makes_the_next_room(ahead) -> None:
    source = NumberSource(there=1000, chunk=100, ends=False)
    reader = ahead(source, driver_rows=10, rows=1000, large_bytes=8000)
    until(lambda: reader.buffered().full)
    assert source.rooms[-1].rows == 1000
    reader.note_delivery(Report(rows=100, bytes=8000))
    reader.take(1)
    until(lambda: reader.buffered().full and len(source.rooms) == 2)
    assert source.rooms[-1].rows == 100


def test_rows_behind_the_first_are_read_when_it_is_known_what_becomes_of_them(ahead) -> None:
    source = NumberSource(there=1000, chunk=10, ends=False)
    reader = ahead(source, driver_rows=1000, rows=1000, bytes_=8000, first_rows=20)
    until(lambda: reader.buffered().rows == 20)
    assert len(numbers(reader.take(1))) == 20
    time.sleep(0.05)  # a reader would have read long ago
    assert reader.buffered().rows == 0
    reader.note_delivery(Report(rows=20, bytes=160), collected_bytes=1000.0)
    until(lambda: reader.buffered().full)
    assert reader.buffered().rows == 8


def test_an_epoch_without_rows_shows_nothing(ahead) -> None:
    reader = ahead(NumberSource(there=1000, chunk=10, ends=False), driver_rows=1000, rows=1000, first_rows=20)
    until(lambda: reader.buffered().full)
    reader.take(1)
    reader.note_delivery(Report(rows=0, bytes=0))
    until(lambda: reader.buffered().full)
    assert reader.buffered().rows == 20


def test_a_limit_that_falls_makes_the_next_room_smaller(ahead) -> None:
    caps = [limits(10, 1000, 800)]
    source = NumberSource(there=100, chunk=100)
    reader = ahead(source, caps=lambda: caps[-1])
    until(lambda: reader.buffered().full)
    caps.append(limits(10, 1000, 32, large_bytes=32))
    reader.take(1)
    reader.start({})
    until(lambda: reader.buffered().full)
    assert source.rooms[-1].rows == 4
    assert numbers(reader.take(2)) == [0, 1, 2, 3]


def test_a_room_has_a_row_however_long_it_is(ahead) -> None:
    source = LongRows(there=3, ends=False, length=lambda n: 100_000)
    reader = ahead(source, driver_rows=10, bytes_=1000, large_bytes=1000)
    until(lambda: reader.buffered().full)
    reader.take(1)
    source.there = 5
    until(lambda: reader.buffered().full)
    assert source.rooms[-1].rows == 1
    assert numbers(reader.take(2)) == [3]


class EarlyReader:
    """Yields its place before each row, and nothing after the last."""

    def read(self, part: Json) -> Iterator[pa.RecordBatch | Reached]:
        assert isinstance(part, list)
        for n in range(part[0], part[1]):
            yield Reached(n)
            yield pa.RecordBatch.from_arrays([pa.array([n], pa.int64())], names=["n"])


class EarlySource(NumberSource):
    """Takes back what its reader has left."""

    capabilities = SourceCapabilities(takes_back=True)

    def reader(self) -> EarlyReader:
        return EarlyReader()

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        first = slice_.parts[0][0]
        end = place if isinstance(place, int) else first
        self._at[slice_.key] = {"next": end} if end > first else slice_.start
        if end == first:
            return None
        return Slice(slice_.node, slice_.key, slice_.start, {"next": end}, ([first, end],), end - first)


def test_a_reader_that_does_not_say_that_it_is_through_gives_each_row_once(ahead) -> None:
    reader = ahead(EarlySource(there=10, chunk=5), driver_rows=100, bytes_=20)
    rows: list[int] = []
    while not reader.finished:
        until(lambda: reader.finished or reader.buffered().rows > 0)
        rows += numbers(reader.take(1))
    assert rows == list(range(10))

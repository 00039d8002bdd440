"""Each source is read in a thread of its own, ahead of the epochs, within bounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from doubles import NumberReader, NumberSource, until

from streamling.engine.capacity import Caps
from streamling.engine.readahead import ReadAhead, Taken
from streamling.errors import SINK_FAILED, PermanentError, TransientError
from streamling.plugin.contract import Json

MANY = 1 << 30


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
        source: NumberSource, *, driver_rows: int = 10, rows: int = 100, bytes_: int = MANY, wake=lambda: None
    ) -> ReadAhead:
        caps = Caps(driver_rows, rows, bytes_, parts=2, part_rows=1)
        reader = ReadAhead("numbers", source, lambda: caps, poll_s=0.001, wake=wake)
        started.append(reader)
        reader.start({})
        return reader

    return start


def numbers(taken: Taken | None) -> list[int]:
    assert taken is not None and taken.batches is not None
    return [n for batch in taken.batches for n in batch.column(0).to_pylist()]


def test_small_offers_are_read_at_once_and_joined_per_key(ahead) -> None:
    reader = ahead(NumberSource(there=6, chunk=2, keys=("a", "b")), driver_rows=100)
    until(lambda: reader.in_hand().last)
    assert reader.in_hand().rows == 12
    taken = reader.take()
    assert [(s.key, s.start, s.end, s.rows, s.parts) for s in taken.slices] == [
        ("numbers:a", None, {"next": 6}, 6, ([0, 2], [2, 4], [4, 6])),
        ("numbers:b", None, {"next": 6}, 6, ([0, 2], [2, 4], [4, 6])),
    ]
    assert numbers(taken) == [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5]


def test_the_next_take_begins_where_the_last_one_ended(ahead) -> None:
    source = NumberSource(there=4, ends=False)
    reader = ahead(source)
    until(lambda: reader.in_hand().rows == 4)
    first = reader.take()
    source.there = 7
    until(lambda: reader.in_hand().rows == 3)
    assert reader.take().slices[0].start == first.slices[0].end
    assert reader.take() is None


def test_a_large_offer_is_kept_as_a_range(ahead) -> None:
    reader = ahead(NumberSource(there=50), driver_rows=10)
    until(lambda: reader.in_hand().rows == 50)
    taken = reader.take()
    assert taken.batches is None
    assert [(s.parts, s.rows) for s in taken.slices] == [(([0, 50],), 50)]


def test_while_a_large_offer_waits_nothing_more_is_asked_for(ahead) -> None:
    source = NumberSource(there=90, chunk=30)
    reader = ahead(source, driver_rows=10)
    until(lambda: reader.in_hand().full)
    time.sleep(0.02)
    assert len(source.rooms) == 1
    reader.take()
    until(lambda: len(source.rooms) == 2)


def test_beside_rows_in_hand_only_small_offers_fit(ahead) -> None:
    source = NumberSource(there=4, ends=False)
    reader = ahead(source, driver_rows=10, rows=100)
    until(lambda: reader.in_hand().rows == 4)
    until(lambda: source.rooms[-1].rows < 100)
    assert source.rooms[0].rows == 100
    assert source.rooms[-1].rows == 6


def test_no_more_rows_are_held_than_the_driver_takes(ahead) -> None:
    source = NumberSource(there=100, chunk=3)
    reader = ahead(source, driver_rows=10)
    until(lambda: reader.in_hand().full)
    time.sleep(0.02)
    assert reader.in_hand().rows == 10
    assert source.next("numbers:") == 10
    assert numbers(reader.take()) == list(range(10))
    until(lambda: reader.in_hand().rows == 10)
    assert numbers(reader.take()) == list(range(10, 20))


def test_reading_stops_once_the_bytes_are_used_up(ahead) -> None:
    source = NumberSource(there=100, chunk=5)  # 40 bytes an offer
    reader = ahead(source, driver_rows=100, bytes_=100)
    until(lambda: reader.in_hand().full)
    time.sleep(0.02)
    assert reader.in_hand().rows == 15


def test_an_ended_source_says_so_and_is_finished_once_all_is_taken(ahead) -> None:
    reader = ahead(NumberSource(there=3))
    until(lambda: reader.in_hand().last)
    assert not reader.finished
    reader.take()
    assert reader.finished


def test_an_idle_source_is_neither_last_nor_finished(ahead) -> None:
    source = NumberSource(there=0, ends=False)
    reader = ahead(source)
    until(lambda: len(source.rooms) > 3)
    assert reader.in_hand() == type(reader.in_hand())(0, 0.0, full=False, last=False)
    assert not reader.finished


def test_the_age_is_that_of_the_oldest_row(ahead) -> None:
    source = NumberSource(there=2, ends=False)
    reader = ahead(source)
    until(lambda: reader.in_hand().rows == 2)
    time.sleep(0.03)
    source.there = 3
    until(lambda: reader.in_hand().rows == 3)
    assert reader.in_hand().waited >= 0.03
    reader.take()
    assert reader.in_hand().waited == 0.0


def test_new_rows_and_the_end_wake_the_loop(ahead) -> None:
    woken = threading.Semaphore(0)
    source = NumberSource(there=1, ends=False)
    ahead(source, wake=woken.release)
    assert woken.acquire(timeout=2)
    assert not woken.acquire(timeout=0.02)
    source.bounded = True
    assert woken.acquire(timeout=2)


def test_a_failure_of_the_source_surfaces_in_the_loop(ahead) -> None:
    source, error = NumberSource(there=5), PermanentError(SINK_FAILED, "broken")

    def fail() -> None:
        raise error

    source.before_offer = fail
    reader = ahead(source)
    with pytest.raises(PermanentError) as caught:
        until(lambda: reader.in_hand().rows > 0)
    assert caught.value is error


def test_rows_that_do_not_fit_the_columns_surface_in_the_loop(ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: NumberReader, part: Json) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": ["not a number"]})

    monkeypatch.setattr(NumberReader, "read", read)
    reader = ahead(NumberSource(there=5))
    with pytest.raises(PermanentError, match="column 'n' does not fit"):
        until(lambda: reader.in_hand().rows > 0)


def test_a_transient_failure_is_tried_again(ahead) -> None:
    source, failures = NumberSource(there=5), [TransientError(SINK_FAILED, "not now")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    source.before_offer = fail_once
    reader = ahead(source)
    until(lambda: reader.in_hand().rows == 5)


def test_a_restart_forgets_what_was_held_and_begins_behind_the_positions(ahead) -> None:
    source = NumberSource(there=8)
    reader = ahead(source)
    until(lambda: reader.in_hand().rows == 8)
    reader.start({"numbers:": {"next": 5}})
    until(lambda: reader.in_hand().last)
    assert numbers(reader.take()) == [5, 6, 7]
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
    until(lambda: reader.in_hand().rows == 3)


def test_a_stop_reads_no_further_but_what_is_held_can_be_taken(ahead) -> None:
    source = NumberSource(there=4, ends=False)
    reader = ahead(source)
    until(lambda: reader.in_hand().rows == 4)
    reader.stop()
    source.there = 9
    time.sleep(0.01)
    assert reader.in_hand().last
    assert numbers(reader.take(only_read=True)) == [0, 1, 2, 3]
    assert reader.finished


def test_taking_only_what_was_read_leaves_a_large_offer_out(ahead) -> None:
    reader = ahead(NumberSource(there=50), driver_rows=10)
    until(lambda: reader.in_hand().rows == 50)
    reader.stop()
    assert reader.take(only_read=True) is None


def test_slices_to_be_repeated_are_read_if_they_are_few(ahead) -> None:
    reader = ahead(NumberSource(there=30, chunk=30, ends=False), driver_rows=10)
    until(lambda: reader.in_hand().rows == 30)
    (large,) = reader.take().slices
    assert reader.read((large,)).batches is None
    small = type(large)("numbers", "numbers:", None, {"next": 3}, ([0, 3],), 3)
    assert numbers(reader.read((small,))) == [0, 1, 2]


def test_a_stop_does_not_wait_for_the_pause_of_a_retry(ahead) -> None:
    source, attempts = NumberSource(there=5), []

    def fail() -> None:
        attempts.append(1)
        raise TransientError(SINK_FAILED, "not now")

    source.before_offer = fail
    reader = ahead(source)
    until(lambda: len(attempts) == 3)  # the next pause is 0.4 s
    began = time.monotonic()
    reader.stop()
    assert time.monotonic() - began < 0.2

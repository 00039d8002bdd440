"""The epoch loop delivers every row once, whatever happens between two of its steps."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from streamling.connector import (
    BatchPolicy,
    Counted,
    Epoch,
    Guarantee,
    Json,
    Offer,
    Room,
    Slice,
    SourceCapabilities,
)
from streamling.engine.data.results import EpochTooLarge
from streamling.engine.protocol.loop import EpochLoop
from streamling.engine.protocol.pending import Journal
from streamling.engine.protocol.state import MemoryState
from streamling.errors import SINK_FAILED, STATE_UNREADABLE, Fenced, PermanentError, TransientError
from support.doubles import Crash, LedgerSink, NumberReader, NumberSource, Rig, until

KEY = "numbers:"


def rig(there: int = 25, sinks: Mapping[str, LedgerSink] | None = None, **more: object) -> Rig:
    """One source of numbers, in epochs of at most ten, and by default one sink that takes them exactly once."""
    chunk, ends = more.pop("chunk", 10), more.pop("ends", True)
    source = NumberSource(there=there, chunk=chunk, ends=ends)
    return Rig({"numbers": source}, sinks if sinks is not None else {"out": LedgerSink()}, **more)


def crash(epoch: Epoch) -> None:
    raise Crash


# A run from its start to its end


def test_a_run_delivers_every_row_in_order_and_ends_by_itself() -> None:
    r = rig(25)
    loop = r.run()
    assert r.sinks["out"].rows == list(range(25))
    assert loop.rows == 25
    assert loop.epochs == len(r.sinks["out"].epochs) >= 3


def test_at_the_end_the_positions_are_stored_and_nothing_is_pending() -> None:
    r = rig(25)
    r.run()
    assert r.store.get(KEY) == {"next": 25}
    assert r.left() == []


def test_a_source_is_told_what_is_durable() -> None:
    r = rig(25)
    r.run()
    told = r.sources["numbers"].told
    assert sum(s.rows for s in told) == 25
    assert told[-1].end == {"next": 25}


def test_epochs_have_rising_numbers_and_ids_of_their_own_also_over_a_restart() -> None:
    r = rig(15)
    r.run()
    r.sources["numbers"].there = 30
    r.run()
    epochs = r.sinks["out"].epochs
    assert [e.number for e in epochs] == list(range(1, len(epochs) + 1))
    assert len({e.id for e in epochs}) == len({e.seed for e in epochs}) == len(epochs)


def test_a_second_run_goes_on_where_the_first_ended() -> None:
    r = rig(15)
    r.run()
    r.sources["numbers"].there = 18
    r.run()
    assert r.sinks["out"].rows == list(range(18))
    assert r.sources["numbers"].opened[1][KEY] == {"next": 15}


def test_every_sink_gets_every_row() -> None:
    r = rig(25, {"one": LedgerSink(), "two": LedgerSink()})
    r.run()
    assert r.sinks["one"].rows == r.sinks["two"].rows == list(range(25))


def test_a_run_ends_only_when_all_sources_have() -> None:
    sources = {"one": NumberSource("one", there=5), "two": NumberSource("two", there=35, chunk=10)}
    r = Rig(sources, {"out": LedgerSink()})
    r.run()
    assert sorted(r.sinks["out"].rows) == sorted([*range(5), *range(35)])
    assert r.store.get("one:") == {"next": 5}
    assert r.store.get("two:") == {"next": 35}


def test_a_large_offer_is_delivered_too() -> None:
    r = rig(500, chunk=500, driver_rows=0)
    assert r.run().rows == 500
    assert r.sinks["out"].rows == list(range(500))


def test_an_empty_source_ends_without_an_epoch() -> None:
    r = rig(0)
    assert r.run().epochs == 0
    assert r.store.get(KEY) is None


def test_the_record_is_there_while_a_sink_writes() -> None:
    r, seen = rig(5), []
    r.sinks["out"].before_commit = lambda epoch: seen.append((r.left() == [epoch], r.store.get(KEY)))
    r.run()
    assert seen == [(True, None)]


def test_sinks_that_are_all_at_least_once_need_no_record() -> None:
    r = rig(25, {"out": LedgerSink(Guarantee.AT_LEAST_ONCE)})
    seen: set[str] = set()
    r.sinks["out"].before_commit = lambda epoch: seen.update(r.store.items())
    r.run()
    assert r.sinks["out"].rows == list(range(25))
    assert not [key for key in seen if key.startswith("__pending")]
    assert r.store.get(KEY) == {"next": 25}


def test_the_first_error_of_a_sink_ends_the_run_and_stores_no_position() -> None:
    r = rig(5)
    error = PermanentError(SINK_FAILED, "no")

    def refuse(epoch: Epoch) -> None:
        raise error

    r.sinks["out"].before_commit = refuse
    with pytest.raises(PermanentError) as caught:
        r.run()
    assert caught.value is error
    assert r.store.get(KEY) is None
    assert all(frames.released for frames in r.dataflow.made)


def test_the_first_error_of_a_source_ends_the_run() -> None:
    r = rig(5)
    r.sources["numbers"].before_offer = lambda: (_ for _ in ()).throw(PermanentError(SINK_FAILED, "unreadable"))
    with pytest.raises(PermanentError, match="unreadable"):
        r.run()


def test_a_state_backend_that_recovers_is_waited_for() -> None:
    class Stumbling(MemoryState):
        failures = 1

        def exchange(self, expected, values, removed=()) -> bool:
            if KEY in expected and self.failures:
                self.failures -= 1
                raise TransientError(STATE_UNREADABLE, "locked")
            return super().exchange(expected, values, removed)

    r = rig(5, store=Stumbling())
    r.run()
    assert r.store.failures == 0
    assert r.store.get(KEY) == {"next": 5}


# Stops


def stopped(r: Rig, *, drains: bool) -> None:
    """Run until rows are buffered that no epoch has taken, then request a stop."""
    thread = threading.Thread(target=r.run, daemon=True)
    thread.start()
    until(lambda: len(r.sources["numbers"].rooms) > 5)
    r.stop.request(drains=drains)
    thread.join(5)
    assert not thread.is_alive()


LATER = BatchPolicy(rows=1000, seconds=1000)


def test_a_stop_with_drain_writes_and_records_what_was_read() -> None:
    r = rig(7, {"out": LedgerSink(batch=LATER)}, ends=False)
    stopped(r, drains=True)
    assert r.sinks["out"].rows == list(range(7))
    assert r.store.get(KEY) == {"next": 7}


def test_a_stop_without_drain_leaves_it_for_the_next_run() -> None:
    r = rig(7, {"out": LedgerSink(batch=LATER)}, ends=False)
    stopped(r, drains=False)
    assert r.sinks["out"].rows == []
    assert r.store.get(KEY) is None


def test_an_idle_run_can_be_stopped() -> None:
    r = rig(0, ends=False)
    stopped(r, drains=True)
    assert r.sinks["out"].epochs == []


def test_a_record_limit_ends_the_run_and_leaves_no_gap() -> None:
    r = rig(100_000, limit=15, chunk=4)
    loop = r.run()
    rows = r.sinks["out"].rows
    assert 15 <= len(rows) < 60
    assert rows == list(range(len(rows)))
    assert r.store.get(KEY) == {"next": loop.rows}


# Recovery


MANY = 1 << 16
"""Rows of half a megabyte."""


def large_rig(sinks: Mapping[str, LedgerSink] | None = None, **more: object) -> Rig:
    """Rows so large that their bytes matter, all of them in the first epoch."""
    return rig(MANY, sinks, chunk=MANY, driver_rows=MANY, **more)


def test_an_epoch_that_no_sink_has_is_dropped_and_cut_anew_smaller() -> None:
    r = large_rig()
    r.sinks["out"].before_commit = crash
    r.crash()
    (left,) = r.left()
    assert left.rows == MANY
    r.sources["numbers"].rooms.clear()
    r.run()
    assert r.sources["numbers"].rooms[0].rows == left.rows // 2
    assert r.sinks["out"].rows == list(range(MANY))
    assert left.id not in {e.id for e in r.sinks["out"].epochs}
    assert r.left() == []


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_an_epoch_whose_requests_have_keys_comes_again_as_it_was(guarantee: Guarantee) -> None:
    """Also if no sink has it, and if its replay crashes too. But not forever."""
    r = large_rig({"out": LedgerSink(guarantee)}, same_rows=True)
    tried = set()
    for _ in range(11):
        r.sinks["out"].before_commit = crash
        r.crash()
        tried |= {str([(s.start, s.end) for s in epoch.slices]) for epoch in r.left()}
    assert len(tried) == 1
    r.run()
    sizes = [epoch.rows for epoch in r.sinks["out"].epochs]
    assert sizes[0] == MANY // 2 and r.sinks["out"].rows == list(range(MANY)) and r.left() == []


def test_an_epoch_whose_requests_have_keys_is_cut_if_it_is_too_large() -> None:
    r = large_rig({"out": LedgerSink(Guarantee.AT_LEAST_ONCE)}, same_rows=True)
    r.dataflow.before_compute = too_large_from(MANY // 4)
    r.run()
    assert r.sinks["out"].rows == list(range(MANY)) and r.left() == []


def test_an_epoch_that_crashes_again_and_again_gets_smaller_until_its_size_can_not_be_the_reason() -> None:
    r, sizes = large_rig(), []
    for _ in range(5):
        r.sinks["out"].before_commit = crash
        r.crash()
        sizes.append(r.left()[0].rows)
    assert sizes == [MANY, MANY // 2, MANY // 4, MANY // 8, MANY // 8]


def test_after_a_crash_epochs_do_not_grow_back_at_once() -> None:
    r = large_rig()
    r.sinks["out"].before_commit = crash
    r.crash()
    r.sources["numbers"].there = 3 * MANY
    r.run()
    sizes = [epoch.rows for epoch in r.sinks["out"].epochs]
    assert sizes[0] == MANY // 2
    assert max(sizes[:4]) < MANY
    assert r.sinks["out"].rows == list(range(3 * MANY))


def test_an_epoch_that_one_sink_has_is_repeated_as_it_was_for_the_others() -> None:
    r = rig(25, {"first": LedgerSink(), "second": LedgerSink()})
    r.sinks["second"].before_commit = crash
    r.crash()
    (left,) = r.left()
    assert r.sinks["first"].rows and not r.sinks["second"].rows
    r.dataflow.calls.clear()
    r.run()
    repeated, wanted = r.dataflow.calls[0]
    assert wanted == ["second", "first"], "rows of the first are counted"
    assert repeated.id != left.id
    assert replace(repeated, id=left.id) == left, "same number, now, seed and slices"
    assert r.sinks["first"].rows == r.sinks["second"].rows == list(range(25))
    assert len({e.id for e in r.sinks["first"].epochs}) == len(r.sinks["first"].epochs)
    for node in ("numbers", "first", "second"):
        assert sum(r.counted(node)) == 25, f"each row is counted by one process, at {node}: {r.counted(node)}"


def delivered_and_not_finalized() -> Rig:
    """8 rows are in the sink; the process was killed before it could finalize their epoch."""
    r = rig(8)
    exchange = r.store.exchange

    def die_at_finalize(expected, values, removed=()) -> bool:
        if KEY in values:
            raise Crash
        return exchange(expected, values, removed)

    r.store.exchange = die_at_finalize
    r.crash()
    r.store.exchange = exchange
    assert r.sinks["out"].rows == list(range(8))
    r.dataflow.calls.clear()
    return r


def assert_finalized(r: Rig, loop: EpochLoop) -> None:
    assert r.sinks["out"].rows == list(range(8))
    assert len(r.sinks["out"].epochs) == 1, "it was not written again"
    assert r.store.get(KEY) == {"next": 8}
    assert (loop.epochs, [s.end for s in r.sources["numbers"].told]) == (1, [{"next": 8}])


def test_an_epoch_that_all_sinks_have_is_counted_and_finalized() -> None:
    r = delivered_and_not_finalized()
    assert_finalized(r, r.run())
    assert r.counted("numbers") == r.counted("out") == [0, 8]
    assert r.runs[1].meter("out").rows_in == 8


def test_rows_of_a_part_that_another_process_has_taken_over_are_counted_by_that_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both sources were in the epoch that the first sink has; one of them moves before the second sink has it."""
    one, two = LedgerSink(), LedgerSink()
    monkeypatch.setattr("streamling.engine.protocol.loop.closes", lambda buffered, *_: buffered.rows == 10)
    sources = {name: NumberSource(name, there=5) for name in ("a", "b")}
    r = Rig(sources, {"one": one, "two": two})

    def move(epoch: Epoch) -> None:
        assert {s.node for s in epoch.slices} == {"a", "b"}
        two.before_commit = lambda epoch: None
        assert set(one.positions) == {"a:", "b:"}
        records = [key for key in r.store.items() if key.startswith("__pending") and "b:" in key]
        assert records
        r.store.exchange({}, {"b:": {"next": 5}}, records)
        two.positions["b:"] = {"next": 5}
        raise Fenced(SINK_FAILED, "another process has it")

    two.before_commit = move
    r.run()
    assert (r.counted("one"), r.counted("two")) == ([5], [5])
    assert r.runs[0].meter("one").rows_in == 5


def test_rows_that_cannot_be_computed_again_are_not_counted() -> None:
    r = delivered_and_not_finalized()
    r.dataflow.recountable = False
    assert_finalized(r, r.run())
    assert r.dataflow.calls == []
    assert r.counted("out") == [0, 0]


def test_rows_of_another_pipeline_are_not_counted() -> None:
    r = delivered_and_not_finalized()
    r.column = "id + 1"
    assert_finalized(r, r.run())
    assert r.dataflow.calls == []


def test_an_epoch_that_all_sinks_have_is_finalized_though_its_rows_cannot_be_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = delivered_and_not_finalized()

    def fail() -> None:
        raise PermanentError(SINK_FAILED, "the file is gone")

    r.dataflow.before_recount = fail
    assert_finalized(r, r.run())
    assert r.counted("out") == [0, 0]
    assert "the rows of sink 'out' in epoch 1, which it has, are not counted: the file is gone" in caplog.text


def test_a_sink_that_cannot_tell_gets_the_epoch_again() -> None:
    r = rig(8, {"sure": LedgerSink(), "unsure": LedgerSink(Guarantee.AT_LEAST_ONCE)})
    r.sinks["unsure"].before_commit = crash
    r.crash()
    r.dataflow.calls.clear()
    r.run()
    assert [wanted for _, wanted in r.dataflow.calls] == [["unsure", "sure"]]
    assert r.sinks["sure"].rows == r.sinks["unsure"].rows == list(range(8))


@pytest.mark.parametrize("order", [("sure", "unsure"), ("unsure", "sure")])
def test_a_sink_that_cannot_tell_does_not_keep_an_epoch_from_being_cut_anew(order: tuple[str, str]) -> None:
    """It is not asked, and an epoch that was too large for the process is not repeated in the same size."""
    sinks = {"sure": LedgerSink(), "unsure": LedgerSink(Guarantee.AT_LEAST_ONCE)}
    r = large_rig({name: sinks[name] for name in order})
    sinks["sure"].before_commit = crash
    r.crash()
    (left,) = r.left()
    written_before = len(sinks["unsure"].rows)
    asked: list[int] = []
    sinks["unsure"].before_answer = lambda: asked.append(1)
    r.sources["numbers"].rooms.clear()
    r.dataflow.calls.clear()
    r.run()
    assert r.sources["numbers"].rooms[0].rows == left.rows // 2
    assert all(epoch.rows < left.rows and wanted == list(order) for epoch, wanted in r.dataflow.calls)
    assert asked == []
    assert sinks["sure"].rows == list(range(MANY))
    assert sinks["unsure"].rows[written_before:] == list(range(MANY))
    assert r.left() == []


def test_rows_that_executors_have_read_are_repeated_by_executors_and_those_of_the_driver_by_the_driver() -> None:
    for before, after in ((0, 100), (100, 0)):
        r = rig(8, {"first": LedgerSink(), "second": LedgerSink()}, chunk=8, driver_rows=before)
        r.sinks["second"].before_commit = crash
        r.crash()
        r.driver_rows = after
        r.dataflow.intakes.clear()
        r.run()
        assert r.dataflow.intakes[0]["numbers"].large is (before == 0)
        assert r.sinks["second"].rows == list(range(8))


@pytest.mark.parametrize("changed", [False, True])
def test_repeating_an_epoch_with_a_changed_pipeline_is_warned_of(
    changed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    r = rig(8, {"first": LedgerSink(), "second": LedgerSink()})
    r.sinks["second"].before_commit = crash
    r.crash()
    r.column = "id + 1" if changed else "id"
    caplog.set_level(logging.WARNING)
    r.run()
    assert ("the pipeline has changed since epoch 1" in caplog.text) is changed
    assert r.store.get(KEY) == {"next": 8}


def test_an_epoch_that_is_cut_anew_can_not_come_late() -> None:
    r = rig(25)
    r.sinks["out"].before_commit = crash
    r.crash()
    (left,) = r.left()
    r.run()
    assert r.sinks["out"].abandoned == {left.id}


def test_an_epoch_that_comes_late_while_it_is_abandoned_is_not_cut_anew() -> None:
    r = rig(8, {"first": LedgerSink(), "second": LedgerSink()})
    first = r.sinks["first"]
    first.before_commit = crash
    r.crash()
    answers = []

    def come_late() -> None:
        answers.append(1)
        if len(answers) == 2:  # the answer was no; now the epoch is abandoned
            first.rows, first.positions = list(range(8)), {KEY: {"next": 8}}

    first.before_answer = come_late
    r.dataflow.calls.clear()
    r.run()
    assert [wanted for _, wanted in r.dataflow.calls] == [["second", "first"]], "rows of the first are counted"
    assert first.rows == r.sinks["second"].rows == list(range(8))


def test_a_sink_that_is_away_when_it_is_asked_for_an_old_epoch_is_asked_again() -> None:
    r = rig(8, {"first": LedgerSink(), "second": LedgerSink()})
    for sink in r.sinks.values():
        sink.before_commit = crash
    r.crash()
    away = iter([True, False, True])

    def answer() -> None:
        if next(away, False):
            raise TransientError(SINK_FAILED, "not now")

    r.sinks["first"].before_answer = answer
    r.run()
    assert next(away, None) is None
    assert r.sinks["first"].rows == r.sinks["second"].rows == list(range(8))


def test_an_epoch_of_a_source_that_is_gone_waits_until_it_comes_back() -> None:
    store, sink = MemoryState(), LedgerSink()
    before = Rig({"gone": NumberSource("gone", there=3)}, {"out": sink}, store=store)
    sink.before_commit = crash
    before.crash()
    Rig({"numbers": NumberSource(there=8)}, {"out": sink}, store=store).run()
    assert (len(before.left()), store.get("gone:"), store.get(KEY)) == (1, None, {"next": 8})
    before.run()
    assert (before.left(), store.get("gone:")) == ([], {"next": 3})
    assert sorted(sink.rows) == sorted([*range(8), *range(3)])


def test_removing_one_of_two_sources_after_a_crash_does_not_touch_the_other() -> None:
    sink = LedgerSink(batch=LATER)
    both = Rig({"one": NumberSource("one", there=5), "two": NumberSource("two", there=5)}, {"out": sink})
    exchange = both.store.exchange

    def die_at_finalize(expected, values, removed=()) -> bool:
        if "one:" in values:
            raise Crash
        return exchange(expected, values, removed)

    both.store.exchange = die_at_finalize
    both.crash()
    both.store.exchange = exchange
    sink.rows.clear()
    Rig({"one": NumberSource("one", there=9)}, {"out": sink}, store=both.store).run()
    assert sink.rows == [5, 6, 7, 8]


# Epochs that are too large for the driver


def too_large_from(rows: int) -> Callable[[Epoch, int | None], None]:
    def refuse(epoch: Epoch, max_bytes: int | None) -> None:
        if max_bytes is not None and epoch.rows >= rows:
            raise EpochTooLarge("numbers", "its rows are more than 1 MB")

    return refuse


def test_an_epoch_that_is_too_large_comes_again_in_smaller_ones_in_the_same_run() -> None:
    r = large_rig()
    r.dataflow.before_compute = too_large_from(MANY // 4)
    loop = r.run()
    tried = [epoch for epoch, _ in r.dataflow.calls]
    given_up = [epoch for epoch in tried if epoch.rows >= MANY // 4]
    assert [epoch.rows for epoch in given_up[:3]] == [MANY, MANY // 2, MANY // 4]
    out = r.sinks["out"]
    assert out.rows == list(range(MANY))
    assert loop.rows == MANY
    assert out.aborted == given_up
    assert out.abandoned == {epoch.id for epoch in given_up}, "it cannot come late"
    assert r.left() == []
    assert r.store.get(KEY) == {"next": MANY}


def test_an_epoch_that_turns_out_too_large_while_it_is_written_is_given_up_too() -> None:
    r, refused = large_rig(), []

    def refuse(epoch: Epoch) -> None:
        if epoch.rows > 20_000:
            refused.append(epoch)
            raise EpochTooLarge("numbers", "its rows are more than 1 MB")

    r.sinks["out"].before_commit = refuse
    r.run()
    assert refused
    assert r.sinks["out"].rows == list(range(MANY))
    assert all(results.released for results in r.dataflow.made)


def test_what_one_sink_has_of_an_epoch_that_is_too_large_is_repeated_as_it_was_for_the_others() -> None:
    """It cannot be cut any more, so it has no limit."""
    r = large_rig({"first": LedgerSink(), "second": LedgerSink()})
    first, second = r.sinks["first"], r.sinks["second"]

    def refuse(epoch: Epoch) -> None:
        if epoch.rows >= MANY and r.dataflow.limits[-1] is not None:
            raise EpochTooLarge("numbers", "its rows are more than 1 MB")

    second.before_commit = refuse
    r.sources["numbers"].there = 3 * MANY
    loop = r.run()
    (tried, _), (repeated, wanted) = r.dataflow.calls[:2]
    assert (wanted, r.dataflow.limits[1]) == (["second", "first"], None)
    assert (repeated.slices, repeated.seed, repeated.now_us) == (tried.slices, tried.seed, tried.now_us)
    assert first.rows == second.rows == list(range(3 * MANY))
    assert loop.rows == 3 * MANY
    assert all(epoch.rows < MANY for epoch in first.epochs[1:4]), "the next ones are smaller"
    assert r.left() == []
    assert r.counted("first") == r.counted("second") == r.counted("numbers") == [3 * MANY]


def test_sinks_without_a_record_get_a_too_large_epoch_in_smaller_ones_as_well() -> None:
    r = large_rig({"out": LedgerSink(Guarantee.AT_LEAST_ONCE)})
    r.dataflow.before_compute = too_large_from(MANY // 4)
    loop = r.run()
    assert r.sinks["out"].rows == list(range(MANY))
    assert (loop.rows, r.store.get(KEY)) == (MANY, {"next": MANY})
    assert max(epoch.rows for epoch in r.sinks["out"].epochs) < MANY // 4


def test_an_at_least_once_sink_that_has_a_too_large_epoch_may_get_its_rows_again() -> None:
    sinks = {"unsure": LedgerSink(Guarantee.AT_LEAST_ONCE), "sure": LedgerSink()}
    r = large_rig(sinks)

    def refuse(epoch: Epoch) -> None:
        if epoch.rows >= MANY:
            raise EpochTooLarge("numbers", "its rows are more than 1 MB")

    sinks["sure"].before_commit = refuse
    r.run()
    assert sinks["sure"].rows == list(range(MANY))
    assert sinks["unsure"].rows == [*range(MANY), *range(MANY)]
    assert None not in r.dataflow.limits, "nothing was repeated as it was"


def test_after_an_epoch_that_was_too_large_the_next_ones_stay_smaller() -> None:
    """Above a megabyte it takes many good epochs to reach the size again that was too large."""
    r = rig(600_000, chunk=200_000, driver_rows=200_000)
    r.dataflow.before_compute = too_large_from(200_000)
    r.run()
    sizes = [epoch.rows for epoch, _ in r.dataflow.calls]
    assert sizes[:2] == [200_000, 100_000]
    assert max(sizes[1:8]) < 200_000, "whatever the reading thread has ready for each of them"
    assert r.sinks["out"].rows == list(range(600_000))


class Handed(NumberSource):
    """Hands its rows over: they cannot be read a second time."""

    capabilities = SourceCapabilities(replayable=False)

    def offer(self, room: Room) -> Offer | None:
        offer = super().offer(room)
        if offer is None:
            return None
        return Offer(batches=tuple(b for s in offer.slices for b in NumberReader().read(s.parts[0])))


def test_rows_that_another_source_has_handed_over_survive_an_epoch_that_is_cut_smaller() -> None:
    """They are buffered while the epoch is computed, and are not among those that are read again."""
    numbers, handed = NumberSource(there=MANY, chunk=MANY), Handed("handed", there=0, ends=False)
    sink = LedgerSink(Guarantee.AT_LEAST_ONCE)  # its ledger would take rows without slices for rows that it has
    r = Rig({"numbers": numbers, "handed": handed}, {"out": sink}, driver_rows=MANY)

    def hand_over_and_refuse(epoch: Epoch, most_bytes: int | None) -> None:
        if len(r.dataflow.calls) == 1:
            assert epoch.loose_rows == 0
            handed.there = 40
            until(lambda: handed.next(handed.keys[0]) == 40)
            handed.ends = True
            raise EpochTooLarge("numbers", "its rows are more than 1 MB")

    r.dataflow.before_compute = hand_over_and_refuse
    r.run()
    assert len(r.dataflow.calls) > 1
    assert Counter(sink.rows) == Counter([*range(MANY), *range(40)])


def test_an_epoch_of_one_row_and_one_that_cannot_be_read_again_have_no_limit() -> None:
    one = rig(1)
    one.run()
    assert one.dataflow.limits == [None]

    handed = Rig({"numbers": Handed(there=25)}, {"out": LedgerSink(Guarantee.AT_LEAST_ONCE)}, driver_rows=100)
    handed.run()
    assert handed.sinks["out"].rows == list(range(25))
    assert set(handed.dataflow.limits) == {None}
    many = rig(25)
    many.run()
    assert None not in many.dataflow.limits


@pytest.mark.parametrize("drains", [True, False])
def test_a_stop_while_an_epoch_is_cut_smaller_leaves_no_gap(drains: bool) -> None:
    r = large_rig()

    def refuse(epoch: Epoch, max_bytes: int | None) -> None:
        r.stop.request(drains=drains)
        too_large_from(MANY // 4)(epoch, max_bytes)

    r.dataflow.before_compute = refuse
    r.run()
    rows = r.sinks["out"].rows
    assert rows == list(range(len(rows)))
    assert r.store.get(KEY) == ({"next": len(rows)} if rows else None)
    assert r.left() == []


# Other owners


def other_owner_moves(r: Rig, end: int) -> None:
    """The state after another process has delivered the numbers below `end`."""
    pending = [key for key in r.store.items() if key.startswith("__pending")]
    r.store.exchange({}, {KEY: {"next": end}}, pending)
    r.sinks["out"].positions[KEY] = {"next": end}
    r.sinks["out"].rows[:] = range(end)


def test_a_fenced_epoch_is_abandoned_and_reading_goes_on_from_the_new_positions() -> None:
    r, fenced = rig(25), []

    def once(epoch: Epoch) -> None:
        if not fenced:
            fenced.append(epoch)
            other_owner_moves(r, 4)

    r.sinks["out"].before_commit = once
    r.run()
    assert r.sinks["out"].aborted == fenced
    assert r.sinks["out"].rows == list(range(25))
    assert [opened.get(KEY) for opened in r.sources["numbers"].opened] == [None, {"next": 4}]


def test_an_owner_that_is_late_to_finalize_moves_nothing() -> None:
    r = rig(25, {"out": LedgerSink(Guarantee.AT_LEAST_ONCE)})

    def once(epoch: Epoch) -> None:
        r.sinks["out"].before_commit = lambda epoch: None
        r.store.put({KEY: {"next": 20}})

    r.sinks["out"].before_commit = once
    loop = r.run()
    assert r.store.get(KEY) == {"next": 25}
    assert r.sources["numbers"].opened[1][KEY] == {"next": 20}
    assert loop.rows == 5


def test_the_record_of_an_owner_that_does_not_move_is_taken_over() -> None:
    r = rig(25)
    theirs = Epoch("theirs", 1, "app", "g", 0, 0, (Slice("numbers", KEY, None, {"next": 4}, ([0, 4],), 4),))

    def appear() -> None:
        r.sources["numbers"].before_offer = lambda: None
        Journal(r.store, recording=True).record(theirs, "plan")

    r.sources["numbers"].before_offer = appear
    r.run()
    assert r.sinks["out"].rows == list(range(25))
    assert r.left() == []
    assert len(r.sources["numbers"].opened) == 2


def test_being_fenced_while_nobody_moves_ends_the_run_with_advice() -> None:
    r, attempts = rig(25, {"out": LedgerSink(Guarantee.AT_LEAST_ONCE)}), []

    def fence(epoch: Epoch) -> None:
        attempts.append(epoch)
        raise Fenced(SINK_FAILED, "the target is ahead", node="out")

    r.sinks["out"].before_commit = fence
    with pytest.raises(PermanentError) as caught:
        r.run()
    assert (caught.value.code, caught.value.node) == ("STATE_MOVED", "out")
    assert "the target or the state has lost its last commits" in caught.value.message
    assert "`streamling state rewind --to out`" in (caught.value.hint or "")
    assert len(attempts) == 4


def test_a_state_older_than_its_target_ends_the_run_with_advice() -> None:
    r = rig(25)
    r.sinks["out"].positions[KEY] = {"next": 7}
    with pytest.raises(PermanentError) as caught:
        r.run()
    assert "streamling state rewind" in (caught.value.hint or "")


def test_a_record_that_its_owner_finishes_while_we_settle_it_is_no_error() -> None:
    r = rig(25)
    slice_ = Slice("numbers", KEY, None, {"next": 4}, ([0, 4],), 4)
    Journal(r.store, recording=True).record(Epoch("theirs", 1, "app", "g", 0, 0, (slice_,)), "plan")

    def finish() -> None:
        r.sinks["out"].before_answer = lambda: None
        other_owner_moves(r, 4)

    def finish_after_the_answer() -> None:
        # The first answer is NO; then the owner is faster than our drop.
        exchange = r.store.exchange

        def late(expected, values, removed=()) -> bool:
            r.store.exchange = exchange
            finish()
            return exchange(expected, values, removed)

        r.store.exchange = late

    r.sinks["out"].before_answer = finish_after_the_answer
    r.run()
    assert r.sinks["out"].rows == list(range(25))


def test_our_own_record_is_not_waited_for() -> None:
    r, began = rig(25, takeover_ms=5000), []

    def once(epoch: Epoch) -> None:
        r.sinks["out"].before_commit = lambda epoch: began.append(time.monotonic())
        began.append(time.monotonic())
        raise Fenced(SINK_FAILED, "the target is ahead")

    r.sinks["out"].before_commit = once
    r.run()
    assert began[1] - began[0] < 4


# A slice without rows


def test_a_slice_without_rows_moves_the_position_and_does_not_keep_the_run_open() -> None:
    class Empty(NumberSource):
        def offer(self, room: Room) -> Offer | None:
            if self.next(KEY):
                return None
            self._at[KEY] = end = {"next": self.there}
            empty: tuple[Json, ...] = ([0, 0],)
            return Offer((Slice("numbers", KEY, None, end, empty, 0),))

    r = Rig({"numbers": Empty(there=1)}, {"out": LedgerSink()})
    thread = threading.Thread(target=r.run, daemon=True)
    thread.start()
    thread.join(10)
    hangs = thread.is_alive()
    r.stop.request(drains=False)
    thread.join()
    assert not hangs


class CountingReader(NumberReader):
    def read(self, part: Json) -> Iterator[pa.RecordBatch | Counted]:
        yield Counted("skipped", 2)
        yield from super().read(part)
        yield Counted("skipped", 1)


class CountingSource(NumberSource):
    def __init__(self, **more: int) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        self.counts: list[Mapping[str, int]] = []

    def reader(self) -> CountingReader:
        return CountingReader()

    def count(self, counts: Mapping[str, int]) -> None:
        self.counts.append(counts)


def test_a_source_hears_what_its_readers_have_counted() -> None:
    source = CountingSource(there=6, chunk=3)
    r = Rig({"numbers": source}, {"out": LedgerSink(batch=LATER)})
    r.run()
    assert r.sinks["out"].rows == list(range(6))
    assert source.counts == [{"skipped": 6}]

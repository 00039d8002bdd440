"""Epochs start small, grow when there is more to read than the driver computes, and shrink when one was too large."""

from __future__ import annotations

import threading

import pytest

from streamling.connector import Epoch
from streamling.engine.data.capacity import Capacity
from streamling.spec.settings import Settings, blocks
from support.doubles import StubWorkers, until

MB = 1 << 20
LIMITS = blocks.EpochSettings(driver_rows=100, rows=10_000, collect_rows=1_000, bytes=32 * MB)


def capacity(
    *,
    limits: blocks.EpochSettings = LIMITS,
    collects: bool = False,
    direct: bool = False,
    limit: int | None = None,
    sources: int = 1,
    start=lambda: None,
    cores: int = 4,
) -> Capacity:
    settings = Settings(epoch=limits, record_batch_size=50)
    return Capacity(
        settings,
        collects=collects,
        direct=direct,
        limit=limit,
        sources=sources,
        start_workers=StubWorkers(start).start_in_background,
        count_cores=lambda: cores,
    )


def epoch_of(size: int) -> Epoch:
    """An epoch whose largest source gave so many bytes."""
    return Epoch("e", 1, "app", "gen", 0, 0, (), bytes=size)


def grown(capacity: Capacity) -> int:
    capacity.after_epoch(100)
    until(lambda: capacity.caps().rows > 100)
    return capacity.caps().rows


def test_the_first_epoch_is_what_the_driver_takes() -> None:
    caps = capacity().caps()
    assert (caps.rows, caps.driver_rows, caps.bytes) == (100, 100, 32 * MB)
    assert caps.parts == 1


def test_a_full_epoch_makes_room_for_large_ones_once_the_workers_are_warm() -> None:
    warm = threading.Event()
    growing = capacity(start=lambda: warm.wait(5))
    growing.after_epoch(100)
    assert growing.caps().rows == 100
    warm.set()
    until(lambda: growing.caps().rows == 10_000)


def test_rows_that_nothing_computes_are_read_by_the_driver_and_start_no_workers() -> None:
    started: list[int] = []
    limits = blocks.EpochSettings(rows=1_000_000, collect_rows=300_000)
    direct = capacity(limits=limits, collects=True, direct=True, start=lambda: started.append(1))
    direct.note_waiting(10_000_000)
    direct.after_epoch(300_000)
    assert (direct.caps().driver_rows, direct.caps().rows) == (300_000, 300_000)
    assert started == []


def test_a_limit_of_the_driver_that_is_set_holds_for_rows_that_nothing_computes() -> None:
    assert capacity(collects=True, direct=True).caps().driver_rows == 100


def test_a_small_epoch_starts_no_workers() -> None:
    started: list[int] = []
    small = capacity(start=lambda: started.append(1))
    small.after_epoch(99)
    assert small.caps().rows == 100
    assert started == []


def test_rows_that_wait_at_a_source_start_workers_before_the_first_epoch_is_done() -> None:
    growing = capacity()
    growing.note_waiting(100)
    assert growing.caps().rows == 100
    growing.note_waiting(101)
    until(lambda: growing.caps().rows == 10_000)


def test_while_workers_start_the_cores_are_theirs_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = threading.Event()
    growing = capacity(start=lambda: warm.wait(5))
    assert not growing.starting_workers
    growing.note_waiting(101)
    assert growing.starting_workers
    warm.set()
    until(lambda: not growing.starting_workers)
    assert growing.caps().rows == 10_000
    monkeypatch.setattr("streamling.engine.data.capacity._LONGEST_PAUSE_S", 0.01)
    slow = capacity(start=lambda: threading.Event().wait(1))
    slow.note_waiting(101)
    until(lambda: not slow.starting_workers)
    assert slow.caps().rows == 100


def test_workers_are_started_once() -> None:
    started: list[int] = []
    growing = capacity(start=lambda: started.append(1))
    assert grown(growing) == 10_000
    growing.after_epoch(10_000)
    growing.note_waiting(10_000)
    assert started == [1]


def test_if_workers_cannot_be_started_epochs_stay_small() -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise RuntimeError("no fork today")

    growing = capacity(start=fail)
    growing.after_epoch(100)
    assert failed.wait(2)
    assert growing.caps().rows == 100


def test_what_the_driver_has_to_collect_is_bounded_by_itself() -> None:
    assert grown(capacity(collects=True)) == 1_000


def test_with_no_rows_for_the_driver_everything_is_large_from_the_start() -> None:
    assert capacity(limits=blocks.EpochSettings(driver_rows=0, rows=10_000)).caps().rows == 10_000


def test_large_epochs_are_cut_into_a_part_for_every_core() -> None:
    growing = capacity(cores=7)
    grown(growing)
    assert growing.caps().parts == 7


@pytest.mark.parametrize(("collects", "large", "part"), [(True, 32 * MB, 16 * MB), (False, 512 * MB, None)])
def test_rows_that_nobody_collects_may_be_more_bytes(collects: bool, large: int, part: int | None) -> None:
    caps = capacity(collects=collects).caps()
    assert (caps.bytes, caps.large_bytes, caps.part_bytes) == (32 * MB, large, part)


def test_after_a_crash_the_next_epoch_has_half_the_bytes() -> None:
    shrinking = capacity()
    for size, expected in ((8 * MB, 4 * MB), (4 * MB, 2 * MB), (1 * MB, MB // 2)):
        shrinking.shrink(epoch_of(size), crashed=True)
        assert (shrinking.caps().bytes, shrinking.caps().large_bytes) == (expected, expected)


def test_the_rows_of_an_epoch_are_not_limited_by_a_crash() -> None:
    """Many short rows need no more memory than a few long ones."""
    shrinking = capacity()
    shrinking.shrink(epoch_of(8 * MB), crashed=True)
    assert shrinking.caps().rows == 100


def test_a_crash_never_makes_room() -> None:
    shrinking = capacity()
    shrinking.shrink(epoch_of(1 * MB), crashed=True)
    shrinking.shrink(epoch_of(1 << 40), crashed=True)
    assert shrinking.caps().bytes == MB // 2


def test_a_crash_of_a_tiny_epoch_leaves_room_for_a_usual_one() -> None:
    """So few bytes did not end the process: something else did."""
    shrinking = capacity()
    for size in (100_000, 1_000, 8, 0):
        shrinking.shrink(epoch_of(size), crashed=True)
        assert shrinking.caps().bytes == 64 << 10


def test_an_epoch_that_was_too_large_for_the_driver_is_halved_however_small_it_was() -> None:
    shrinking = capacity()
    for size, expected in ((1000, 500), (500, 250), (3, 1), (1, 1)):
        shrinking.shrink(epoch_of(size), crashed=False)
        assert (shrinking.caps().bytes, shrinking.caps().large_bytes) == (expected, expected)


def test_what_was_too_much_stays_out_of_reach_for_a_while() -> None:
    """One good epoch of half the size does not make room for the one that was too large."""
    shrinking = capacity()
    shrinking.shrink(epoch_of(20 * MB), crashed=True)
    for _ in range(10):
        shrinking.after_epoch(5, shrinking.caps().bytes)
        assert shrinking.caps().bytes < 20 * MB


def test_an_epoch_that_the_driver_could_not_hold_is_not_tried_again_for_hundreds_of_epochs() -> None:
    shrinking = capacity()
    shrinking.shrink(epoch_of(20 * MB), crashed=False)
    sizes = []
    for _ in range(40):
        shrinking.after_epoch(5, shrinking.caps().bytes)
        sizes.append(shrinking.caps().bytes)
    assert sizes == sorted(sizes)
    assert 16 * MB <= sizes[-1] < 20 * MB


def test_an_epoch_far_below_the_limit_proves_nothing() -> None:
    shrinking = capacity()
    shrinking.shrink(epoch_of(20 * MB), crashed=True)
    shrinking.after_epoch(5, MB)
    assert shrinking.caps().bytes == 10 * MB


def test_epochs_grow_slowly_where_it_may_hurt_and_faster_while_they_are_small() -> None:
    shrinking = capacity()
    shrinking.shrink(epoch_of(20 * MB), crashed=True)
    shrinking.after_epoch(5, 10 * MB)
    assert shrinking.caps().bytes == int(10 * MB * 1.05)
    shrinking.shrink(epoch_of(1 * MB), crashed=True)
    shrinking.after_epoch(5, MB // 2)
    assert shrinking.caps().bytes == int(MB // 2 * 1.25)


@pytest.mark.parametrize("collects", [True, False])
def test_many_good_epochs_end_the_caution(collects: bool) -> None:
    shrinking = capacity(collects=collects)
    before = shrinking.caps()
    shrinking.shrink(epoch_of(1), crashed=True)
    sizes = []
    while shrinking.caps() != before:
        sizes.append(shrinking.caps().large_bytes)
        shrinking.after_epoch(5, sizes[-1])
    assert sizes == sorted(sizes)
    assert 50 < len(sizes) < 200


def test_a_record_limit_bounds_epochs() -> None:
    assert grown(capacity(limit=700)) == 700
    assert capacity(limit=60).caps().rows == 60


def test_a_tiny_record_limit_leaves_a_batch() -> None:
    assert capacity(limit=1).caps().rows == 50


def test_several_sources_share_what_an_epoch_may_take() -> None:
    two = capacity(sources=2)
    assert two.caps().rows == two.caps().driver_rows == 50
    two.after_epoch(100)
    until(lambda: two.caps().rows > 50)
    assert two.caps().rows == 5_000


def test_several_sources_share_the_bytes_of_an_epoch() -> None:
    two = capacity(sources=2)
    assert (two.caps().bytes, two.caps().large_bytes) == (16 * MB, 16 * 16 * MB)
    two.shrink(epoch_of(8 * MB), crashed=True)
    assert two.caps().bytes == 4 * MB

"""Epochs start small, grow when there is more to read than the driver takes, and shrink after a crash."""

from __future__ import annotations

import threading

import pytest
from doubles import until

from streamling.engine.capacity import Capacity
from streamling.spec.blocks import Epoch
from streamling.spec.settings import Settings

LIMITS = Epoch(driver_rows=100, rows=10_000, collect_rows=1_000, bytes=77)


def capacity(
    *, limits: Epoch = LIMITS, collects: bool = False, limit: int | None = None, sources: int = 1, warm_up=lambda: None
) -> Capacity:
    settings = Settings(epoch=limits, record_batch_size=50)
    return Capacity(settings, collects=collects, limit=limit, sources=sources, warm_up=warm_up)


def crashed(*rows: int) -> contract.Epoch:
    """An epoch that took so many rows from each of its sources."""
    slices = tuple(contract.Slice(f"s{n}", f"s{n}:k", None, None, (), count) for n, count in enumerate(rows))
    return contract.Epoch("e", 1, "app", "gen", 0, 0, slices)


def grown(capacity: Capacity) -> int:
    capacity.after_epoch(100)
    until(lambda: capacity.caps().rows > 100)
    return capacity.caps().rows


def test_the_first_epoch_is_what_the_driver_takes() -> None:
    caps = capacity().caps()
    assert (caps.rows, caps.driver_rows, caps.bytes) == (100, 100, 77)


def test_a_full_epoch_makes_room_for_large_ones_once_the_workers_are_warm() -> None:
    warm = threading.Event()
    growing = capacity(warm_up=lambda: warm.wait(5))
    growing.after_epoch(100)
    assert growing.caps().rows == 100
    warm.set()
    until(lambda: growing.caps().rows == 10_000)


def test_a_small_epoch_starts_no_workers() -> None:
    started: list[int] = []
    small = capacity(warm_up=lambda: started.append(1))
    small.after_epoch(99)
    assert small.caps().rows == 100
    assert started == []


def test_rows_that_wait_at_a_source_start_workers_before_the_first_epoch_is_done() -> None:
    growing = capacity()
    growing.waiting(100)
    assert growing.caps().rows == 100
    growing.waiting(101)
    until(lambda: growing.caps().rows == 10_000)


def test_while_workers_start_the_cores_are_theirs_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = threading.Event()
    growing = capacity(warm_up=lambda: warm.wait(5))
    assert not growing.preparing
    growing.waiting(101)
    assert growing.preparing
    warm.set()
    until(lambda: not growing.preparing)
    assert growing.caps().rows == 10_000
    monkeypatch.setattr("streamling.engine.capacity._UNDISTURBED_S", 0.01)
    slow = capacity(warm_up=lambda: threading.Event().wait(1))
    slow.waiting(101)
    until(lambda: not slow.preparing)
    assert slow.caps().rows == 100


def test_workers_are_started_once() -> None:
    started: list[int] = []
    growing = capacity(warm_up=lambda: started.append(1))
    assert grown(growing) == 10_000
    growing.after_epoch(10_000)
    growing.waiting(10_000)
    assert started == [1]


def test_if_workers_cannot_be_started_epochs_stay_small() -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise RuntimeError("no fork today")

    growing = capacity(warm_up=fail)
    growing.after_epoch(100)
    assert failed.wait(2)
    assert growing.caps().rows == 100


def test_what_the_driver_has_to_collect_is_bounded_by_itself() -> None:
    assert grown(capacity(collects=True)) == 1_000


def test_with_no_rows_for_the_driver_everything_is_large_from_the_start() -> None:
    assert capacity(limits=Epoch(driver_rows=0, rows=10_000)).caps().rows == 10_000


def test_after_a_crash_the_next_epoch_is_half_as_large() -> None:
    shrinking = capacity()
    for rows, expected in ((80, 40), (40, 20), (3, 1), (1, 1)):
        shrinking.after_crash(crashed(rows))
        assert shrinking.caps().rows == expected


def test_a_crash_never_makes_room() -> None:
    shrinking = capacity()
    shrinking.after_crash(crashed(1_000_000))
    assert shrinking.caps().rows == 100


def test_an_epoch_that_goes_through_ends_the_caution() -> None:
    shrinking = capacity()
    shrinking.after_crash(crashed(10))
    shrinking.after_epoch(5)
    assert shrinking.caps().rows == 100


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


def test_after_a_crash_every_source_gives_half_of_what_the_largest_gave() -> None:
    shrinking = capacity(sources=2)
    shrinking.after_crash(crashed(40, 20))
    assert shrinking.caps().rows == 20

"""How many rows a preview reads at once, and for how long."""

from __future__ import annotations

from streamling.engine.preview.result import PreviewOptions
from streamling.engine.preview.run import EpochSize


def test_short_epochs_become_larger_so_that_rare_rows_are_found() -> None:
    size = EpochSize(1000, 64_000)
    grown = [n for n in range(1, 20) if size.grows(0.1 * n, n)]
    assert grown == [2, 4, 6, 8, 10, 12]
    assert size.rows == 64_000


def test_epochs_that_take_long_stay_as_they_are() -> None:
    size = EpochSize(1000, 64_000)
    assert not any(size.grows(float(n), n) for n in range(1, 20))
    assert size.rows == 1000


def test_epochs_with_effects_outside_stay_as_they_are() -> None:
    size = EpochSize(100, 100)
    assert not any(size.grows(n * 0.01, n) for n in range(1, 20))


def test_without_rows_there_is_nothing_to_learn() -> None:
    size = EpochSize(1000, 64_000)
    assert not any(size.grows(n * 0.05, 1) for n in range(1, 20))


def test_the_time_of_a_preview_does_not_begin_anew_when_a_node_fails() -> None:
    assert PreviewOptions(seconds=60).after(50).seconds == 10
    assert PreviewOptions(seconds=60).after(59).seconds == 3, "others can still give rows"
    assert PreviewOptions().after(50).seconds is None, "it ends when the sources have caught up"

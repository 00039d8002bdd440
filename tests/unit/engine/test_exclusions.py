"""Rows that a sink rejects are left out when it writes again, however batches are cut."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from streamling.connector import BadRow
from streamling.engine.data.exclusions import Exclusions
from streamling.errors import BugError


def batches(*sizes: int) -> list[pa.RecordBatch]:
    """The numbers from 0 on, in batches of these sizes."""
    made, first = [], 0
    for size in sizes:
        made.append(pa.RecordBatch.from_pydict({"n": pa.array(range(first, first + size), pa.int64())}))
        first += size
    return made


def numbers(given_: Sequence[pa.RecordBatch]) -> list[int]:
    return [n for batch in given_ for n in batch.column(0).to_pylist()]


def bad(*indices: int | None) -> list[BadRow]:
    return [BadRow("odd", "odd", {}, index=index) for index in indices]


def test_without_exclusions_batches_pass_as_they_are() -> None:
    exclusions, given_ = Exclusions("out"), batches(3, 0, 2)
    assert not exclusions
    assert list(exclusions.filter(given_)) == given_


@pytest.mark.parametrize("sizes", [(7,), (1,) * 7, (3, 4), (2, 0, 5), (0, 7, 0), (6, 1), (1, 6)])
@pytest.mark.parametrize("left_out", [(0,), (6,), (0, 6), (2,), (2, 3), (1, 3, 5), (0, 1, 2, 3, 4, 5, 6)])
def test_rows_are_left_out_of_batches_of_any_size(sizes: tuple[int, ...], left_out: tuple[int, ...]) -> None:
    exclusions = Exclusions("out")
    exclusions.add(bad(*left_out))
    assert exclusions
    assert numbers(list(exclusions.filter(batches(*sizes)))) == [n for n in range(7) if n not in left_out]


@given(left_out=some.sets(some.integers(0, 30)), rows=some.sets(some.integers(0, 30)))
def test_numbers_of_several_rows_are_those_of_each(left_out: set[int], rows: set[int]) -> None:
    exclusions = Exclusions("out")
    exclusions.add(bad(*left_out))
    assert exclusions.originals(sorted(rows)) == [exclusions.original(row) for row in sorted(rows)]


def test_the_same_rows_are_left_out_as_often_as_they_are_given() -> None:
    exclusions = Exclusions("out")
    exclusions.add(bad(1))
    assert [numbers(list(exclusions.filter(batches(2, 2)))) for _ in range(2)] == [[0, 2, 3]] * 2


def test_a_later_round_counts_the_rows_that_were_left() -> None:
    exclusions = Exclusions("out")
    exclusions.add(bad(2, 5))  # left are 0 1 3 4 6 7 8 9
    exclusions.add(bad(2, 4))  # of these 3 and 6; left are 0 1 4 7 8 9
    exclusions.add(bad(0, 5))  # of these 0 and 9
    assert numbers(list(exclusions.filter(batches(3, 1, 5, 1)))) == [1, 4, 7, 8]


def test_the_order_in_which_rows_are_rejected_does_not_matter() -> None:
    exclusions = Exclusions("out")
    exclusions.add(bad(5, 2))
    exclusions.add(bad(4, 2))
    assert numbers(list(exclusions.filter(batches(10)))) == [0, 1, 4, 7, 8, 9]


@given(
    sizes=some.lists(some.integers(0, 7), max_size=8),
    rounds=some.lists(some.lists(some.integers(0, 1000), max_size=5), max_size=5),
)
def test_whatever_is_rejected_in_whatever_round_the_others_are_left(sizes: list[int], rounds: list[list[int]]) -> None:
    exclusions, left = Exclusions("out"), list(range(sum(sizes)))
    for chosen in rounds:
        indices = sorted({index % len(left) for index in chosen}) if left else []
        exclusions.add(bad(*indices))
        left = [n for index, n in enumerate(left) if index not in indices]
        assert numbers(list(exclusions.filter(batches(*sizes)))) == left


def test_a_rejected_row_without_a_number_is_a_bug_of_the_sink() -> None:
    with pytest.raises(BugError, match="a bad row has no index") as caught:
        Exclusions("out").add(bad(None))
    assert caught.value.node == "out"

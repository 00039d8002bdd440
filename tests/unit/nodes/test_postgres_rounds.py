"""Rows of an epoch reach a table in rounds whose effect is that of the rows in their order, batch after batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.sinks.postgres.rounds import Round, effective_rows

Row = tuple[int, str | None, int]
"""Key, operation, value."""
Table = dict[int, tuple[int, bool]]
"""By key: the value, and whether a column that the sink does not write still has the value of another writer."""


def table(rows: list[Row]) -> pa.Table:
    keys, operations, values = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "l": pa.array([f"{k % 2}" for k in keys], pa.string()),
            "_gs_op": pa.array(operations, pa.string()),
            "v": pa.array(values, pa.int64()),
        }
    )


def rounds(
    rows: pa.Table, key: tuple[str, ...], batch: int, *, deduplicate: bool, last_wins: bool
) -> tuple[list[Round], int]:
    """The rounds, and how many rows count as written."""
    selected = effective_rows(rows, key, batch, deduplicate=deduplicate)
    return list(selected.rounds(merged=last_wins)), len(selected)


def put(there: Table, row: Row, conflict: str) -> None:
    key, operation, value = row
    if (operation or "").lower() == "d":
        there.pop(key, None)
    elif key not in there:
        there[key] = (value, False)
    elif conflict == "update" or (conflict == "greater" and value > there[key][0]):
        there[key] = (value, there[key][1])


def in_order(rows: list[Row], batch: int, *, deduplicate: bool, conflict: str, before: Table) -> tuple[Table, int]:
    """What the rows would do one by one, and how many of them are written."""
    there, written = dict(before), 0
    for start in range(0, len(rows), batch):
        window = rows[start : start + batch]
        if deduplicate:
            last = {row[0]: index for index, row in enumerate(window)}
            deletions = {row[0]: index for index, row in enumerate(window) if (row[1] or "").lower() == "d"}
            window = [row for index, row in enumerate(window) if index in (last[row[0]], deletions.get(row[0]))]
        for row in window:
            put(there, row, conflict)
        written += len(window)
    return there, written


def in_rounds(rows: list[Row], all_rounds: list[Round], conflict: str, before: Table) -> Table:
    there = dict(before)
    for one in all_rounds:
        for index in one.deletes:
            there.pop(rows[index][0], None)
        upserts = [rows[index] for index in one.upserts]
        assert len({row[0] for row in upserts}) == len(upserts), "one statement cannot touch a row twice"
        for row in upserts:
            put(there, (row[0], "u", row[2]), conflict)
    return there


ROWS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["i", "u", "d", "D", "U", "x", None]), st.integers(0, 9)))


@settings(deadline=None)
@given(
    rows=ROWS,
    batch=st.integers(1, 7),
    deduplicate=st.booleans(),
    conflict=st.sampled_from(["update", "nothing", "greater"]),
    key=st.sampled_from([("k",), ("k", "l"), ("l", "k")]),
    before=st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 9), st.just(True))),
)
def test_rounds_do_what_the_rows_would_do_in_order(
    rows: list[Row], batch: int, deduplicate: bool, conflict: str, key: tuple[str, ...], before: Table
) -> None:
    found, count = rounds(table(rows), key, batch, deduplicate=deduplicate, last_wins=conflict == "update")
    expected, written = in_order(rows, batch, deduplicate=deduplicate, conflict=conflict, before=before)
    assert in_rounds(rows, found, conflict, before) == expected
    assert count == written


@settings(deadline=None)
@given(
    rows=ROWS,
    batch=st.integers(1, 7),
    conflict=st.sampled_from(["update", "nothing", "greater"]),
    cut=st.integers(0, 9),
)
def test_two_halves_one_after_the_other_do_what_the_whole_does(
    rows: list[Row], batch: int, conflict: str, cut: int
) -> None:
    selected = effective_rows(table(rows), ("k",), batch, deduplicate=True)
    last_wins = conflict == "update"
    of_halves = [one for half in selected.split_at(cut) for one in half.rounds(merged=last_wins)]
    of_all = list(selected.rounds(merged=last_wins))
    assert in_rounds(rows, of_halves, conflict, {}) == in_rounds(rows, of_all, conflict, {})


def indexes(one: Round) -> tuple[list[Any], list[Any]]:
    return one.deletes.tolist(), one.upserts.tolist()


def test_rows_without_a_key_are_all_added_and_deletions_left_out() -> None:
    found, count = rounds(table([(1, "i", 1), (1, "d", 1), (1, "u", 2)]), (), 100, deduplicate=True, last_wins=True)
    assert [indexes(one) for one in found] == [([], [0, 2])]
    assert count == 2


def test_the_last_row_of_each_key_is_one_round_where_it_decides_alone() -> None:
    rows = [(1, "i", 1), (2, "i", 1), (1, "u", 2), (3, "d", 0)]
    (only,), count = rounds(table(rows), ("k",), 1, deduplicate=True, last_wins=True)
    assert indexes(only) == ([3], [1, 2])
    assert count == 4


def test_where_the_first_row_may_decide_the_second_one_of_a_key_has_a_round_of_its_own() -> None:
    rows = [(1, "i", 1), (2, "i", 1), (1, "i", 2)]
    found, _ = rounds(table(rows), ("k",), 1, deduplicate=True, last_wins=False)
    assert [indexes(one) for one in found] == [([], [0, 1]), ([], [2])]


def test_of_a_batch_the_last_row_of_a_key_stays_and_the_deletion_before_it() -> None:
    rows = [(1, "i", 1), (1, "d", 0), (1, "i", 2), (1, "u", 3), (2, "i", 1), (2, "d", 0)]
    (only,), count = rounds(table(rows), ("k",), 100, deduplicate=True, last_wins=True)
    assert indexes(only) == ([1, 5], [3])
    assert count == 3
    found, _ = rounds(table(rows), ("k",), 100, deduplicate=True, last_wins=False)
    assert [indexes(one) for one in found] == [([1, 5], []), ([], [3])]


def test_rows_without_a_repeated_key_are_one_round_also_if_every_change_is_written() -> None:
    rows = [(3, "i", 1), (2, "d", 1), (1, "u", 2)]
    found, _ = rounds(table(rows), ("k",), 1, deduplicate=False, last_wins=False)
    assert [indexes(one) for one in found] == [([1], [0, 2])]


def test_a_key_with_all_the_rows_takes_no_longer_to_divide_than_many_keys() -> None:
    """A round each: if every one of them looked at all rows, these would take minutes."""
    count = 200_000
    selected = effective_rows(table([(7, "u", n) for n in range(count)]), ("k",), 1, deduplicate=False)
    found = selected.rounds(merged=False)
    assert [indexes(next(found)) for _ in range(3)] == [([], [n]) for n in range(3)]
    assert sum(len(one.upserts) for one in found) == count - 3

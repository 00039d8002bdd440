"""Which rows of an epoch become messages: of the rows of one key in a batch, the last one."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from streamling.formats.arrow import arrow_schema
from streamling.plan.types import INT64, OPERATION_FIELD, STRING, Field, Schema
from streamling.sinks.kafka.messages import JsonValues, MessageMaker

COLUMNS = Schema((Field("a", INT64), Field("b", STRING), OPERATION_FIELD))
Key = tuple[int | None, str | None]


def selected(keys: list[Key], batch_rows: int, excluded: list[int], names: tuple[str, ...] = ("a", "b")) -> list[int]:
    rows = [{"a": a, "b": b, "_gs_op": "i"} for a, b in keys]
    maker = MessageMaker(COLUMNS, names, JsonValues(COLUMNS), "t", 1000, batch_rows)
    return [int(n) for n in maker.select(pa.Table.from_pylist(rows, arrow_schema(COLUMNS)), excluded)]


def last_ones(keys: list[Key], batch_rows: int, excluded: list[int]) -> list[int]:
    """The same, row by row."""
    last = {(key, n // batch_rows): n for n, key in enumerate(keys) if n not in excluded}
    return sorted(last.values())


@pytest.mark.parametrize("kinds", [2, 5, 1000], ids=["few keys", "some keys", "hardly a key twice"])
def test_of_a_key_in_a_batch_the_last_row_is_selected(kinds: int) -> None:
    random = Random(kinds)
    for _ in range(100):
        values = [None, *range(kinds)]
        keys: list[Key] = [
            (random.choice(values), None if (text := random.choice(values)) is None else str(text)) for _ in range(20)
        ]
        batch_rows, excluded = random.choice([1, 3, 7, 100]), random.sample(range(20), random.choice([0, 1, 5]))
        assert selected(keys, batch_rows, excluded) == last_ones(keys, batch_rows, excluded)


@pytest.mark.parametrize("kinds", [5, 30, 1000])
@pytest.mark.parametrize("values", [[None], []], ids=["with nulls", "without nulls"])
def test_the_same_holds_for_a_key_of_one_number(kinds: int, values: list[int | None]) -> None:
    random = Random(kinds)
    for _ in range(100):
        keys: list[Key] = [(random.choice([*values, *range(-kinds, kinds)]), None) for _ in range(20)]
        batch_rows, excluded = random.choice([1, 3, 10, 20, 100]), random.sample(range(20), random.choice([0, 1, 5]))
        assert selected(keys, batch_rows, excluded, ("a",)) == last_ones(keys, batch_rows, excluded)


def test_if_no_key_is_there_twice_all_rows_are_selected() -> None:
    keys: list[Key] = [(1, "x"), (1, None), (None, "x"), (None, None), (2, "x")]
    assert selected(keys, 100, []) == [0, 1, 2, 3, 4]
    assert selected(keys, 100, [0, 3]) == [1, 2, 4]

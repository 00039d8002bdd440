"""What a Spark text takes from the epoch it is run for: parameters and row numbers.

`now()` is the parameter `:epoch_now`. `random()`, `uuid()` and `uuid7()` are hashes of `:epoch_seed`, the call and the
row number. The row number is a column of a subquery, not a part of the expressions: Spark counts the evaluations of
`monotonically_increasing_id()`, so inside a CASE, or behind an AND, it would not count every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from streamling.plan.sql.values import identifier

EPOCH_NOW = "epoch_now"
"""A parameter: what `now()` means, a TIMESTAMP."""
EPOCH_SEED = "epoch_seed"
"""A parameter: a BIGINT. A text that has it also reads the number of the row."""

NOW = f":{EPOCH_NOW}"
SEED = f"CAST(:{EPOCH_SEED} AS BIGINT)"

# No column of a user is called like this by accident.
ROW_NUMBER = "#row"
ITEM = "#item"
ITEM_NUMBER = "#item_row"
"""The items of a list that becomes rows, and their numbers."""


def number_rows(relation: str, column: str = ROW_NUMBER) -> str:
    """A relation with one more column, by which its rows differ: the partition of a row and its place there."""
    return f"(SELECT *, monotonically_increasing_id() AS {identifier(column)} FROM {relation})"


def make_salts(prefix: str) -> Iterator[str]:
    """Texts that tell the calls of one statement, and of one `prefix`, apart."""
    return (f"{prefix}:{number}" for number in count())

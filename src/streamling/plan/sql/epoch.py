"""The parts of a Spark text that depend on the epoch: parameters and row numbers.

`now()` is the parameter `:epoch_now`. `random()`, `uuid()` and `uuid7()` are hashes of `:epoch_seed`, the call and the
row number. The row number is a column of a subquery and not part of the expressions: Spark counts the evaluations of
`monotonically_increasing_id()`, and inside a CASE or on the right of an AND it is not evaluated for every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from streamling.plan.sql.values import identifier

EPOCH_NOW = "epoch_now"
"""A parameter: the value of `now()`, a TIMESTAMP."""
EPOCH_SEED = "epoch_seed"
"""A parameter: a BIGINT. A text with this parameter also reads the row number."""

NOW = f":{EPOCH_NOW}"
SEED = f"CAST(:{EPOCH_SEED} AS BIGINT)"

# With `#`, these names do not clash with columns of users.
ROW_NUMBER = "#row"
ITEM = "#item"
ITEM_NUMBER = "#item_row"
"""The columns with the items of an unnested list, and with their row numbers."""


def number_rows(relation: str, column: str = ROW_NUMBER) -> str:
    """The relation with a column of unique row numbers, made of the partition and the position of a row in it."""
    return f"(SELECT *, monotonically_increasing_id() AS {identifier(column)} FROM {relation})"


def make_salts(prefix: str) -> Iterator[str]:
    """Unique texts, one for each call in a statement."""
    return (f"{prefix}:{number}" for number in count())

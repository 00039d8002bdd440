"""The Spark text of a SELECT that turns the updates and deletes which it does not match into deletes.

An insert that does not match is dropped. An update or a delete that does not match stays, as a delete: the row has to
disappear from targets that have an earlier version of it. Expressions are written for rows that match, and may fail
for others, so such a delete has only the primary key and the columns that are selected as they are; the computed ones
are NULL. A nested query passes on whether a row matches, because the queries around it must not compute it either.

The order of the operands lets a row need the condition once: the filter passes all updates and deletes without it, and
the projection takes all inserts that have passed as matching.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from streamling.plan.sql.projections import Column
from streamling.plan.sql.values import Value, identifier
from streamling.plan.types import OPERATION_COLUMN

# With `#`, these names do not clash with columns of users.
MATCH = "#match"
"""The column of a nested query that says whether a row matches all conditions inside of it."""
KEPT = "#kept"
"""The column that says whether a row also matches the condition of this SELECT."""
_HOLDS = "#holds"

DELETING = "'when_filtered_out: delete'"

_CHANGES = "('u', 'd')"


@dataclass(frozen=True, slots=True)
class Guard:
    """How a SELECT treats the rows that are deletes because they do not match.

    match      the column that is true for the other rows
    computed   the input columns that are computed, and so must not be read for these rows
    key        the output columns that they must have
    nested     whether conditions of nested queries count, too
    """

    match: str
    computed: frozenset[str]
    key: frozenset[str]
    nested: bool

    @property
    def match_column(self) -> str:
        """The column MATCH of the SELECT, if it is nested."""
        return f"{identifier(self.match)} AS {identifier(MATCH)}"

    def apply(self, columns: Sequence[Column]) -> list[Column]:
        """The columns, as they are for rows that match and for deletes."""
        return [self._guarded(column) for column in columns]

    def rows(self, relation: str, condition: str) -> str:
        """The rows that match the condition, and all updates and deletes; the column KEPT tells them apart."""
        if not condition:
            return relation
        matched = f"{identifier(MATCH)} AND {condition}" if self.nested else condition
        holds, operation = identifier(_HOLDS), identifier(OPERATION_COLUMN)
        return (
            f"(SELECT *, ({operation} NOT IN {_CHANGES} OR {holds}) AS {identifier(KEPT)} "
            f"FROM (SELECT *, coalesce({matched}, false) AS {holds} FROM {relation}) "
            f"WHERE {operation} IN {_CHANGES} OR {holds})"
        )

    def _guarded(self, column: Column) -> Column:
        value, match = column.value, identifier(self.match)
        if column.name == OPERATION_COLUMN:
            text = f"CASE WHEN {match} THEN {value.text} ELSE 'd' END"
            return replace(column, value=Value(text, value.type, value.nullable))
        if column.name in self.key or not is_computed(column, self.computed):
            return column
        return replace(column, value=Value(f"CASE WHEN {match} THEN {value.text} END", value.type))


def is_computed(column: Column, computed: frozenset[str]) -> bool:
    """Whether a column is more than a literal or an input column; `computed` are the input columns that are."""
    if column.value.constant is not None:
        return False
    return bool(column.reads & computed) or [column.value.text] != [identifier(name) for name in column.reads]


def computed_columns(columns: Sequence[Column], computed: frozenset[str]) -> frozenset[str]:
    return frozenset(c.name for c in columns if c.name != OPERATION_COLUMN and is_computed(c, computed))


def unusable_keys(columns: Sequence[Column], guard: Guard, own: frozenset[str]) -> Iterator[tuple[Column, str, str]]:
    """Key columns that a delete would not have, or that would differ from those of its row: column, reason, hint.

    own   the columns of the rows themselves; others come from lookups
    """
    for column in columns:
        if column.name not in guard.key:
            continue
        if column.reads - own:
            hint = "build the key from the columns of the stream"
            yield column, "it comes from a lookup, whose values may be others when the row is deleted", hint
        elif guard.nested and column.reads & guard.computed:
            hint = "compute it in the outermost SELECT, or in a transform before this one"
            yield column, "it is computed below a WHERE, so it is not known for the rows that the WHERE drops", hint
        elif column.parameters:
            hint = "compute the key from the columns of the row alone"
            yield column, "it depends on the time or on a random number, so a delete would not find its row", hint

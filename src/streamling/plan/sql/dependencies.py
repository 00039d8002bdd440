"""What must exist when the Spark text of a query is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamling.plan.sql.table_calls import CallLevel


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """One join with a lookup.

    lookup   its reference name
    stream   the input that the query joins it to; None if the rows come from a nested query
    keys     by key column of the lookup: the column of the stream that it is equal to; None for another expression
    rows     the relation that it is joined to, as a Spark text
    text     the relation with the columns of the lookup
    prefix   what the names of these columns begin with
    plain    whether nothing but the key is compared
    """

    lookup: str
    stream: str | None
    keys: Mapping[str, str | None]
    rows: str
    text: str
    prefix: str
    plain: bool


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The columns, functions and parameters that a query uses.

    reads       the columns it reads, by the reference name of their table
    functions   the plugin functions it calls
    parameters  the parameters of the epoch in it
    joins       its joins with lookups
    call_levels the calls of dynamic tables, in the order in which they can be answered
    """

    reads: Mapping[str, frozenset[str]]
    functions: frozenset[str]
    parameters: frozenset[str]
    joins: tuple[LookupJoin, ...] = ()
    call_levels: tuple[CallLevel, ...] = ()


def merge(parts: Iterable[Dependencies]) -> Dependencies:
    """The dependencies of a text that consists of several parts."""
    parts = tuple(parts)
    reads: dict[str, frozenset[str]] = {}
    for part in parts:
        for table, columns in part.reads.items():
            reads[table] = reads.get(table, frozenset()) | columns
    functions = frozenset[str]().union(*(part.functions for part in parts))
    parameters = frozenset[str]().union(*(part.parameters for part in parts))
    joins = tuple(join for part in parts for join in part.joins)
    levels = {level.view: level for part in parts for level in part.call_levels}
    return Dependencies(reads, functions, parameters, joins, tuple(levels.values()))

"""What the text of a query needs from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What has to be there when the text of a query is run.

    reads       the columns it looks at, by the reference name of their table
    functions   the functions of plugins it calls
    uses_now    whether the text has the parameter marker :epoch_now
    """

    reads: Mapping[str, frozenset[str]]
    functions: frozenset[str]
    uses_now: bool


def merge(parts: Iterable[Dependencies]) -> Dependencies:
    """The dependencies of a text that has all these parts."""
    parts = tuple(parts)
    reads: dict[str, frozenset[str]] = {}
    for part in parts:
        for table, columns in part.reads.items():
            reads[table] = reads.get(table, frozenset()) | columns
    functions = frozenset[str]().union(*(part.functions for part in parts))
    return Dependencies(reads, functions, any(part.uses_now for part in parts))

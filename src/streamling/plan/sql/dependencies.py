"""What the text of a query needs from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What has to be there when the text of a query is run.

    reads       the columns it looks at, by the reference name of their table
    functions   the functions of plugins it calls
    parameters  the parameters of the epoch that are in it
    """

    reads: Mapping[str, frozenset[str]]
    functions: frozenset[str]
    parameters: frozenset[str]


def merge(parts: Iterable[Dependencies]) -> Dependencies:
    """The dependencies of a text that has all these parts."""
    parts = tuple(parts)
    reads: dict[str, frozenset[str]] = {}
    for part in parts:
        for table, columns in part.reads.items():
            reads[table] = reads.get(table, frozenset()) | columns
    functions = frozenset[str]().union(*(part.functions for part in parts))
    parameters = frozenset[str]().union(*(part.parameters for part in parts))
    return Dependencies(reads, functions, parameters)

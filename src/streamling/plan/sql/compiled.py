"""What compiling gives: a query or an expression as Spark SQL, with what the planner knows about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamling.errors import Where
from streamling.plan.sql.joins import LookupJoin
from streamling.plan.sql.statements import DynamicCheck
from streamling.plan.sql.table_calls import CallLevel
from streamling.plan.sql.values import identifier
from streamling.plan.types import DataType, Schema


@dataclass(frozen=True)
class Query:
    """A query for Spark.

    text       Spark SQL; it reads inputs by the names of their views
    schema     its columns, `_gs_op` included
    reads      the columns it reads, by the reference name of their table; every input has an entry
    functions  the plugin functions it calls
    parameters the parameters in the text that are bound per epoch: EPOCH_NOW, EPOCH_SEED
    dynamic_tables   the calls with which it looks values up in dynamic tables
    call_levels   the same calls by the views with their results, in the order in which they can be answered
    copied     the column of the input that is its only column besides the operation, unchanged in every row
    joins      its joins with lookups
    cautions   warnings about probable mistakes, with their positions
    filters    whether it may drop rows
    multiplies whether it may make several rows of one, or ignore an input
    """

    text: str
    schema: Schema
    reads: Mapping[str, frozenset[str]]
    functions: frozenset[str]
    parameters: frozenset[str]
    dynamic_tables: tuple[DynamicCheck, ...] = ()
    call_levels: tuple[CallLevel, ...] = ()
    copied: str | None = None
    cautions: tuple[tuple[str, Where | None], ...] = ()
    joins: tuple[LookupJoin, ...] = ()
    filters: bool = False
    multiplies: bool = False

    @property
    def keeps_rows(self) -> bool:
        """Whether it gives exactly one row per row that it gets."""
        return not self.filters and not self.multiplies

    @property
    def all_text(self) -> str:
        """Everything that is computed: two queries with the same one give the same rows of the same rows."""
        return "\n".join([self.text, *(f"{level.view}: {level.text}" for level in self.call_levels)])

    def reads_view(self, view: str) -> bool:
        """Whether Spark reads the view; it need not, if calls are answered for the rows as they are."""
        computed = [level.rows for level in self.call_levels if level.is_computed]
        return any(identifier(view) in text for text in (self.text, *computed))

    def count_reads(self, view: str) -> int:
        """How often it reads a view, directly or for its calls of dynamic tables."""
        through = sum(self.count_reads(level.view) for level in self.call_levels if identifier(view) in level.rows)
        return self.text.count(identifier(view)) + through


@dataclass(frozen=True)
class Expression:
    """An expression for Spark; it reads columns by their names. The fields are those of a Query.

    With the parameter EPOCH_SEED it must be evaluated over `number_rows` of its input.
    """

    text: str
    type: DataType
    nullable: bool
    reads: frozenset[str]
    functions: frozenset[str]
    parameters: frozenset[str]

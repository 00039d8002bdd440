"""Joins with lookups that this process computes, in small epochs whose rows it has.

Spark would build a hash table of the lookup and broadcast it for every query of every epoch, which may take as long as
all the rest of a small epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.engine.data.lookups.tables import LookupTables
from streamling.engine.data.results import Results
from streamling.engine.data.spark_rows import make_frame
from streamling.engine.data.steps.query_input import QueryInput
from streamling.plan.planned_node import PlannedNode
from streamling.plan.sql import LookupJoin
from streamling.plan.sql.values import identifier
from streamling.plan.types import Field, Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class _Chain:
    """The joins of one SELECT, in their order.

    input   the view of the input whose rows are joined
    view    the view with the result
    """

    input: str
    joins: tuple[LookupJoin, ...]
    view: str

    @property
    def text(self) -> str:
        """The relation that the view replaces."""
        return self.joins[-1].text


class DriverJoins:
    """`text` is the query over the views with the results of the joins."""

    def __init__(
        self, lookups: Mapping[str, PlannedNode], tables: LookupTables, chains: Sequence[_Chain], text: str
    ) -> None:
        self.text = text
        self.inputs = frozenset(chain.input for chain in chains)
        """The views of the inputs whose rows are joined."""
        self._lookups = lookups
        self._tables = tables
        self._chains = chains

    def reads_view(self, view: str) -> bool:
        return identifier(view) in self.text

    def add_views(self, results: Results, inputs: Mapping[str, QueryInput]) -> None:
        for chain in self._chains:
            input_ = inputs[chain.input]
            fields, columns = list(input_.schema), list(input_.table().columns)
            for join in chain.joins:
                for field, column in self._matches(results, join, input_.table()):
                    fields.append(field)
                    columns.append(column)
            self._add_view(results, chain.view, Schema(tuple(fields)), columns, input_.chunk_rows)

    def _matches(self, results: Results, join: LookupJoin, rows: pa.Table) -> list[tuple[Field, pa.ChunkedArray]]:
        """The columns of the lookup that the query reads, for each row: NULL without a match."""
        import pyarrow.compute as pc

        ((key, name),) = join.keys.items()
        values = rows.column(str(name))
        snapshot = self._tables.snapshot(join.lookup, results.epoch)
        # Only rows that match get into the hash table of `index_in`.
        table = snapshot.table if snapshot.small else snapshot.restrict([{key: values}])
        numbers = pc.index_in(values, value_set=table.column(key).combine_chunks().cast(values.type))
        schema = self._lookups[join.lookup].schema
        read = [field for field in schema if identifier(join.prefix + field.name) in self.text]
        return [
            (Field(join.prefix + field.name, field.type), table.column(field.name).combine_chunks().take(numbers))
            for field in read
        ]

    @staticmethod
    def _add_view(
        results: Results, view: str, schema: Schema, columns: Sequence[pa.ChunkedArray], chunk_rows: int
    ) -> None:
        import pyarrow as pa

        from streamling.formats.arrow import arrow_schema

        table = pa.Table.from_arrays(list(columns), schema=arrow_schema(schema))
        make_frame(results.session, schema, table, chunk_rows).createOrReplaceTempView(view)


def driver_joins(
    node: PlannedNode, inputs: Sequence[PlannedNode], lookups: Sequence[PlannedNode], tables: LookupTables
) -> DriverJoins | None:
    """None if Spark has to compute one of the joins: it compares more than one value with the key, or an expression."""
    query = node.query
    if query is None or query.call_levels or not query.joins:
        return None
    views = {identifier(input_.view): input_.view for input_ in inputs}
    chains: dict[str, _Chain] = {}
    for number, join in enumerate(query.joins):
        before = chains.get(join.rows)
        input_ = before.input if before is not None else views.get(join.rows)
        if input_ is None or not join.plain or len(join.keys) != 1 or None in join.keys.values():
            return None
        joins = (*before.joins, join) if before is not None else (join,)
        chains[join.text] = _Chain(input_, joins, f"{node.view}_joined_{number}")
    text, needed = query.text, []
    for chain in sorted(chains.values(), key=lambda chain: len(chain.text), reverse=True):
        if chain.text in text:  # not only a part of a longer chain
            text = text.replace(chain.text, identifier(chain.view))
            needed.append(chain)
    return DriverJoins({lookup.ref: lookup for lookup in lookups}, tables, needed, text)

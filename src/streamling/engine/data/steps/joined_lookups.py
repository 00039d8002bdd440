"""The lookups that a query joins, as frames for one epoch.

Spark builds a hash table of a lookup for every query of every epoch. For a small lookup that takes no time. Of a large
one a small epoch needs few rows: those with the keys of its own rows, where the query says which columns these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamling.engine.data.lookups.tables import LookupTables
from streamling.engine.data.results import Results
from streamling.plan.planned_node import PlannedNode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class JoinedLookups:
    def __init__(self, node: PlannedNode, lookups: Sequence[PlannedNode], tables: LookupTables) -> None:
        self._node = node
        self._lookups = lookups
        self._tables = tables

    def frames(self, results: Results) -> dict[str, DataFrame]:
        """The rows of each lookup that the query may need, by the name of its view."""
        return {lookup.view: self._frame(results, lookup) for lookup in self._lookups}

    def _frame(self, results: Results, lookup: PlannedNode) -> DataFrame:
        place = (self._node.id, lookup.ref)
        if place not in results.lookup_frames:
            results.lookup_frames[place] = self._make_frame(results, lookup)
        return results.lookup_frames[place]

    def _make_frame(self, results: Results, lookup: PlannedNode) -> DataFrame:
        snapshot = self._tables.snapshot(lookup.ref, results.epoch)
        values = None if snapshot.small or results.large else self._key_values(results, lookup)
        if values is None:
            return self._tables.frame(results.session, lookup.ref, snapshot)
        return self._tables.make_frame(results.session, lookup.ref, snapshot.restrict(values))

    def _key_values(self, results: Results, lookup: PlannedNode) -> list[dict[str, pa.ChunkedArray]] | None:
        """For each join with the lookup: the values of a stream that its key columns are compared with. None if one has
        computed keys only."""
        query = self._node.query
        joins = [join for join in query.joins if join.lookup == lookup.ref] if query is not None else []
        found = []
        for join in joins:
            if join.stream is None or not any(join.keys.values()):
                return None
            rows = results.rows(self._input(join.stream))
            rows.materialize()
            table = rows.table()
            found.append({key: table.column(column) for key, column in join.keys.items() if column is not None})
        return found or None

    def _input(self, table: str) -> str:
        """The input that the query knows under this name; in a replay of dead letters it has another one."""
        query = self._node.query
        return self._node.inputs[list(query.reads).index(table)] if query is not None else table

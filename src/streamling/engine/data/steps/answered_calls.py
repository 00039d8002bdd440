"""Calls of dynamic tables: the rows that a SELECT reads get a column with the result of each call, in this process.

Rows that Spark or workers have are fetched for it. All values of an epoch are looked up together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamling.connector import Report
from streamling.engine.data.dynamic_tables import EpochTables
from streamling.engine.data.intake import chunk_rows
from streamling.engine.data.results import NodeRows, Results
from streamling.engine.data.spark_rows import make_frame, make_table
from streamling.engine.data.steps.query_input import QueryInput, run_query
from streamling.errors import DYNAMIC_TABLE, UserError
from streamling.formats.arrow import arrow_schema, arrow_type
from streamling.plan.dynamic_tables import is_filled_after
from streamling.plan.planned_node import PlannedNode
from streamling.plan.sql import CallLevel, TableCall

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


class AnsweredCalls:
    def __init__(self, node: PlannedNode, level: CallLevel, parameters: frozenset[str]) -> None:
        self._node = node
        self._level = level
        self._parameters = parameters

    def add_view(self, results: Results, inputs: Mapping[str, QueryInput]) -> None:
        """Make the view with the rows and the results. `inputs` are those of the query, by view."""
        import pyarrow as pa

        level = self._level
        input_ = inputs[level.input] if level.input is not None else None
        rows = self._computed_rows(results) if level.is_computed or input_ is None else input_.table()
        answers = self._answers(results.dynamic_tables, rows, input_)
        columns = [*rows.select([f.name for f in level.columns]).columns, *(answers[call] for call in level.calls)]
        table = pa.Table.from_arrays(columns, schema=arrow_schema(level.schema))
        chunk = chunk_rows(Report(table.num_rows, bytes=table.nbytes))
        make_frame(results.session, level.schema, table, chunk).createOrReplaceTempView(level.view)

    def _computed_rows(self, results: Results) -> pa.Table:
        frame = run_query(results.session, self._level.text, self._parameters, results.epoch)
        schema = self._level.argument_schema
        # These are not the rows of the node.
        rows = NodeRows(results, self._node, schema=schema, frame=frame, counted=False)
        return make_table(schema, list(rows.batches()))

    def _answers(self, tables: EpochTables, rows: pa.Table, input_: QueryInput | None) -> dict[TableCall, pa.Array]:
        asked = [_Asked(call, self._table(tables, call, rows), self._values(call, rows)) for call in self._level.calls]
        self._look_up_together(tables, asked)
        return {one.call: self._answer(tables, one, rows.num_rows, input_) for one in asked}

    def _look_up_together(self, tables: EpochTables, asked: list[_Asked]) -> None:
        """One request per table for all calls; the answer to each call is then known."""
        import pyarrow as pa

        by_table: dict[str, list[pa.Array]] = {}
        for one in asked:
            if one.table is not None:
                by_table.setdefault(one.table.ref, []).append(one.keys)
        for ref, keys in by_table.items():
            if len(keys) > 1:
                tables.look_up(tables.node(ref), pa.concat_arrays(keys).unique())

    def _values(self, call: TableCall, rows: pa.Table) -> pa.Array:
        """The value of each row."""
        import pyarrow as pa

        if not self._level.is_computed and call.value.constant is not None:
            return pa.repeat(pa.scalar(call.value.constant, pa.string()), rows.num_rows)
        name = call.argument if self._level.is_computed else self._level.column_of(call)
        return rows.column(name).combine_chunks()

    def _table(self, tables: EpochTables, call: TableCall, rows: pa.Table) -> PlannedNode | None:
        """The table of a call; None if there are no rows to tell its name."""
        if call.table is not None:
            return tables.node(call.table)
        names = rows.column(call.table_argument).unique().to_pylist()
        if not names:
            return None
        if len(names) > 1 or names[0] is None:
            shown = ", ".join(repr(name) for name in names[:3])
            message = (
                f"the name of a dynamic table must be the same in all rows of an epoch, and not NULL, got: {shown}"
            )
            raise UserError(DYNAMIC_TABLE, message, node=self._node.spec.name)
        return tables.find(names[0], self._node)

    def _answer(self, tables: EpochTables, asked: _Asked, rows: int, input_: QueryInput | None) -> pa.Array:
        import pyarrow as pa

        if asked.table is None:
            return pa.nulls(rows, arrow_type(asked.call.type))
        found = tables.look_up(asked.table, asked.keys)
        if asked.call.fetched is not None:
            return found.columns[asked.call.fetched].take(asked.codes)
        return asked.result(found.present.take(asked.codes), self._earlier(tables, asked, input_))

    def _earlier(self, tables: EpochTables, asked: _Asked, input_: QueryInput | None) -> NDArray[np.bool_] | None:
        """By value: whether an earlier row of this epoch adds it to a table with `populate: after`."""
        table = asked.table
        if table is None or not is_filled_after(table.spec) or not set(table.inputs) & set(self._node.inputs):
            return None
        if input_ is None:
            message = f"the dynamic table '{table.spec.name}' has 'populate: after' and is looked up in a nested query"
            raise UserError(DYNAMIC_TABLE, message, node=self._node.spec.name)
        numbers = input_.numbers()
        return None if numbers is None else asked.added_before(tables.values(table), numbers)


class _Asked:
    """The values of a call: each of them once, and which of them each row has."""

    def __init__(self, call: TableCall, table: PlannedNode | None, values: pa.Array) -> None:
        import pyarrow as pa

        self.call = call
        self.table = table
        self._lists = values if pa.types.is_list(values.type) else None
        encoded = (values.flatten() if self._lists is not None else values).dictionary_encode()
        self.keys = encoded.dictionary
        self.codes = encoded.indices

    @property
    def _rows(self) -> NDArray[np.int64]:
        """The row of each value."""
        import numpy as np
        import pyarrow.compute as pc

        if self._lists is None:
            return np.arange(len(self.codes))
        rows: NDArray[np.int64] = pc.list_parent_indices(self._lists).to_numpy()
        return rows

    def result(self, present: pa.Array, earlier: NDArray[np.bool_] | None) -> pa.Array:
        """The result of each row, from those of its values. A list has a result unless it is NULL."""
        import numpy as np
        import pyarrow as pa

        if earlier is None and self._lists is None:
            return present
        holds = present.fill_null(False).to_numpy(zero_copy_only=False)
        if earlier is not None:
            holds = holds | earlier
        if self._lists is None:
            return pa.array(holds, mask=present.is_null().to_numpy(zero_copy_only=False))
        hits = np.zeros(len(self._lists), bool)
        hits[self._rows[holds]] = True
        return pa.array(hits, mask=self._lists.is_null().to_numpy(zero_copy_only=False))

    def added_before(self, added: pa.Array, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """By value: whether a row before its own adds it. `added` has the value that each row of the input adds,
        `numbers` the numbers of the rows of this call among them."""
        import numpy as np
        import pyarrow.compute as pc

        encoded = added.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        firsts = np.full(len(encoded.dictionary), len(added), np.int64)
        np.minimum.at(firsts, codes[codes >= 0], np.flatnonzero(codes >= 0))
        first_of_key = pc.index_in(self.keys, value_set=encoded.dictionary)
        places = first_of_key.take(self.codes)
        known = places.is_valid().to_numpy(zero_copy_only=False)
        earlier = np.zeros(len(self.codes), bool)
        earlier[known] = firsts[places.drop_null().to_numpy()] < numbers[self._rows][known]
        return earlier

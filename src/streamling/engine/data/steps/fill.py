"""The fill step: the values that a query adds to a dynamic table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamling.engine.data.results import NodeRows, Results
from streamling.engine.data.steps.query import QueryStep
from streamling.engine.data.steps.query_input import QueryInput
from streamling.formats.arrow import arrow_type
from streamling.plan.dynamic_tables import is_filled_after
from streamling.plan.planned_node import PlannedNode
from streamling.plan.types import STRING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


class FillStep:
    """`input_rows`: the rows of the input, if they are others than those that queries get."""

    def __init__(
        self,
        node: PlannedNode,
        input_: PlannedNode,
        query: QueryStep,
        input_rows: Callable[[Results], NodeRows] | None,
    ) -> None:
        self._node = node
        self._input = input_
        self._query = query
        self._query.input_rows = input_rows
        self._has_gaps = is_filled_after(node.spec)
        """NULL stands for a row that adds no value."""
        self._copied = node.query.copied if node.query is not None else None

    def values(self, results: Results) -> pa.Array:
        """The values in the order of the rows. With `populate: after` there is one for each row of the input: NULL for
        a row that adds none, or that the query cannot compute."""
        left_out = results.left_out(self._node.id, self._input.id)
        if self._copied is not None:
            rows = QueryInput(results, self._query.rows_of(results, self._input), left_out).table()
            values = rows.column(self._copied)
        else:
            values = _values(self._query.rows(results, shared=False))
        results.row_counts[self._node.id] = len(values) - (values.null_count if self._has_gaps else 0)
        return _with_gaps(values.combine_chunks(), left_out.numbers)


def _values(rows: NodeRows) -> pa.ChunkedArray:
    import pyarrow as pa

    columns = [batch.column(0) for batch in rows.batches()]
    return pa.chunked_array(columns, arrow_type(STRING))


def _with_gaps(values: pa.Array, numbers: tuple[int, ...]) -> pa.Array:
    """The values with NULL at the numbers of the rows that were left out."""
    import numpy as np
    import pyarrow as pa

    if not numbers:
        return values
    places = np.full(len(values) + len(numbers), True)
    places[list(numbers)] = False
    sources = np.where(places, np.cumsum(places) - 1, 0)
    return values.take(pa.array(sources, mask=~places))

"""The query step: Spark computes a compiled query over the rows of its inputs.

The other steps do not know how: they give rows as frames or tables, and get `NodeRows`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from streamling.engine.data.results import NodeRows, Results
from streamling.engine.data.row_scan import find_inputs, scannable_frames
from streamling.engine.data.row_search import RowSearch
from streamling.engine.data.spark_errors import spark_errors
from streamling.engine.data.spark_rows import make_table
from streamling.engine.data.steps.answered_calls import AnsweredCalls
from streamling.engine.data.steps.driver_joins import DriverJoins
from streamling.engine.data.steps.joined_lookups import JoinedLookups
from streamling.engine.data.steps.query_input import QueryInput, SomeRows, run_query
from streamling.errors import SHUFFLE_REFUSED, BugError
from streamling.formats.arrow import arrow_schema
from streamling.plan.planned_node import PlannedNode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# A line of a physical plan: branches of the tree, optionally the number of its generated code, then the operator.
_SHUFFLE = re.compile(r"^[\s:+|-]*(?:\*\(\d+\) )?(?:Reused)?Exchange\b(?! .*BroadcastExchange)", re.MULTILINE)

# If a query cannot be computed row by row, each row of an input that is searched for needs about ten Spark jobs.
_MOST_SEARCHED = 20


class QueryStep:
    def __init__(
        self,
        node: PlannedNode,
        inputs: tuple[PlannedNode, ...],
        joined: JoinedLookups | None = None,
        driver_joins: DriverJoins | None = None,
    ) -> None:
        if node.query is None:
            raise AssertionError(node)
        self.node = node
        self._query = node.query
        self._inputs = inputs
        self._joined = joined
        self._driver_joins = driver_joins
        self._calls = [AnsweredCalls(node, level, node.query.parameters) for level in node.query.call_levels]
        self._reads_view = {input_.view: node.query.reads_view(input_.view) for input_ in inputs}
        """Whether Spark needs the rows of an input: not if they are only looked up in this process."""
        self._checked = False
        self._views = threading.Lock()
        self.input_rows: Callable[[Results], NodeRows] | None = None
        """The rows of its only input, if they are others than those of the node."""

    def rows(self, results: Results, *, shared: bool) -> NodeRows:
        if self._joined is not None and self._joins_in_driver(results) is None:
            self._joined.frames(results)  # before the inputs become frames: it may compute them
        inputs = {
            input_.view: QueryInput(results, self.rows_of(results, input_), results.left_out(self.node.id, input_.id))
            for input_ in self._inputs
        }
        frame = self._frame(results, inputs)
        if not self._checked:
            self._check_order(frame)
            self._checked = True
        frame = results.observe(self.node.id, frame)
        if shared and results.large:
            frame = results.persist(frame)
        return NodeRows(results, self.node, frame=frame, shared=shared)

    def leave_out_bad_rows(self, results: Results) -> bool:
        """Find the rows that the query cannot compute, so that `rows` leaves them out. False: there are none."""
        found = False
        for input_ in self._inputs:
            rows = self.rows_of(results, input_)
            left_out = results.left_out(self.node.id, input_.id)
            search = RowSearch(results.session, self.node.spec.name, partial(self._frame_over, results, input_))
            bad_rows = tuple(search.bad_rows(left_out.filter(rows.batches(limited=False))))
            bad_rows = results.with_origins(self.node, input_, bad_rows, left_out)
            if len(self._inputs) > 1:
                bad_rows = tuple(replace(bad, input=input_.ref) for bad in bad_rows)
            if bad_rows:
                left_out.add(bad_rows)
                results.add_bad_rows(self.node.id, bad_rows)
                found = True
        return found

    @property
    def is_simple(self) -> bool:
        """Whether it reads one node, once: the rows of its result are in the order of its input."""
        return len(self._inputs) == 1 and self._query.count_reads(self._inputs[0].view) == 1

    def input_numbers(self, results: Results, numbers: Sequence[int]) -> dict[int, int]:
        """By the numbers of rows of the result of a simple query, for these, which are sorted: the number of the
        input's row that gave it. Without some, if they can only be searched for one by one."""
        (input_,) = self._inputs
        left_out = results.left_out(self.node.id, input_.id)
        rows = self.rows_of(results, input_)
        table = make_table(rows.schema, list(left_out.filter(rows.batches(limited=False))))
        with spark_errors(self.node.spec.name), scannable_frames(results.session):
            frame = self._frame_over_first(results, input_, table)
        found = find_inputs(frame, numbers)
        if found is None:
            found = {number: self._input_number(results, input_, table, number) for number in numbers[:_MOST_SEARCHED]}
        return {number: left_out.original(inner) for number, inner in found.items()}

    def _input_number(self, results: Results, input_: PlannedNode, table: pa.Table, number: int) -> int:
        # Most queries give one row per row.
        low, high, guess = 0, table.num_rows - 1, min(number, table.num_rows - 1)
        while low < high:
            if self._count(results, input_, table.slice(0, guess + 1)) > number:
                high = guess
                guess = max(low, guess - 1) if guess == number else (low + high) // 2
            else:
                low = guess + 1
                guess = (low + high) // 2
        return low

    def _count(self, results: Results, input_: PlannedNode, table: pa.Table) -> int:
        with spark_errors(self.node.spec.name):
            return int(self._frame_over_first(results, input_, table).count())

    def _frame_over_first(self, results: Results, input_: PlannedNode, table: pa.Table) -> DataFrame:
        """The query, if its only input has only these rows, its first ones."""
        import numpy as np

        left_out = results.left_out(self.node.id, input_.id)
        numbers = np.asarray(left_out.originals(range(table.num_rows)), np.int64)
        rows = SomeRows(results.session, self.rows_of(results, input_).schema, table, numbers)
        return self._frame(results, {input_.view: rows})

    def _frame_over(self, results: Results, input_: PlannedNode, table: pa.Table) -> DataFrame:
        """The query over these rows of one input, without rows of the others."""
        inputs = {}
        for one in self._inputs:
            schema = self.rows_of(results, one).schema
            rows = table if one.id == input_.id else arrow_schema(schema).empty_table()
            inputs[one.view] = SomeRows(results.session, schema, rows)
        return self._frame(results, inputs)

    def _frame(self, results: Results, inputs: Mapping[str, QueryInput]) -> DataFrame:
        # Once a frame is analysed it does not need the views any more: other steps may use their names.
        joins = self._joins_in_driver(results)
        if joins is not None:
            return self._joined_frame(joins, results, inputs)
        with self._views:
            for input_ in self._inputs:
                if self._reads_view[input_.view]:
                    inputs[input_.view].frame.createOrReplaceTempView(input_.view)
            if self._joined is not None:
                for view, rows in self._joined.frames(results).items():
                    rows.createOrReplaceTempView(view)
            for calls in self._calls:
                calls.add_view(results, inputs)
            return run_query(results.session, self._query.text, self._query.parameters, results.epoch)

    def _joins_in_driver(self, results: Results) -> DriverJoins | None:
        """Joins with lookups are computed in this process if it has the rows anyway."""
        joins = self._driver_joins
        if joins is None or results.large:
            return None
        joined = (input_ for input_ in self._inputs if input_.view in joins.inputs)
        return joins if all(self.rows_of(results, input_).in_process for input_ in joined) else None

    def _joined_frame(self, joins: DriverJoins, results: Results, inputs: Mapping[str, QueryInput]) -> DataFrame:
        with self._views:
            for input_ in self._inputs:
                if joins.reads_view(input_.view):
                    inputs[input_.view].frame.createOrReplaceTempView(input_.view)
            joins.add_views(results, inputs)
            return run_query(results.session, joins.text, self._query.parameters, results.epoch)

    def rows_of(self, results: Results, input_: PlannedNode) -> NodeRows:
        return results.rows(input_.id) if self.input_rows is None else self.input_rows(results)

    def _check_order(self, frame: DataFrame) -> None:
        """Raises BugError for a shuffle: rows keep their order only if none moves to another partition. Broadcasts
        move none."""
        physical = frame._jdf.queryExecution().executedPlan().toString()
        if has_shuffle(physical):
            text = f"the query is planned with a shuffle:\n{physical}"
            raise BugError(SHUFFLE_REFUSED, text, node=self.node.spec.name)


def has_shuffle(plan: str) -> bool:
    """Whether a physical plan, as Spark prints it, moves rows between partitions."""
    return _SHUFFLE.search(plan) is not None

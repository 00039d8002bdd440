"""The query step: Spark computes a compiled query over the rows of its inputs.

The other steps do not know how: they give rows as frames or tables, and get `NodeRows`.
"""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from streamling.connector import Epoch
from streamling.engine.data.results import NodeRows, Results
from streamling.errors import SHUFFLE_REFUSED, BugError
from streamling.plan.planned_node import PlannedNode
from streamling.plan.sql.epoch import EPOCH_NOW, EPOCH_SEED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)
# A line of a physical plan: branches of the tree, optionally the number of its generated code, then the operator.
_SHUFFLE = re.compile(r"^[\s:+|-]*(?:\*\(\d+\) )?(?:Reused)?Exchange\b(?! .*BroadcastExchange)", re.MULTILINE)


class QueryStep:
    def __init__(self, node: PlannedNode, inputs: tuple[PlannedNode, ...]) -> None:
        if node.query is None:
            raise AssertionError(node)
        self.node = node
        self._query = node.query
        self._inputs = inputs
        self._checked = False
        self._views = threading.Lock()

    def rows(self, results: Results, *, shared: bool) -> NodeRows:
        # Once a frame is analysed it does not need the views any more: other steps may use their names.
        with self._views:
            for input_ in self._inputs:
                results.rows(input_.id).frame.createOrReplaceTempView(input_.view)
            frame = run_query(results.session, self._query.text, self._query.parameters, results.epoch)
        if not self._checked:
            self._check_order(frame)
            self._checked = True
        if shared and results.large:
            frame = results.persist(frame)
        return NodeRows(results, self.node, frame=frame, shared=shared)

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


def run_query(session: SparkSession, text: str, parameters: frozenset[str], epoch: Epoch) -> DataFrame:
    if not parameters:
        return session.sql(text)
    values = {EPOCH_NOW: _EPOCH_START + timedelta(microseconds=epoch.now_us), EPOCH_SEED: epoch.seed}
    return session.sql(text, args={name: values[name] for name in sorted(parameters)})

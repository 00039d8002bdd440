"""What a query reads: the rows of its inputs, as frames or as tables, and the values of the epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from streamling.connector import Epoch
from streamling.engine.data.exclusions import Exclusions
from streamling.engine.data.results import NodeRows, Results
from streamling.engine.data.spark_rows import make_frame, make_table
from streamling.engine.data.steps.left_out import remaining_frame
from streamling.plan.sql.epoch import EPOCH_NOW, EPOCH_SEED
from streamling.plan.types import Schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


class QueryInput:
    """The rows of an input that a query gets: all but those that it cannot compute."""

    def __init__(self, results: Results, rows: NodeRows, left_out: Exclusions) -> None:
        self._results = results
        self._rows = rows
        self._left_out = left_out

    @cached_property
    def frame(self) -> DataFrame:
        return remaining_frame(self._results, self._rows, self._left_out)

    @cached_property
    def _table(self) -> pa.Table:
        return make_table(self._rows.schema, list(self._left_out.filter(self._rows.batches())))

    @property
    def schema(self) -> Schema:
        return self._rows.schema

    @property
    def chunk_rows(self) -> int:
        """The rows of a partition of `frame`; 0 if it has one partition."""
        return self._rows.chunk_rows

    def table(self) -> pa.Table:
        """The rows in this process. Raises EpochTooLarge."""
        return self._table

    def numbers(self) -> NDArray[np.int64] | None:
        """The number of each row among all rows of the input; None if that is not known."""
        import numpy as np

        rows = np.arange(self._table.num_rows)
        return rows if not self._left_out else np.asarray(self._left_out.originals(rows.tolist()), np.int64)


class SomeRows(QueryInput):
    """Some rows of an input."""

    def __init__(
        self, session: SparkSession, schema: Schema, table: pa.Table, numbers: NDArray[np.int64] | None = None
    ) -> None:
        self._session = session
        self._some_schema = schema
        self._some = table
        self._numbers = numbers

    @cached_property
    def frame(self) -> DataFrame:
        return make_frame(self._session, self._some_schema, self._some)

    @property
    def schema(self) -> Schema:
        return self._some_schema

    @property
    def chunk_rows(self) -> int:
        return 0

    def table(self) -> pa.Table:
        return self._some

    def numbers(self) -> NDArray[np.int64] | None:
        return self._numbers


def run_query(session: SparkSession, text: str, parameters: frozenset[str], epoch: Epoch) -> DataFrame:
    used = sorted(name for name in parameters if f":{name}" in text)
    if not used:
        return session.sql(text)
    values = {EPOCH_NOW: _EPOCH_START + timedelta(microseconds=epoch.now_us), EPOCH_SEED: epoch.seed}
    return session.sql(text, args={name: values[name] for name in used})

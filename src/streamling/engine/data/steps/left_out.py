"""The rows that a query gets: those of its input without the ones that it cannot compute."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from streamling.connector import BadRow
from streamling.engine.data.exclusions import Exclusions
from streamling.engine.data.results import NodeRows, Results
from streamling.engine.data.spark_rows import make_frame, make_table
from streamling.engine.data.steps.stages import Stages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def remaining_frame(results: Results, rows: NodeRows, left_out: Exclusions) -> DataFrame:
    if not left_out:
        return rows.frame
    if not results.large:
        table = make_table(rows.schema, list(left_out.filter(rows.batches(limited=False))))
        return make_frame(results.session, rows.schema, table)
    stages = rows.stages or Stages(rows.frame, ())
    return stages.then(LeaveOut(_by_partition(left_out, _count_rows(stages)))).frame(results.session, rows.schema)


@dataclass(frozen=True, slots=True)
class CountRows:
    """Runs in an executor: the number of rows of each partition."""

    def run(self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_arrays([pa.array([partition]), pa.array([rows])], ["partition", "rows"])


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Runs in an executor: leaves rows out, by their numbers in each partition."""

    numbers: Mapping[int, Sequence[int]]

    def run(self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> Iterator[pa.RecordBatch]:
        exclusions = Exclusions("")
        exclusions.add([BadRow("", "", {}, index=number) for number in self.numbers.get(partition, ())])
        return exclusions.filter(batches)


def _count_rows(stages: Stages) -> list[int]:
    """By partition."""
    counted = stages.then(CountRows()).run("partition long, rows long").collect()
    return [row["rows"] for row in sorted(counted, key=lambda row: row["partition"])]


def _by_partition(left_out: Exclusions, rows: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    ends = list(accumulate(rows))
    for number in left_out.numbers:
        partition = bisect_right(ends, number)
        found.setdefault(partition, []).append(number - (ends[partition] - rows[partition]))
    return found

"""Whether Spark advances, as far as the driver can see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from streamling.engine.process.tasks import running_work
from support.spark_session import spark_session

pytestmark = pytest.mark.spark


def test_rows_of_a_task_that_takes_long_are_noticed_before_it_ends() -> None:
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(5):
                time.sleep(1)
                yield pa.RecordBatch.from_pydict({"text": ["x" * 200_000] * batch.num_rows})

    with spark_session({"spark.executor.heartbeatInterval": "500ms"}) as spark:
        frame = spark.range(1, numPartitions=1).mapInArrow(slow, "text string")
        task = threading.Thread(target=lambda: frame.write.format("noop").mode("overwrite").save())
        seen = {running_work(spark)}
        task.start()
        while task.is_alive():
            seen.add(running_work(spark))
            time.sleep(0.1)
    reports = {metrics for tasks, metrics in seen if tasks and tasks[0][1] == 0}
    assert len(reports) >= 2

"""A topic of one partition into a ClickHouse table, with and without compression.

`STREAMLING_BENCH_KAFKA_ROWS` is the number of records, one million unless told. The figures are those of `kafka_sink`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

from bench.figure import Figure
from bench.kafka import Run, run_pipeline
from bench.orders_topic import Place, filled, mixed, servers

_PIPELINE = """\
sources:
  orders: {{type: kafka, topic: {topic}}}
sinks:
  out: {{type: clickhouse, from: orders, table: {table}, primary_key: id, compression: {compression}}}
"""


def clickhouse_sink() -> Iterator[Figure]:
    """Records per second from a topic into a table."""
    rows = int(os.environ.get("STREAMLING_BENCH_KAFKA_ROWS", "1_000_000"))
    with servers("kafka", "registry", "clickhouse") as stack:
        place = filled(stack, mixed, rows)
        for compression in ("none", "lz4"):
            run = _run(place, rows, compression)
            yield Figure(f"kafka to ClickHouse, {compression}", f"{run.wall:,.0f}", run.shown, "", holds=True)


def _run(place: Place, rows: int, compression: str) -> Run:
    table = f"bench_{uuid.uuid4().hex[:8]}"
    return run_pipeline(_PIPELINE.format(topic=place.topic, table=table, compression=compression), place, rows)

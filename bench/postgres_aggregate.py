"""One large epoch into aggregate tables: 100,000 rows in 10,000 groups, beside the statements alone.

The sink gets rows that are ready in memory, as the loop by hand does, which has neither a ledger nor a landing table
with a trigger: it copies the rows into a temporary table and merges their sums.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pyarrow as pa

from bench.figure import Figure
from bench.orders_topic import servers
from bench.postgres import connected
from streamling.connector import Epoch, SinkContext, Slice, Task, kinds
from streamling.plan.types import INT64, OPERATION_FIELD, STRING, Field, Schema, decimal
from streamling.sinks.postgres_aggregate.sink import PostgresAggregateSink
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings

_ROWS, _GROUPS, _EPOCHS = 100_000, 10_000, 5
_BAR_S = 5.0
_SCHEMA = Schema(
    (Field("id", INT64, nullable=False), Field("shop", STRING), Field("amount", decimal(10, 2)), OPERATION_FIELD)
)
_PIPELINE = """\
sources: {{rows: {{type: generator, primary_key: id}}}}
sinks:
  out:
    type: postgres_aggregate
    from: rows
    schema: bench
    landing_table: {name}_in
    agg_table: {name}
    group_by: {{shop: {{}}}}
    aggregate: {{total: {{from: amount, fn: sum, type: numeric}}, n: {{fn: count}}, most: {{from: amount, fn: max}}}}
    {more}
"""
_BY_HAND = """
CREATE TEMPORARY TABLE IF NOT EXISTS staged (id bigint, shop text, amount numeric) ON COMMIT DELETE ROWS;
CREATE TABLE IF NOT EXISTS bench.merged (shop text PRIMARY KEY, total numeric, n bigint, most numeric)
"""
_MERGE = """
INSERT INTO bench.merged AS t SELECT shop, sum(amount), count(*), max(amount) FROM staged GROUP BY shop
ON CONFLICT (shop) DO UPDATE SET total = t.total + EXCLUDED.total, n = t.n + EXCLUDED.n,
most = GREATEST(t.most, EXCLUDED.most)
"""


def postgres_aggregate() -> Iterator[Figure]:
    """Seconds for an epoch, medians: inserts, then updates of the same keys with `retract`."""
    with servers() as stack:
        settings = {name.removeprefix("STREAMLING__"): value for name, value in stack.variables().items()}
        with closing(connected(settings)) as connection:
            connection.execute("DROP SCHEMA IF EXISTS bench CASCADE; CREATE SCHEMA bench")
            alone = statistics.median(_by_hand(connection))
        took = {
            "inserts": _epochs(settings, "counted", "", "i"),
            "inserts, retract": _epochs(settings, "exact", "retract: true", "i"),
            "updates, retract": _epochs(settings, "exact", "retract: true", "u"),
        }
    for name, seconds in took.items():
        median = statistics.median(seconds)
        compared = f"{median / alone:.1f} x COPY and merge alone ({alone:.2f} s); {_ROWS / median:,.0f} rows/s"
        title = f"aggregate of {_ROWS:,} rows in {_GROUPS:,} groups, {name}"
        yield Figure(title, f"{median:.2f} s", compared, f"<= {_BAR_S:g} s", median <= _BAR_S)


def _epochs(settings: dict[str, str], name: str, more: str, operation: str) -> list[float]:
    node = load_pipeline(_PIPELINE.format(name=name, more=more), "bench.yaml", kinds.kinds()).sinks[0]
    keys = ("HOST", "PORT", "USER", "PASS", "DB")
    connection = {key.lower(): settings[f"POSTGRES_SINK__{key}"] for key in keys}
    sink = kinds.build(node, Settings.model_validate({"postgres_sink": connection | {"port": int(connection["port"])}}))
    if not isinstance(sink, PostgresAggregateSink):
        raise TypeError(sink)
    sink.open(SinkContext("out", "bench", f"{name} {operation}", _SCHEMA, ("id",)))
    took = []
    for number in range(1, _EPOCHS + 1):
        slices = (Slice("rows", "rows", number - 1, number, (), _ROWS),)
        epoch = Epoch(str(number), number, "bench", "bench", 0, 0, slices)
        rows = _rows(operation, number)
        began = time.perf_counter()
        sink.commit(epoch, [sink.write(epoch, Task(0, 0), [rows])])
        took.append(time.perf_counter() - began)
        sink.finalized(number)
    sink.close()
    return took


def _rows(operation: str, number: int) -> pa.RecordBatch:
    """New keys for inserts, the same ones for updates."""
    first = 0 if operation == "u" else number * _ROWS
    keys = range(first, first + _ROWS)
    amounts = pa.array([(key * 7919 + number) % 100_000 for key in keys], pa.int64())
    columns = {
        "id": pa.array(keys, pa.int64()),
        "shop": pa.array([f"shop {key * 31 % _GROUPS}" for key in keys]),
        "amount": amounts.cast(pa.decimal128(21, 2)).cast(pa.decimal128(10, 2)),
        "_gs_op": pa.array([operation] * _ROWS),
    }
    return pa.RecordBatch.from_pydict(columns)


def _by_hand(connection: psycopg.Connection[tuple[object, ...]]) -> Iterator[float]:
    connection.execute(_BY_HAND)
    for number in range(1, _EPOCHS + 1):
        rows = list(zip(*(column.to_pylist() for column in _rows("i", number).columns[:3]), strict=True))
        began = time.perf_counter()
        with connection.transaction():
            with connection.cursor() as cursor, cursor.copy("COPY staged FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            connection.execute(_MERGE)
        yield time.perf_counter() - began

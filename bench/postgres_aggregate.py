"""One large epoch into aggregate tables: 100,000 rows in 10,000 groups, beside the statements alone.

The sink gets rows that are ready in memory, as the loop by hand does, which has neither a ledger nor a landing table
with a trigger: it copies the rows into a temporary table and merges their sums. The CPU time of the server's process
tells whether an epoch has more work than the one before, or only less of a busy machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import psutil
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


@dataclass(frozen=True, slots=True)
class _Took:
    """Seconds of one epoch: on the clock, and of the CPU in the server's process."""

    wall: float
    server: float


def postgres_aggregate() -> Iterator[Figure]:
    """Seconds for an epoch, medians: inserts, then updates of the same keys with `retract`."""
    with servers("postgres") as stack:
        settings = {name.removeprefix("STREAMLING__"): value for name, value in stack.variables().items()}
        with closing(connected(settings)) as connection:
            connection.execute("DROP SCHEMA IF EXISTS bench CASCADE; CREATE SCHEMA bench")
            alone = statistics.median(_by_hand(connection))
        took = {
            "inserts": _epochs(settings, "counted", "", "i"),
            "inserts, retract": _epochs(settings, "exact", "retract: true", "i"),
            "updates, retract": _epochs(settings, "exact", "retract: true", "u"),
        }
    for name, epochs in took.items():
        median = statistics.median(epoch.wall for epoch in epochs)
        server = f"CPU of the server {', '.join(f'{epoch.server:.2f}' for epoch in epochs)} s"
        compared = f"{median / alone:.1f} x COPY and merge alone ({alone:.2f} s); {server}"
        title = f"aggregate of {_ROWS:,} rows in {_GROUPS:,} groups, {name}"
        yield Figure(title, f"{median:.2f} s", compared, f"<= {_BAR_S:g} s", median <= _BAR_S)


def _epochs(settings: dict[str, str], name: str, more: str, operation: str) -> list[_Took]:
    node = load_pipeline(_PIPELINE.format(name=name, more=more), "bench.yaml", kinds.kinds()).sinks[0]
    keys = ("HOST", "PORT", "USER", "PASS", "DB")
    connection = {key.lower(): settings[f"POSTGRES_SINK__{key}"] for key in keys}
    sink = kinds.build(node, Settings.model_validate({"postgres_sink": connection | {"port": int(connection["port"])}}))
    if not isinstance(sink, PostgresAggregateSink):
        raise TypeError(sink)
    sink.open(SinkContext("out", "bench", f"{name} {operation}", _SCHEMA, ("id",)))
    server = _server_process(settings)
    took = []
    for number in range(1, _EPOCHS + 1):
        slices = (Slice("rows", "rows", number - 1, number, (), _ROWS),)
        epoch = Epoch(str(number), number, "bench", "bench", 0, 0, slices)
        rows = _rows(operation, number)
        began, cpu = time.perf_counter(), sum(server.cpu_times()[:2])
        sink.commit(epoch, [sink.write(epoch, Task(0, 0), [rows])])
        took.append(_Took(time.perf_counter() - began, sum(server.cpu_times()[:2]) - cpu))
        sink.finalized(number)
    sink.close()
    return took


def _server_process(settings: dict[str, str]) -> psutil.Process:
    """The process of the server that the sink talks to."""
    with closing(connected(settings)) as connection:
        row = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'streamling/%'"
        ).fetchone()
    if row is None:
        raise RuntimeError("the sink is not connected")
    return psutil.Process(int(str(row[0])))


def _rows(operation: str, number: int) -> pa.RecordBatch:
    """New keys for inserts; for updates the same ones each time, of the first inserts."""
    first = _ROWS if operation == "u" else number * _ROWS
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

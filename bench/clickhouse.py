"""A ClickHouse table through a query into nothing: beside a client that reads the same columns as Arrow, and JDBC.

`STREAMLING_BENCH_CLICKHOUSE_ROWS` is the number of rows, five million unless told. Wall is by the time from the start
of the process to the last row, steady that of the large epochs behind the first one. The client decodes Arrow, but
neither orders nor casts nor computes: it is the time of the server and of the connection. So our reader alone is
measured as well, which orders by the key and gives the rows that Spark would get.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import httpx

from bench import connectors
from bench.figure import Figure
from bench.orders_topic import servers
from bench.processes import Epoch, epochs, measured, pipeline, watched

_TABLE = "bench_orders"
_ROWS = """
CREATE OR REPLACE TABLE {table} ENGINE = MergeTree ORDER BY (block, id) AS
SELECT toInt64(intDiv(number, 3)) AS block, toInt64(number) AS id,
    concat('customer ', toString(number % 1000)) AS customer, number / 7 AS amount,
    toDateTime64(1700000000 + number, 6, 'UTC') AS at
FROM numbers({rows})
"""
_PIPELINE = """\
sources:
  orders: {{type: clickhouse, table_name: {table}}}
transforms:
  shaped: {{type: sql, primary_key: id, sql: "SELECT id, upper(customer) AS customer, amount * 1.19 AS amount, at \
FROM orders"}}
sinks:
  out: {sink}
"""
_NOTHING = "{type: blackhole, from: shaped}"
_COLUMNS = "id, customer, amount, at"
_SETTINGS = ("URL", "USER", "PASSWORD", "DATABASE")
_LIMIT_BAR, _JDBC_BAR = 0.7, 3.0
_LARGE_ROWS = 20_000
_LONGEST_S = 1800.0
_PLAIN = Path(__file__).parent / "plain"


def clickhouse() -> Iterator[Figure]:
    """Rows per second of a scan."""
    rows = int(os.environ.get("STREAMLING_BENCH_CLICKHOUSE_ROWS", "5_000_000"))
    python = connectors.clickhouse_python()
    with servers("clickhouse") as stack:
        settings = {name.removeprefix("STREAMLING__"): value for name, value in stack.variables().items()}
        _fill(settings, rows)
        limit, jdbc = _scan(python, "clickhouse_scan.py", settings), _jdbc(settings, rows)
        reader = _scan(Path(sys.executable), "clickhouse_reader.py", settings)
        steady, wall, cpu = run_ours(settings, rows)
    yield Figure("clickhouse, ours", f"{steady:,.0f}", f"wall {wall:,.0f}; {cpu:.1f} CPU s per million", "", holds=True)
    yield _compared("clickhouse, reader", reader, "clickhouse-connect", limit, _LIMIT_BAR)
    yield _compared("clickhouse", steady, "clickhouse-connect", limit, _LIMIT_BAR)
    yield _compared("clickhouse", steady, "JDBC in PySpark", jdbc, _JDBC_BAR)


def clickhouse_postgres() -> Iterator[Figure]:
    """Rows per second of a backfill into a keyed table of Postgres."""
    rows = int(os.environ.get("STREAMLING_BENCH_BACKFILL_ROWS", "1_000_000"))
    with servers("clickhouse", "postgres") as stack:
        settings = {name.removeprefix("STREAMLING__"): value for name, value in stack.variables().items()}
        _fill(settings, rows)
        sink = f"{{type: postgres, from: shaped, schema: public, table: bench_{uuid.uuid4().hex[:8]}, primary_key: id}}"
        steady, wall, cpu = run_ours(settings, rows, sink)
    compared = f"wall {wall:,.0f}; {cpu:.1f} CPU s per million"
    yield Figure("ClickHouse to Postgres", f"{steady:,.0f}", compared, "", holds=True)


def _compared(name: str, mine: float, other: str, theirs: float, bar: float) -> Figure:
    compared = f"x {other} ({mine:,.0f} : {theirs:,.0f})"
    return Figure(name, f"{mine / theirs:.2f}", compared, f">= {bar} x", mine / theirs >= bar)


def run_ours(settings: Mapping[str, str], rows: int, sink: str = _NOTHING) -> tuple[float, float, float]:
    """Rows per second once it runs, and with the start; CPU seconds per million rows, the server's left out."""
    began = time.monotonic()
    mine = {**settings, "STATE_BACKEND__BACKEND_TYPE": "InMemory"}
    with pipeline(_PIPELINE.format(table=_TABLE, sink=sink), mine) as (process, log):
        with watched(process.pid) as usage:
            process.wait(_LONGEST_S)
        wall = rows / (time.monotonic() - began)
        found = epochs(log)
        if process.returncode or sum(epoch.rows for epoch in found) != rows:
            raise RuntimeError(f"the run ended with {process.returncode}\n{log.read_text()[-2000:]}")
    return _steady(found), wall, usage.cpu_seconds / rows * 1e6


def _steady(found: list[Epoch]) -> float:
    """Of the large epochs but for the first one, which is cold."""
    large = [(now.rows, now.at - before.at) for before, now in pairwise(found) if now.rows > _LARGE_ROWS][1:]
    if not large:
        raise RuntimeError("there was no second large epoch; take more rows")
    return sum(rows for rows, _ in large) / sum(seconds for _, seconds in large)


def _scan(python: Path, script: str, settings: Mapping[str, str]) -> float:
    """The best of three scans."""
    server = [settings[f"CLICKHOUSE_SOURCE__{name}"] for name in _SETTINGS]
    lines, *_ = measured([str(python), str(_PLAIN / script), *server, _TABLE, _COLUMNS, "3"])
    return max(count / seconds for count, seconds in lines)


def _jdbc(settings: Mapping[str, str], rows: int) -> float:
    """The second scan of one process."""
    server = [settings[f"CLICKHOUSE_SOURCE__{name}"] for name in _SETTINGS]
    jars = ",".join(map(str, connectors.clickhouse_jars()))
    lines, *_ = measured([sys.executable, str(_PLAIN / "clickhouse_jdbc.py"), jars, *server, _TABLE, str(rows)])
    return lines[-1][0] / lines[-1][1]


def _fill(settings: Mapping[str, str], rows: int) -> None:
    url, user, password, database = (settings[f"CLICKHOUSE_SOURCE__{name}"] for name in _SETTINGS)
    for query in (_ROWS.format(table=_TABLE, rows=rows), f"OPTIMIZE TABLE {_TABLE} FINAL"):
        answer = httpx.post(
            url,
            params={"database": database},
            content=query,
            auth=(user, password),
            timeout=_LONGEST_S,
            trust_env=False,
        )
        answer.raise_for_status()

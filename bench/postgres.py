"""A topic of distinct keys into a table, all inserts and then all updates: beside COPY with a merge, and beside JDBC.

`STREAMLING_BENCH_POSTGRES_ROWS` is the number of records of each, one million unless told. Ours and JDBC's time is that
from the first record to the last commit, the start left out; wall has the start too. The hand-written merge has its
rows in memory, sorted and encoded: it is the time of the server alone, and nobody can be quicker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench import connectors
from bench.figure import Figure
from bench.orders_topic import SCHEMA, Place, filled, inserts, servers, updates
from bench.processes import epochs, measured, pipeline, wait_for, watched

_PIPELINE = """\
sources:
  orders: {{type: kafka, topic: {topic}}}
transforms:
  kept: {{type: sql, primary_key: id, sql: "SELECT id, upper(customer) AS customer, product, country, note, amount, \
price, created, quantity FROM orders"}}
sinks:
  out: {{type: postgres, from: kept, schema: public, table: {table}}}
"""
_LIMIT_BAR, _JDBC_BAR = 0.5, 1.5
_LONGEST_S = 1800.0
_PLAIN = Path(__file__).parent / "plain"


@dataclass(frozen=True, slots=True)
class _Run:
    """Records per second, without and with the start; CPU seconds per million of it all, the server's left out."""

    rate: float
    wall: float
    cpu: float


def postgres() -> Iterator[Figure]:
    """Records per second into a keyed table."""
    rows = int(os.environ.get("STREAMLING_BENCH_POSTGRES_ROWS", "1_000_000"))
    python, jars = connectors.python(), connectors.jars()
    with servers() as stack:
        places = {"inserts": filled(stack, inserts, rows), "updates": filled(stack, updates, rows)}
        settings = next(iter(places.values())).settings
        limits = _merged(settings, rows)
        jdbc = _jdbc(python, ",".join(map(str, jars)), places["inserts"], rows)
        _emptied(settings, "ours")
        for name, place in places.items():
            ours = _ours(place, rows)
            yield from _figures(name, ours, limits[name], jdbc)
        _check(settings, rows)


def _figures(name: str, ours: _Run, limit: float, jdbc: _Run) -> Iterator[Figure]:
    for contender, run in (("ours", ours), ("JDBC append", jdbc)):
        shown = f"wall {run.wall:,.0f}; {run.cpu:.1f} CPU s per million"
        yield Figure(f"postgres {name}, {contender}", f"{run.rate:,.0f}", shown, "", holds=True)
    bars = (("COPY and merge alone", limit, _LIMIT_BAR), ("JDBC append", jdbc.rate, _JDBC_BAR))
    for other, theirs, bar in bars:
        ratio = ours.rate / theirs
        compared = f"x {other} ({ours.rate:,.0f} : {theirs:,.0f})"
        yield Figure(f"postgres {name}", f"{ratio:.2f}", compared, f">= {bar} x", ratio >= bar)


def _ours(place: Place, rows: int) -> _Run:
    began = time.monotonic()
    with pipeline(_PIPELINE.format(topic=place.topic, table="ours"), place.settings) as (process, log):
        with watched(process.pid) as usage:
            wait_for(process, lambda: sum(e.rows for e in epochs(log)) >= rows, _LONGEST_S)
            ended = time.monotonic()
            found = epochs(log)
    busy = found[-1].at - found[0].at + found[0].ms / 1000
    return _Run(rows / busy, rows / (ended - began), usage.cpu_seconds / rows * 1e6)


def _merged(settings: dict[str, str], rows: int) -> dict[str, float]:
    """Inserts and updates per second by hand."""
    _emptied(settings, "merged")
    command = [sys.executable, str(_PLAIN / "postgres_merge.py"), json.dumps(_server(settings)), "merged", str(rows)]
    lines, *_ = measured(command)
    return {name: count / seconds for name, (count, seconds) in zip(("inserts", "updates"), lines, strict=True)}


def _jdbc(python: Path, jars: str, place: Place, rows: int) -> _Run:
    _emptied(place.settings, "appended")
    server = json.dumps(_server(place.settings))
    script = str(_PLAIN / "kafka_to_jdbc.py")
    command = [str(python), script, place.brokers, place.topic, jars, SCHEMA, server, "appended"]
    ((count, seconds),), wall, cpu, _ = measured(command)
    return _Run(count / seconds, count / wall, sum(cpu) / rows * 1e6)


def _server(settings: dict[str, str]) -> dict[str, str]:
    names = {"host": "HOST", "port": "PORT", "dbname": "DB", "user": "USER", "password": "PASS"}
    return {name: settings[f"POSTGRES_SINK__{key}"] for name, key in names.items()}


def connected(settings: dict[str, str]) -> psycopg.Connection[tuple[Any, ...]]:
    """Autocommit; to be closed."""
    return psycopg.connect(**_server(settings), sslmode="disable", autocommit=True)  # type: ignore[arg-type]


def _emptied(settings: dict[str, str], table: str) -> None:
    """A table as the sink would make it; what earlier measurements left on the disk is out of the way."""
    with closing(connected(settings)) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}, _streamling_ledger")
        connection.execute(
            f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, customer TEXT, product TEXT, country TEXT, note TEXT, "
            "amount DOUBLE PRECISION, price NUMERIC(20,4), created BIGINT, quantity INTEGER)"
        )
        connection.execute("CHECKPOINT")


def _check(settings: dict[str, str], rows: int) -> None:
    with closing(connected(settings)) as connection:
        found = connection.execute("SELECT count(*), count(DISTINCT id), max(id) FROM ours").fetchone()
    if found != (rows, rows, rows - 1):
        raise RuntimeError(f"the table has {found}")

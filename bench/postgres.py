"""A topic of distinct keys into a table, all inserts and then all updates: beside COPY with a merge, and beside JDBC.

`STREAMLING_BENCH_POSTGRES_ROWS` is the number of keys, one million unless told. Of ours and of JDBC, wall is by the
time from the start of the process to the last commit. Ours steady is that of large epochs behind the first one, JDBC's
from the start of its query on. The hand-written merge has its rows in memory, sorted and encoded: it is the time of the
server alone, and nobody can be quicker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from bench import connectors
from bench.figure import Figure
from bench.orders_topic import SCHEMA, Place, changes, filled, inserts, servers
from bench.processes import Epoch, epochs, measured, pipeline, wait_for, watched

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
_LARGE_ROWS = 20_000
_PLAIN = Path(__file__).parent / "plain"


@dataclass(frozen=True, slots=True)
class _Run:
    """Records per second once it runs, and with the start; CPU seconds per million, the server's left out."""

    steady: float
    wall: float
    cpu: float


def postgres() -> Iterator[Figure]:
    """Records per second into a keyed table."""
    rows = int(os.environ.get("STREAMLING_BENCH_POSTGRES_ROWS", "1_000_000"))
    python, jars = connectors.spark_python(), connectors.spark_jars()
    with servers() as stack:
        place, only_inserts = filled(stack, changes, rows), filled(stack, inserts, rows)
        limits = _merged(place.settings, rows)
        jdbc = _jdbc(python, ",".join(map(str, jars)), only_inserts, rows)
        ours = run_ours(place, rows)
    for contender, run in (("ours, inserts", ours["inserts"]), ("ours, updates", ours["updates"]), ("JDBC", jdbc)):
        shown = f"wall {run.wall:,.0f}; {run.cpu:.1f} CPU s per million"
        yield Figure(f"postgres, {contender}", f"{run.steady:,.0f}", shown, "", holds=True)
    for name, run in ours.items():
        yield _compared(name, run.steady, "COPY and merge alone", limits[name], _LIMIT_BAR)
        yield _compared(name, run.steady, "JDBC append", jdbc.steady, _JDBC_BAR)
    yield _compared("inserts, wall", ours["inserts"].wall, "JDBC append", jdbc.wall, _JDBC_BAR)


def _compared(name: str, mine: float, other: str, theirs: float, bar: float) -> Figure:
    compared = f"x {other} ({mine:,.0f} : {theirs:,.0f})"
    return Figure(f"postgres {name}", f"{mine / theirs:.2f}", compared, f">= {bar} x", mine / theirs >= bar)


def run_ours(place: Place, rows: int) -> dict[str, _Run]:
    """Both in one run: inserts, then updates."""
    _emptied(place.settings, "ours")
    began, found, ends = time.monotonic(), list[Epoch](), list[float]()
    with pipeline(_PIPELINE.format(topic=place.topic, table="ours"), place.settings) as (process, log):
        with watched(process.pid) as usage:
            for goal in (rows, 2 * rows):
                wait_for(process, lambda goal=goal: sum(e.rows for e in epochs(log)) >= goal, _LONGEST_S)
                ends.append(time.monotonic())
            found = epochs(log)
    _check(place.settings, rows)
    cpu = usage.cpu_seconds / (2 * rows) * 1e6
    walls = (rows / (ends[0] - began), rows / (ends[1] - ends[0]))
    steady = (_steady(found, 0, rows), _steady(found, rows, 2 * rows))
    return {name: _Run(steady[i], walls[i], cpu) for i, name in enumerate(("inserts", "updates"))}


def _steady(found: Sequence[Epoch], first: int, last: int) -> float:
    """Of the large epochs within these records, but for the very first one."""
    done = rows = 0  # of those before, of those that count
    seconds = 0.0
    warm = False
    for before, epoch in pairwise(found):
        done += before.rows
        large = epoch.rows > _LARGE_ROWS
        if large and warm and done >= first and done + epoch.rows <= last:
            rows += epoch.rows
            seconds += epoch.at - before.at
        warm = warm or large
    if not rows:
        raise RuntimeError("there was no large epoch; take more rows")
    return rows / seconds


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

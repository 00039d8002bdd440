"""A topic of one partition through a query, dropped at the end: beside the client alone, Structured Streaming, Flink.

`STREAMLING_BENCH_KAFKA_ROWS` is the number of records, one million unless told. Of every contender:

- wall: all records, by the time from the start of the process to the last record;
- steady: ours from the end of the first large epoch to the end of the last one, or, if there is but one, in it; the
  client's from its first record on; Spark's and Flink's when the same query runs a second time in the same process;
- CPU seconds per million records in the steady time, of all its processes; the broker's are not counted;
- the largest resident memory of all its processes together.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from bench import connectors
from bench.figure import Figure
from bench.orders_topic import JSON_COLUMNS, SCHEMA, Place, filled, mixed, servers
from bench.processes import Epoch, epochs, measured, pipeline, wait_for, watched
from streamling.engine.process.java import find_java

_PROJECTION = (
    "SELECT id, upper(customer) AS customer, product, country, note, amount * 2 AS amount, price, created, quantity"
)
QUERIES = {"projection": f"{_PROJECTION} FROM orders", "10 % filter": f"{_PROJECTION} FROM orders WHERE id % 10 = 0"}
_PIPELINE = """\
sources:
  orders: {{type: kafka, topic: {topic}{format}}}
transforms:
  kept: {{type: sql, primary_key: id, sql: "{query}"}}
sinks:
  out: {{type: blackhole, from: kept}}
"""
_BARE_BAR, _WARM_BAR, _WALL_BAR = 0.55, 1.0, 1.5
_LONGEST_S = 1800.0
_PLAIN = Path(__file__).parent / "plain"


@dataclass(frozen=True, slots=True)
class Run:
    """What one contender did, in records per second, CPU seconds per million and megabytes."""

    wall: float
    steady: float
    cpu: float
    rss: float

    @property
    def shown(self) -> str:
        return f"steady {self.steady:,.0f}; {self.cpu:.2f} CPU s per million; {self.rss:,.0f} MB"


def interleaved(contenders: Sequence[Callable[[], Run]], rounds: int) -> list[Run]:
    """The median of each contender. They run in turn: machines are shared, and who comes second finds a warmer one."""
    runs: list[list[Run]] = [[] for _ in contenders]
    for number in range(rounds):
        places = range(len(contenders))
        for place in places if number % 2 == 0 else reversed(places):
            runs[place].append(contenders[place]())
    return [Run(*(statistics.median(values) for values in zip(*map(astuple, own), strict=True))) for own in runs]


def kafka() -> Iterator[Figure]:
    """Records per second, with and without a filter."""
    rows = int(os.environ.get("STREAMLING_BENCH_KAFKA_ROWS", "1_000_000"))
    for fetch in (connectors.spark_python, connectors.spark_jars, connectors.flink_jars):
        fetch()  # now, not while something is measured
    with servers() as stack:
        place = filled(stack, mixed, rows)
        _bare(place, rows)  # the broker's files are in memory from here on, for everybody
        for name, query in QUERIES.items():
            bare, ours = _bare(place, rows), run_ours(place, rows, query)
            # The header is looked at there as well.
            query = query.replace(" FROM", ", _gs_op FROM")
            yield from _figures(name, bare, ours, _structured(place, query), _flink(place, rows, query))


def _figures(name: str, bare: Run, ours: Run, spark: Run, flink: Run) -> Iterator[Figure]:
    for contender, run in (("ours", ours), ("bare loop", bare), ("plain PySpark", spark), ("Flink SQL", flink)):
        yield Figure(f"kafka {name}, {contender}", f"{run.wall:,.0f}", run.shown, "", holds=True)
    bars = (
        ("steady", ours.steady, "the bare loop", bare.steady, _BARE_BAR),
        ("steady", ours.steady, "warm PySpark", spark.steady, _WARM_BAR),
        ("wall", ours.wall, "plain PySpark", spark.wall, _WALL_BAR),
    )
    for what, mine, other, theirs, bar in bars:
        ratio = mine / theirs
        compared = f"x {other} ({mine:,.0f} : {theirs:,.0f})"
        yield Figure(f"kafka {name}, {what}", f"{ratio:.2f}", compared, f">= {bar} x", ratio >= bar)


def run_ours(place: Place, rows: int, query: str, *, as_json: bool = False) -> Run:
    format_ = f", data_format: json, schema: {JSON_COLUMNS}" if as_json else ""
    return run_pipeline(_PIPELINE.format(topic=place.topic, format=format_, query=query), place, rows)


def run_pipeline(text: str, place: Place, rows: int) -> Run:
    """A pipeline that reads so many records, and is ended then."""
    began = time.monotonic()
    with pipeline(text, place.settings) as (process, log), watched(process.pid) as usage:
        wait_for(process, lambda: sum(e.rows for e in epochs(log)) >= rows, _LONGEST_S)
        ended = time.monotonic()
        found = epochs(log)
    done, seconds = steady(found)
    last_ones = usage.cpu_between(ended - seconds, ended)
    return Run(rows / (ended - began), done / seconds, last_ones / done * 1e6, usage.rss_bytes / 1e6)


def steady(found: Sequence[Epoch]) -> tuple[int, float]:
    """Rows and seconds of the large epochs behind the first one; of that one if it is alone."""
    large = [e for e in found if e.rows > 20_000]
    if len(large) > 1:
        behind = found[found.index(large[0]) + 1 :]
        return sum(e.rows for e in behind), found[-1].at - large[0].at
    if not large:
        raise RuntimeError("there was no large epoch; take more rows")
    return large[0].rows, large[0].ms / 1000


def _bare(place: Place, rows: int) -> Run:
    command = [sys.executable, str(_PLAIN / "kafka_loop.py"), place.brokers, place.topic, str(rows)]
    (steady,), wall, cpu, rss = measured(command)
    return Run(rows / wall, steady[0] / steady[1], cpu[0] / steady[0] * 1e6, rss)


def _structured(place: Place, query: str) -> Run:
    jars = ",".join(map(str, connectors.spark_jars()))
    command = [str(connectors.spark_python()), str(_PLAIN / "kafka_structured.py")]
    return _twice([*command, place.brokers, place.topic, jars, SCHEMA, query])


def _flink(place: Place, rows: int, query: str) -> Run:
    jars = ":".join(map(str, connectors.flink_jars()))
    command = [sys.executable, str(_PLAIN / "kafka_flink.py")]
    return _twice([*command, place.brokers, place.registry, place.topic, str(rows), query, str(find_java()), jars])


def _twice(command: Sequence[str]) -> Run:
    """A script that does the same twice: cold, then warm."""
    (cold, warm), wall, cpu, rss = measured(command)
    return Run(cold[0] / wall, warm[0] / warm[1], cpu[1] / warm[0] * 1e6, rss)

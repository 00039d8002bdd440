"""What `on_error: dead_letter` costs while no row is bad: the same pipelines with `on_error: fail` on every node.

A topic of one partition goes through a query into nothing, and is copied into another topic. Both policies run in turn;
the figures are medians. `STREAMLING_BENCH_KAFKA_ROWS` is the number of records, one million unless told.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator

from bench.figure import Figure
from bench.kafka import QUERIES, Run, run_pipeline
from bench.kafka_sink import new_target
from bench.orders_topic import Place, filled, mixed, servers

_ROUNDS = 3
_BAR = 0.97
_FAIL = "on_error: fail"
_PIPELINES = {
    "query": """\
sources:
  orders: {{type: kafka, topic: {topic}, {policy}}}
transforms:
  kept: {{type: sql, primary_key: id, {policy}, sql: "{query}"}}
sinks:
  out: {{type: blackhole, from: kept}}
""",
    "copy": """\
sources:
  orders: {{type: kafka, topic: {topic}, {policy}}}
sinks:
  out: {{type: kafka, from: orders, topic: {out}, data_format: json, topic_partitions: 1, {policy}}}
""",
}


def dead_letters() -> Iterator[Figure]:
    """Records per second with dead letters, by those without."""
    rows = int(os.environ.get("STREAMLING_BENCH_KAFKA_ROWS", "1_000_000"))
    with servers() as stack, tempfile.TemporaryDirectory(prefix="streamling-letters-") as directory:
        place = filled(stack, mixed, rows)
        letters = f"on_error: dead_letter, dead_letter: {{type: file, path: {directory}}}"
        for name, text in _PIPELINES.items():
            runs: dict[str, list[Run]] = {_FAIL: [], letters: []}
            for number in range(_ROUNDS):
                # Whoever comes second finds a warmer machine: take turns.
                for policy in (_FAIL, letters) if number % 2 == 0 else (letters, _FAIL):
                    runs[policy].append(_run(text, place, rows, policy))
            yield from _figures(name, runs[_FAIL], runs[letters])


def _run(text: str, place: Place, rows: int, policy: str) -> Run:
    made = text.format(topic=place.topic, policy=policy, query=QUERIES["projection"], out=new_target(place))
    return run_pipeline(made, place, rows)


def _figures(name: str, without: list[Run], with_letters: list[Run]) -> Iterator[Figure]:
    for what, bar in (("steady", _BAR), ("cpu", 0.0)):
        ours, theirs = (statistics.median(getattr(run, what) for run in runs) for runs in (with_letters, without))
        shown = f"{ours:,.0f} : {theirs:,.0f} rows/s" if bar else f"{ours:.2f} : {theirs:.2f} CPU s per million"
        owed = f">= {bar} x" if bar else ""
        holds = ours / theirs >= bar
        yield Figure(f"dead letters, {name}, {what}", f"{ours / theirs:.3f}", f"x fail ({shown})", owed, holds)

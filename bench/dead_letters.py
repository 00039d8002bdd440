"""What `on_error: dead_letter` costs while no row is bad: the same pipelines with `on_error: fail` on every node.

A topic of one partition goes through a query into nothing, and is copied into another topic. Both policies run in turn;
the figures are medians. `STREAMLING_BENCH_KAFKA_ROWS` is the number of records, one million unless told.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial

from bench.figure import Figure
from bench.kafka import QUERIES, Run, interleaved, run_pipeline
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
            contenders = [partial(_run, text, place, rows, policy) for policy in (_FAIL, letters)]
            yield from _figures(name, *interleaved(contenders, _ROUNDS))


def _run(text: str, place: Place, rows: int, policy: str) -> Run:
    made = text.format(topic=place.topic, policy=policy, query=QUERIES["projection"], out=new_target(place))
    return run_pipeline(made, place, rows)


def _figures(name: str, without: Run, with_letters: Run) -> Iterator[Figure]:
    ratio = with_letters.steady / without.steady
    compared = f"x fail ({with_letters.steady:,.0f} : {without.steady:,.0f})"
    yield Figure(f"dead letters, {name}, steady", f"{ratio:.3f}", compared, f">= {_BAR} x", ratio >= _BAR)
    compared = f"x fail ({with_letters.cpu:.2f} : {without.cpu:.2f} s per million)"
    yield Figure(f"dead letters, {name}, CPU", f"{with_letters.cpu / without.cpu:.3f}", compared, "", holds=True)

"""A topic of one partition copied into another one, as JSON and as Avro: beside the client and Structured Streaming.

`STREAMLING_BENCH_KAFKA_ROWS` is the number of records, one million unless told. Ours writes each epoch in a
transaction; the others do not: theirs is delivered at least once. Ours and Spark's run in turn, three times, and the
figures are medians.

- wall: all records, by the time from the start of the process to the last record;
- steady: ours from the end of the first large epoch to the end of the last one, or, if there is but one, in it; the
  client's from its first record on; Spark's when the same query runs a second time in the same process.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench import connectors
from bench.figure import Figure
from bench.kafka import Run, interleaved, run_pipeline
from bench.orders_topic import SCHEMA, Place, filled, mixed, servers
from bench.processes import measured
from streamling.dev.topics import Topics

_PIPELINE = """\
sources:
  orders: {{type: kafka, topic: {topic}}}
sinks:
  out: {{type: kafka, from: orders, topic: {out}, data_format: {format}, topic_partitions: 1}}
"""
_BAR = 1.5
_ROUNDS = 3
_PLAIN = Path(__file__).parent / "plain"


def kafka_sink() -> Iterator[Figure]:
    """Records per second from topic to topic."""
    rows = int(os.environ.get("STREAMLING_BENCH_KAFKA_ROWS", "1_000_000"))
    for fetch in (connectors.spark_python, connectors.spark_jars):
        fetch()  # now, not while something is measured
    with servers() as stack:
        place = filled(stack, mixed, rows)
        bare = _bare(place, rows)
        yield Figure("kafka copy, bare loop", f"{bare.wall:,.0f}", bare.shown, "", holds=True)
        for format_ in ("json", "avro"):
            contenders = (partial(run_ours, place, rows, format_), partial(_structured, place, format_))
            ours, spark = interleaved(contenders, _ROUNDS)
            yield from _figures(format_, ours, bare, spark)


def _figures(format_: str, ours: Run, bare: Run, spark: Run) -> Iterator[Figure]:
    for contender, run in (("ours", ours), ("plain PySpark", spark)):
        yield Figure(f"kafka copy as {format_}, {contender}", f"{run.wall:,.0f}", run.shown, "", holds=True)
    for other, theirs, bar in (("the bare loop", bare.steady, 0.0), ("warm PySpark", spark.steady, _BAR)):
        ratio = ours.steady / theirs
        compared = f"x {other} ({ours.steady:,.0f} : {theirs:,.0f})"
        owed = f">= {bar} x" if bar else ""
        yield Figure(f"kafka copy as {format_}, steady", f"{ratio:.2f}", compared, owed, ratio >= bar)


def run_ours(place: Place, rows: int, format_: str) -> Run:
    return run_pipeline(_PIPELINE.format(topic=place.topic, out=new_target(place), format=format_), place, rows)


def new_target(place: Place) -> str:
    """A new topic, so that no run finds what another one has left."""
    topic = f"copy-{uuid.uuid4().hex[:8]}"
    Topics(place.brokers).create(topic)
    return topic


def _bare(place: Place, rows: int) -> Run:
    command = [sys.executable, str(_PLAIN / "kafka_copy.py"), place.brokers, place.topic, new_target(place), str(rows)]
    (once,), wall, cpu, rss = measured(command)
    return Run(rows / wall, once[0] / once[1], cpu[0] / once[0] * 1e6, rss)


def _structured(place: Place, format_: str) -> Run:
    jars = ",".join(map(str, connectors.spark_jars()))
    command = [str(connectors.spark_python()), str(_PLAIN / "kafka_copy_structured.py")]
    (cold, warm), wall, cpu, rss = measured(
        [*command, place.brokers, place.topic, new_target(place), jars, SCHEMA, format_]
    )
    return Run(cold[0] / wall, warm[0] / warm[1], cpu[1] / warm[0] * 1e6, rss)

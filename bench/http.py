"""Webhooks and handlers against a local endpoint, beside a loop with httpx alone.

The connectors get rows that are ready in memory, as the loop does: what Spark takes to compute rows is measured
elsewhere.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.figure import Figure
from bench.processes import run_plain
from streamling.connector import Epoch, Runtime, Sink, SinkContext, Task, Transform, TransformContext, kinds
from streamling.engine.protocol.state import MemoryState
from streamling.plan.types import FLOAT64, INT64, OPERATION_FIELD, STRING, Field, Schema
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics

_PIPELINE = """\
sources: {{orders: {{type: generator, primary_key: id}}}}
transforms:
  asked: {{type: handler, from: orders, primary_key: id, url: '{url}', one_row_per_request: true, parallelism: {width}}}
sinks:
  rows: {{type: webhook, from: orders, url: '{url}', one_row_per_request: true}}
  batches: {{type: webhook, from: asked, url: '{url}'}}
"""
_SCHEMA = Schema((Field("id", INT64), Field("customer", STRING), Field("amount", FLOAT64), OPERATION_FIELD))
_SERVER_MS = 5
_BATCH_ROWS = 1000


@contextmanager
def _endpoint(milliseconds: float) -> Iterator[str]:
    script = Path(__file__).parent / "plain" / "http_endpoint.py"
    command = [sys.executable, str(script), str(milliseconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if not process.stdout or not process.stdin:
            raise RuntimeError("the endpoint has no output")
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        finally:
            process.stdin.close()


def _connector(name: str, url: str, width: int = 1) -> Any:
    nodes = load_pipeline(_PIPELINE.format(url=url, width=width), "bench.yaml", kinds.kinds()).nodes
    made = kinds.build(next(node for node in nodes if node.name == name), Settings())
    made.attach(Runtime("bench", MemoryState(), Metrics(), "bench"))
    if isinstance(made, Sink):
        made.open(SinkContext(name, "bench", "bench", _SCHEMA))
    elif isinstance(made, Transform):
        made.open(TransformContext(name, "bench", "bench", _SCHEMA, _SCHEMA, ("id",)))
    return made


def _rows(count: int) -> pa.RecordBatch:
    numbers = range(count)
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "customer": pa.array([f"c-{n % 1000}" for n in numbers]),
        "amount": pa.array([n / 8 for n in numbers]),
        "_gs_op": pa.array(["i"] * count),
    }
    return pa.RecordBatch.from_pydict(columns)


def _epoch(number: int) -> Epoch:
    return Epoch(str(number), number, "bench", "bench", 0, 0, ())


def http() -> Iterator[Figure]:
    yield webhook("one row per request", "rows", rows=5_000, size=0)
    yield webhook("batches", "batches", rows=500_000, size=_BATCH_ROWS)
    for width in (1, 4):
        yield handler(width, rows=500 * width)


def webhook(title: str, name: str, *, rows: int, size: int) -> Figure:
    """Medians of three, interleaved."""
    ours, others = [], []
    with _endpoint(0) as url:
        for _ in range(3):
            ours.append(webhook_rate(name, url, rows))
            others.append(float(run_plain("http_loop.py", url, str(rows), str(size))[0]))
    mine, other = statistics.median(ours), statistics.median(others)
    ratio = mine / other
    compared = f"{ratio:.2f} x httpx alone ({other:,.0f})"
    return Figure(f"webhook, {title}", f"{mine:,.0f} rows/s", compared, ">= 0.7 x", ratio >= 0.7)


def webhook_rate(name: str, url: str, rows: int) -> float:
    """Rows per second, after a warm-up."""
    sink = _connector(name, url)
    batch = _rows(rows)
    sink.write(_epoch(1), Task(0, 0), [batch.slice(0, rows // 10)])
    began = time.perf_counter()
    sink.write(_epoch(2), Task(0, 0), [batch.slice(rows // 10)])
    took = time.perf_counter() - began
    sink.close()
    return (rows - rows // 10) / took


def handler(width: int, *, rows: int) -> Figure:
    """Medians of three, interleaved."""
    ours, others = [], []
    with _endpoint(_SERVER_MS) as url:
        for _ in range(3):
            ours.append(handler_rate(url, width, rows))
            others.append(float(run_plain("http_loop.py", url, str(rows), "0", str(width))[0]))
    mine, other = statistics.median(ours), statistics.median(others)
    most = width / (_SERVER_MS / 1000)
    compared = f"{mine / most:.2f} x the most possible, {mine / other:.2f} x httpx alone ({other:,.0f})"
    name = f"handler, {width} requests of {_SERVER_MS} ms at once"
    return Figure(name, f"{mine:,.0f} rows/s", compared, ">= 0.8 x", mine >= 0.8 * most)


def handler_rate(url: str, width: int, rows: int) -> float:
    """Rows per second, after a warm-up."""
    transform = _connector("asked", url, width)
    processor, batch = transform.processor(), _rows(rows)
    list(processor.process(_epoch(1), iter([batch.slice(0, rows // 10)])))
    began = time.perf_counter()
    given = sum(found.num_rows for found in processor.process(_epoch(2), iter([batch.slice(rows // 10)])))
    took = time.perf_counter() - began
    transform.close()
    return given / took

"""Webhooks and handlers against a local endpoint, beside a loop with httpx alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure
from bench.processes import epochs, pipeline, run_plain

_SOURCE = """\
sources:
  orders:
    type: generator
    rows: {rows}
    primary_key: id
    columns: {{id: id, customer: "concat('c-', id % 1000)", amount: "id / 8.0"}}
"""
_WEBHOOK = "sinks: {{out: {{type: webhook, from: orders, url: '{url}', one_row_per_request: {one_row}}}}}\n"
_HANDLER = """\
transforms:
  asked: {{type: handler, from: orders, primary_key: id, url: '{url}', one_row_per_request: true, parallelism: {width}}}
sinks: {{out: {{type: blackhole, from: asked}}}}
"""
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


def _rate(yaml: str, settings: dict[str, str]) -> float:
    """Rows per second of all epochs but the first, as long as they ran."""
    with pipeline(yaml, {"STATE_BACKEND__BACKEND_TYPE": "InMemory", **settings}) as (process, log):
        process.communicate(timeout=600)
        found = epochs(log)[1:]
        if not found:
            raise RuntimeError(log.read_text()[-2000:])
    return sum(epoch.rows for epoch in found) / sum(epoch.ms for epoch in found) * 1000


def http() -> Iterator[Figure]:
    yield webhook("one row per request", rows=10_000, size=0)
    yield webhook("batches", rows=500_000, size=_BATCH_ROWS)
    for width in (2, 4):
        yield handler(width, rows=1500 * width)


def webhook(name: str, *, rows: int, size: int) -> Figure:
    with _endpoint(0) as url:
        yaml = _SOURCE.format(rows=rows) + _WEBHOOK.format(url=url, one_row=str(size == 0).lower())
        mine = _rate(yaml, {"EPOCH__ROWS": str(rows // 5), "EPOCH__DRIVER_ROWS": str(rows // 5)})
        other = float(run_plain("http_loop.py", url, str(rows), str(size))[0])
    ratio = mine / other
    return Figure(
        f"webhook, {name}", f"{mine:,.0f} rows/s", f"{ratio:.2f} x httpx alone ({other:,.0f})", ">= 0.7 x", ratio >= 0.7
    )


def handler(width: int, *, rows: int) -> Figure:
    with _endpoint(_SERVER_MS) as url:
        yaml = _SOURCE.format(rows=rows) + _HANDLER.format(url=url, width=width)
        mine = _rate(yaml, {"EPOCH__ROWS": str(rows // 3), "EPOCH__DRIVER_ROWS": str(rows // 3)})
    most = width / (_SERVER_MS / 1000)
    ratio = mine / most
    name = f"handler, {width} requests of {_SERVER_MS} ms at once"
    return Figure(
        name, f"{mine:,.0f} rows/s", f"{ratio:.2f} x the most possible ({most:,.0f})", ">= 0.8 x", ratio >= 0.8
    )

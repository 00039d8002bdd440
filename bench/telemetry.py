"""What metrics cost: the same pipeline with their export off and on, in turn, each several times.

Rows are always counted; what the counting of rows between two filters costs shows the last figure, as the same filters
in one query need no counting.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.figure import Figure
from bench.processes import epochs, pipeline, wait_for

_SOURCE = "{{type: generator, primary_key: id, {how}, columns: {{id: id, customer: \"concat('c-', id % 3)\"}}}}"
_ONE = "SELECT id, upper(customer) AS customer FROM orders WHERE id % 10 <> 0 AND id % 7 <> 0"
_FIRST = "SELECT id, upper(customer) AS customer FROM orders WHERE id % 10 <> 0"
_PIPELINE = """\
sources:
  orders: {source}
transforms:
  first: {{type: sql, primary_key: id, sql: "{first}"}}
  second: {{type: sql, primary_key: id, sql: "SELECT id, customer FROM first{where}"}}
sinks:
  out: {{type: blackhole, from: second}}
"""
_ROUNDS = 3
_ROWS = 250_000_000


def telemetry() -> Iterator[Figure]:
    """Small epochs and rows per second with the export of metrics, as a share of those without."""
    with _receiver() as endpoint:
        exporting = {
            "OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT": endpoint,
            "OPEN_TELEMETRY_METRICS__BATCH_INTERVAL_SECS": "1",
        }
        off, on = _in_turn(lambda: _small_ms({}), lambda: _small_ms(exporting))
        yield _ratio("small epoch with metrics", on, off, "ms", 1.05, lower=True)
        off, on = _in_turn(lambda: _rate({}), lambda: _rate(exporting))
        yield _ratio("rows per second with metrics", on, off, "rows/s", 0.97, lower=False)
    one, two = _in_turn(lambda: _small_ms({}, two_filters=False), lambda: _small_ms({}))
    yield _ratio("small epoch, two filters", two, one, "ms", 1.25, lower=True)


def _in_turn(one: Callable[[], float], other: Callable[[], float]) -> tuple[float, float]:
    """The medians of both. Each begins in turn, so that a machine that slows down meanwhile favours neither."""
    first: list[float] = []
    second: list[float] = []
    both = [(first, one), (second, other)]
    for number in range(_ROUNDS):
        for found, measure in both if number % 2 == 0 else reversed(both):
            found.append(measure())
    return statistics.median(first), statistics.median(second)


def _ratio(name: str, with_: float, without: float, unit: str, bar: float, *, lower: bool) -> Figure:
    ratio = with_ / without
    sign = "<=" if lower else ">="
    holds = ratio <= bar if lower else ratio >= bar
    value = f"{with_:,.0f} {unit}"
    return Figure(name, value, f"{ratio:.2f} x without ({without:,.0f} {unit})", f"{sign} {bar:.2f} x", holds)


def _small_ms(settings: Mapping[str, str], *, two_filters: bool = True) -> float:
    """The median of epochs of about 100 rows."""
    text = _text("rate: 1000", two_filters=two_filters)
    with pipeline(text, {"RECORD_BATCH_INTERVAL_MS": "100", **settings}) as (process, log):
        wait_for(process, lambda: len(epochs(log)) >= 250, 300)
        return statistics.median(e.ms for e in epochs(log)[100:] if 50 <= e.rows <= 300)


def _rate(settings: Mapping[str, str]) -> float:
    """Rows per second of large epochs behind the first ones."""
    with pipeline(_text(f"rows: {_ROWS}"), settings) as (process, log):
        process.communicate(timeout=600)
        steady = [e for e in epochs(log) if e.rows > 1_000_000][2:]
    return sum(e.rows for e in steady[1:]) / (steady[-1].at - steady[0].at)


def _text(how: str, *, two_filters: bool = True) -> str:
    source = _SOURCE.format(how=how)
    if two_filters:
        return _PIPELINE.format(source=source, first=_FIRST, where=" WHERE id % 7 <> 0")
    return _PIPELINE.format(source=source, first=_ONE, where="")


@contextmanager
def _receiver() -> Iterator[str]:
    """Takes every request, and does nothing with it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/metrics"
        finally:
            server.shutdown()

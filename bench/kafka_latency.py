"""From the producer to the sink: how long a row takes when a thousand come every second, and what none at all cost."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from bench.orders_topic import place_of, produce, servers
from bench.processes import cpu_seconds, pipeline, wait_for

_PIPELINE = """\
sources:
  orders: {{type: kafka, topic: {topic}}}
transforms:
  shouted: {{type: sql, primary_key: id, sql: "SELECT id, upper(customer) AS customer, created FROM orders"}}
sinks:
  out: {{type: bench.latency, from: shouted, path: {path}}}
"""
_RATE = 1000
_WARM_UP_S, _MEASURED_S = 30.0, 30.0
_SETTLED_S, _IDLE_S = 10.0, 30.0
_MEDIAN_BAR_MS, _P99_BAR_MS, _IDLE_BAR = 200, 500, 0.015


def kafka_latency() -> Iterator[Figure]:
    """Milliseconds from the producer to the sink, then the CPU of the same run while nothing comes."""
    plugin = {"PLUGIN__PATH": str(Path(__file__).parent / "latency_sink.py")}
    with servers() as stack, tempfile.TemporaryDirectory(prefix="streamling-latency-") as directory:
        place, path = place_of(stack, f"latency-{time.time_ns()}"), Path(directory, "rows")
        text = _PIPELINE.format(topic=place.topic, path=json.dumps(str(path)))
        with pipeline(text, {**place.settings, **plugin}) as (process, _log):
            produce(place, _RATE, 1.0)
            wait_for(process, lambda: path.exists() and path.stat().st_size > 0, 120)
            produce(place, _RATE, _WARM_UP_S)
            since = time.time_ns() // 1000
            produce(place, _RATE, _MEASURED_S)
            time.sleep(_SETTLED_S)
            yield _latency(path, since)
            yield _idle(process)


def _latency(path: Path, since: int) -> Figure:
    rows = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    taken = [(arrived - created) / 1000 for created, arrived in rows if created >= since]
    if len(taken) < _MEASURED_S * _RATE:
        raise RuntimeError(f"{len(taken)} rows have arrived")
    median, late = statistics.median(taken), statistics.quantiles(taken, n=100)[98]
    return Figure(
        f"kafka latency at {_RATE:,} rows/s, median",
        f"{median:.0f} ms",
        f"99 in 100 within {late:.0f} ms",
        f"< {_MEDIAN_BAR_MS}, < {_P99_BAR_MS} ms",
        median < _MEDIAN_BAR_MS and late < _P99_BAR_MS,
    )


def _idle(process: subprocess.Popen[str]) -> Figure:
    before, at = cpu_seconds(process), time.monotonic()
    time.sleep(_IDLE_S)
    share = (cpu_seconds(process) - before) / (time.monotonic() - at)
    if process.poll() is not None:
        raise RuntimeError("the idle pipeline ended")
    return Figure("kafka idle", f"{share:.2%} of a core", "a topic that gets nothing", "< 1.5 %", share < _IDLE_BAR)

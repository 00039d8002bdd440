"""An epoch as a trace: reading, computing, each sink and the finalization are its spans."""

from __future__ import annotations

from streamling.engine.protocol.epoch_times import EpochTimes
from streamling.telemetry.run_telemetry import Telemetry
from streamling.telemetry.tracing import Span


def trace_epoch(telemetry: Telemetry, times: EpochTimes) -> None:
    """Sends an epoch that was finalized, if traces are exported."""
    tracer = telemetry.tracer
    if tracer is None:
        return
    began, read_s, transform_s = times.began, times.read_ms / 1000, times.transform_ms / 1000
    finalize_s, total_s = times.finalize_ms / 1000, times.total_ms / 1000
    flushed = began + total_s - finalize_s
    sinks = [
        Span(f"sink {name}", began + (times.commits.get(name, ms) - ms) / 1000, ms / 1000, node=name)
        for name, ms in times.sinks.items()
    ]
    parts = [
        Span("read", began - read_s, read_s, rows=times.rows),
        Span("transform", began, transform_s),
        *sinks,
        Span("finalize", flushed, finalize_s),
    ]
    attributes: dict[str, str | int] = {
        "epoch": times.number,
        "rows": times.rows,
        "replayed": str(times.replayed).lower(),
    }
    tracer.record(f"epoch {times.number}", began - read_s, read_s + total_s, parts, **attributes)

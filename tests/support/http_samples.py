"""Webhooks as a pipeline file describes them, opened against a server of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from streamling.connector import BadRow, Report, Runtime, SinkContext, Task, TransformContext, kinds
from streamling.engine.protocol.state import MemoryState
from streamling.plan.pipeline import make_plan
from streamling.plan.types import INT64, OPERATION_FIELD, STRING, U256, Field, Schema
from streamling.spec.pipeline import load_pipeline
from streamling.spec.secret import Secret
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import ExternalHttpHandler
from streamling.telemetry.metrics import Metrics
from support.connector_samples import epoch, rows, sink

SCHEMA = Schema((Field("name", STRING), OPERATION_FIELD))
EPOCH = epoch(1, 0, 10)
PAUSE_S = 0.01


def settings(**limits: int) -> Settings:
    return Settings(
        external_http_handler=ExternalHttpHandler(**limits),
        http_secret_header={"crm_token": Secret("X-Crm"), "signing": Secret("X-Unused")},
        http_secret_value={"crm_token": Secret("s3cret-Of-Crm"), "signing": Secret("sign-Ing-K3y")},
    )


def runtime(metrics: Metrics, ends_retries: Callable[[], bool] = lambda: False) -> Runtime:
    """Pauses between attempts are short, as long as the server does not ask for one."""
    return Runtime(
        "app", MemoryState(), metrics, "gen", ends_retries, lambda seconds: time.sleep(min(seconds, PAUSE_S))
    )


@contextmanager
def webhook(
    url: str,
    fields: str = "",
    *,
    key: tuple[str, ...] = (),
    width: int = 1,
    ends_retries: Callable[[], bool] = lambda: False,
    **limits: int,
) -> Iterator[Any]:
    """An opened sink; `metrics` are those that it records."""
    made = sink(f"type: webhook, url: '{url}'{', ' if fields else ''}{fields}", settings=settings(**limits))
    made.metrics = Metrics()
    made.attach(runtime(made.metrics, ends_retries))
    made.open(SinkContext("out", "app", "gen", SCHEMA, key, width))
    try:
        yield made
    finally:
        made.close()


def deliver(to: Any, *names: object, epoch_: Any = EPOCH, operation: object = "i") -> Report:
    report: Report = to.writer().write(epoch_, Task(0, 0), [rows(list(names), operation)])
    return report


def counts(metrics: Metrics, name: str = "streamling_http_requests") -> dict[tuple[str, ...], float]:
    """The counts of a metric by outcome, if it has one, and class of status."""
    found = {}
    for measured in metrics.snapshot():
        if measured.name == name:
            labels = dict(measured.labels)
            key = tuple(labels[label] for label in ("outcome", "status_class") if label in labels)
            found[key] = measured.value
    return found


@contextmanager
def handler(
    url: str,
    fields: str = "",
    *,
    ends_retries: Callable[[], bool] = lambda: False,
    **limits: int,
) -> Iterator[Any]:
    """An opened handler over the rows of `INPUT`; `metrics` are those that it records."""
    text = (
        f"sources: {{rows: {{type: file, path: x, format: json, primary_key: id, "
        f"schema: {{id: int64, data: string, big: string}}}}}}\n"
        f"transforms: {{asked: {{type: handler, from: rows, primary_key: id, url: '{url}'"
        f"{', ' if fields else ''}{fields}}}}}\n"
        "sinks: {out: {type: blackhole, from: asked}}"
    )
    plan = make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))
    node = plan.transforms[0]
    made: Any = kinds.build(node.spec, settings(**limits))
    made.metrics = Metrics()
    made.attach(runtime(made.metrics, ends_retries))
    schema = node.spec.options.reshaped(node.spec, INPUT)  # type: ignore[attr-defined]
    made.open(TransformContext("asked", "app", "gen", INPUT, schema, ("id",)))
    try:
        yield made
    finally:
        made.close()


INPUT = Schema((Field("id", INT64, nullable=False), Field("data", STRING), Field("big", U256), OPERATION_FIELD))


def asked(of: Any, *data: str | None, epoch_: Any = EPOCH, operation: str = "i") -> tuple[list[Any], list[BadRow]]:
    """The rows that come out for rows with these texts, and the bad rows."""
    columns = [
        pa.array(range(1, len(data) + 1), pa.int64()),
        pa.array(data, pa.string()),
        pa.array([str(2**255 + n) for n in range(len(data))], pa.string()),
        pa.array([operation] * len(data), pa.string()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=list(INPUT.names))
    items = list(of.processor().process(epoch_, iter([batch.slice(0, 2), batch.slice(2)])))
    found = [item for item in items if isinstance(item, pa.RecordBatch)]
    return [row for one in found for row in one.to_pylist()], [item for item in items if isinstance(item, BadRow)]

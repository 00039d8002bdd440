"""Webhooks as a pipeline file describes them, opened against a server of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamling.connector import Report, Runtime, SinkContext, Task
from streamling.engine.protocol.state import MemoryState
from streamling.plan.types import OPERATION_FIELD, STRING, Field, Schema
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

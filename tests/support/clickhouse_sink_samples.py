"""ClickHouse sinks over tables of a test, driven as the engine does it, and a proxy that can be told to fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from streamling.connector import Epoch, Report, SinkContext, kinds
from streamling.plan.types import Schema
from streamling.sinks.clickhouse.sink import ClickHouseSink
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics
from support.clickhouse_server import ClickHouseDatabase
from support.http_samples import runtime
from support.http_server import Answer, RecordingServer, Request, recording_server
from support.postgres_samples import ITEMS, TASK, batch, epoch

_numbers = itertools.count(1)
FORWARDED = ("content-encoding", "x-clickhouse-database", "authorization", "user-agent")


def new_table() -> str:
    return f"t{next(_numbers)}"


@contextmanager
def sink(
    database: ClickHouseDatabase,
    table: str,
    more: str = "",
    *,
    columns: Schema = ITEMS,
    key: tuple[str, ...] = ("id",),
    width: int = 1,
    ends_retries: Callable[[], bool] = lambda: False,
    **connection: object,
) -> Iterator[ClickHouseSink]:
    """A sink called `out`, opened. `connection`: settings that differ from those of the database."""
    made = build(table, more, key=key, **(database.connection() | connection))
    made.attach(runtime(Metrics(), ends_retries))
    try:
        made.open(SinkContext("out", "app", "g", columns, key, width))
        yield made
    finally:
        made.close()


def build(table: str, more: str = "", *, key: Sequence[str] = ("id",), **connection: object) -> ClickHouseSink:
    text = (
        "sources: {rows: {type: generator, columns: {id: id}, primary_key: id}}\n"
        f"sinks: {{out: {{type: clickhouse, from: rows, table: {table}, primary_key: '{', '.join(key)}'{more}}}}}"
    )
    pipeline = load_pipeline(text, "p.yaml", kinds.kinds())
    assert not pipeline.problems, pipeline.problems
    settings = Settings.model_validate({"clickhouse_sink": connection})
    made = kinds.build(pipeline.sinks[0], settings)
    assert isinstance(made, ClickHouseSink)
    return made


def write(
    to: ClickHouseSink, rows: Sequence[tuple[Any, ...]], into: Epoch | None = None, columns: Schema = ITEMS
) -> Report:
    """Written and committed; returns the report."""
    into = into or epoch(0, next(_numbers))
    report = to.writer().write(into, TASK, [batch(rows, columns)] if rows else [])
    to.commit(into, [report])
    return report


def statement(request: Request) -> str:
    """What a request asks for."""
    query = parse_qs(urlsplit(request.path).query).get("query")
    return query[0] if query else request.body.decode()


def token(request: Request) -> str:
    return parse_qs(urlsplit(request.path).query)["insert_deduplication_token"][0]


@contextmanager
def proxy(
    database: ClickHouseDatabase, respond: Callable[[Request, Callable[[], Answer]], Answer]
) -> Iterator[RecordingServer]:
    """A server in front of another; `respond` gets a request, and a function that lets the real server answer it."""

    def forward(request: Request) -> Answer:
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        answer = httpx.post(database.server.url + request.path, headers=headers, content=request.body, timeout=60)
        code = answer.headers.get("X-ClickHouse-Exception-Code")
        return Answer(answer.status_code, answer.content, {"X-ClickHouse-Exception-Code": code} if code else {})

    with recording_server(lambda request: respond(request, lambda: forward(request))) as front:
        yield front

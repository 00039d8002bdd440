"""Postgres sinks over databases of a test, driven as the engine does it: write, commit, abort."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from streamling.connector import Epoch, Json, Report, Sink, SinkContext, Slice, Task, kinds
from streamling.formats.arrow import arrow_schema
from streamling.plan.types import INT64, OPERATION_FIELD, STRING, Field, Schema
from streamling.sinks.postgres.sink import PostgresSink
from streamling.sinks.postgres.transaction import TransactionSink
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from support.postgres_server import Database

AnySink = TypeVar("AnySink", bound=Sink)
ITEMS = Schema((Field("id", INT64, nullable=False), Field("name", STRING), Field("score", INT64), OPERATION_FIELD))
TASK = Task(0, 0)


@contextmanager
def sink(
    database: Database,
    more: str = "",
    *,
    columns: Schema = ITEMS,
    key: tuple[str, ...] = ("id",),
    generation: str = "g",
    node: str = "out",
    table: str = "items",
    **settings: object,
) -> Iterator[PostgresSink]:
    """A sink into this table of the schema `shop`, opened."""
    text = (
        "sources: {rows: {type: generator, columns: {id: id}, primary_key: id}}\n"
        f"sinks: {{{node}: {{type: postgres, from: rows, schema: shop, table: {table}{more}}}}}"
    )
    context = SinkContext(node, "app", generation, columns, key)
    with opened(database, text, PostgresSink, context, **settings) as made:
        yield made


@contextmanager
def opened(
    database: Database, text: str, kind: type[AnySink], context: SinkContext, **settings: object
) -> Iterator[AnySink]:
    """The sink of a pipeline, opened. Settings are those of Postgres sinks, or `checkpoint_interval_sec`."""
    more = {name: settings.pop(name) for name in ("checkpoint_interval_sec",) if name in settings}
    pipeline = load_pipeline(text, "p.yaml", kinds.kinds())
    assert not pipeline.problems, pipeline.problems
    connection = {
        "host": database.host,
        "port": database.port,
        "user": database.user,
        "pass": database.password,
        "db": database.name,
    }
    sink_settings = {"batch_size": 1000, **connection, **settings}
    made = kinds.build(pipeline.sinks[0], Settings.model_validate({"postgres_sink": sink_settings, **more}))
    assert isinstance(made, kind)
    made.open(context)
    try:
        yield made
    finally:
        made.close()


def epoch(start: Json, end: Json, *, key: str = "rows:generator", id_: str | None = None, number: int = 1) -> Epoch:
    slices = (Slice("rows", key, start, end, (), 1),)
    return Epoch(id_ or uuid.uuid4().hex, number, "app", "g", 0, 0, slices)


LOOSE = Epoch("loose", 1, "app", "g", 0, 0, ())
"""An epoch that no position tells of."""


def batch(rows: Sequence[tuple[Any, ...]], columns: Schema = ITEMS) -> pa.RecordBatch:
    schema = arrow_schema(columns)
    values = zip(*rows, strict=True) if rows else [() for _ in schema]
    arrays = [pa.array(list(column), field.type) for column, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write(
    sink: TransactionSink, rows: Sequence[tuple[Any, ...]], into: Epoch = LOOSE, columns: Schema = ITEMS
) -> Report:
    """Written and committed; returns the report."""
    report = sink.writer().write(into, TASK, [batch(rows, columns)] if rows else [])
    sink.commit(into, [report])
    return report


def items(database: Database, columns: str = "*") -> list[tuple[Any, ...]]:
    return database.rows(f"SELECT {columns} FROM shop.items ORDER BY 1")

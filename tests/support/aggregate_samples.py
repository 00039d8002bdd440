"""Aggregate sinks over databases of a test, driven as the engine does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamling.connector import SinkContext
from streamling.plan.types import INT64, OPERATION_FIELD, STRING, Field, Schema
from streamling.sinks.postgres_aggregate.sink import PostgresAggregateSink
from support.postgres_samples import opened
from support.postgres_server import Database

PAYMENTS = Schema(
    (Field("id", INT64, nullable=False), Field("account", STRING), Field("amount", INT64), OPERATION_FIELD)
)
BY_ACCOUNT = "group_by: {account: {type: text}}, "
BALANCE = BY_ACCOUNT + "aggregate: {balance: {from: amount, fn: sum}, n: {fn: count}}"
EVERYTHING = (
    "aggregate: {total: {from: amount, fn: sum}, n: {fn: count}, mean: {from: amount, fn: avg}, "
    "least: {from: amount, fn: min}, most: {from: amount, fn: max}}"
)


@contextmanager
def aggregate_sink(
    database: Database,
    options: str = BALANCE,
    *,
    columns: Schema = PAYMENTS,
    key: tuple[str, ...] = ("id",),
    generation: str = "g",
    node: str = "out",
    tables: str = "landing_table: landed, agg_table: totals",
    **settings: object,
) -> Iterator[PostgresAggregateSink]:
    """A sink into tables of the schema `stats`, opened."""
    text = (
        "sources: {rows: {type: generator, columns: {id: id}, primary_key: id}}\n"
        f"sinks: {{{node}: {{type: postgres_aggregate, from: rows, schema: stats, {tables}, {options}}}}}"
    )
    context = SinkContext(node, "app", generation, columns, key)
    with opened(database, text, PostgresAggregateSink, context, **settings) as made:
        yield made


def totals(database: Database, columns: str = "*", table: str = "totals") -> list[tuple[Any, ...]]:
    return database.rows(f"SELECT {columns} FROM stats.{table} ORDER BY 1")

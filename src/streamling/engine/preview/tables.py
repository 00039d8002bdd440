"""The rows of lookups and dynamic tables in a preview: they are no streams, so no sink can get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from streamling.connector import Lookup
from streamling.connector.table import TableBackend
from streamling.engine.preparation import build_lookups, build_tables
from streamling.errors import StreamlingError
from streamling.plan.dynamic_tables import table_columns
from streamling.plan.pipeline import Plan
from streamling.plan.types import Schema
from streamling.retry import retry
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableRows:
    """The first rows of a table, or why there are none. `count`: all of them, as far as that is known."""

    rows: Sequence[Mapping[str, Any]] = ()
    count: int = 0
    failure: StreamlingError | None = None


def lookup_rows(table: pa.Table, columns: Schema, limit: int) -> TableRows:
    return TableRows(_objects(table.slice(0, limit), columns), table.num_rows)


def dynamic_table_rows(backend: TableBackend, columns: Schema, limit: int) -> TableRows:
    """`backend` is open. After the run, it also has what queries have added."""
    try:
        table = backend.sample(limit)
    except StreamlingError as error:
        return TableRows(failure=error)
    rows = _objects(table.rename_columns(list(columns.names)), columns)
    return TableRows(rows, len(rows))


def read_tables(plan: Plan, settings: Settings, limit: int, budget_s: float) -> dict[str, TableRows]:
    """By id: the rows of all tables of a plan, read without running it."""
    found: dict[str, TableRows] = {}
    for ref, lookup in build_lookups(plan, settings).items():
        node = plan.node(ref)
        found[node.id] = _attempt(partial(_read, lookup, node.schema, limit, budget_s))
    for ref, backend in build_tables(plan, settings).items():
        node = plan.dynamic_table(ref)
        columns = table_columns(node.spec)
        found[node.id] = _attempt(partial(_sample, backend.for_preview(), columns, limit, budget_s))
    return found


def _read(lookup: Lookup, columns: Schema, limit: int, budget_s: float) -> TableRows:
    with closing(lookup):
        return lookup_rows(retry(lookup.read, what="reading a lookup", budget_s=budget_s, quiet=True), columns, limit)


def _sample(backend: TableBackend, columns: Schema, limit: int, budget_s: float) -> TableRows:
    with closing(backend):
        retry(backend.open, what="opening a dynamic table", budget_s=budget_s, quiet=True)
        return dynamic_table_rows(backend, columns, limit)


def _attempt(read: Callable[[], TableRows]) -> TableRows:
    try:
        return read()
    except StreamlingError as error:
        return TableRows(failure=error)


def _objects(table: pa.Table, columns: Schema) -> list[Mapping[str, Any]]:
    from streamling.formats.json import json_objects

    batches = table.combine_chunks().to_batches()
    return [row for batch in batches for row in json_objects(batch, range(batch.num_rows), columns)]

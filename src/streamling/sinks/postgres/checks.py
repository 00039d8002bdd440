"""Rules about the columns of every table that a sink writes rows to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamling.errors import INVALID_VALUE
from streamling.plan.contract import Finding, Key
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sinks.postgres.columns import MAX_SCALE, NESTED
from streamling.spec.pipeline import NodeSpec

_MAX_NAME_BYTES = 63


def check_written_columns(node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:
    names = [name for name in columns.names if name != OPERATION_COLUMN]
    yield from check_name_lengths(node, names, hint="give it a shorter name in a sql transform")
    for field in columns:
        if (field.type.scale or 0) > MAX_SCALE:
            limit = f"Postgres keeps {MAX_SCALE} digits after the decimal point"
            hint = "cast it in a sql transform, to text if nothing may be lost"
            yield node.error(INVALID_VALUE, f"column '{field.name}' is {field.type}; {limit}", hint=hint)
    for name in key:
        if (column := columns.get(name)) is not None and column.type.kind in NESTED:
            message = f"the key column '{name}' is {column.type}, which cannot be a key"
            yield node.error(INVALID_VALUE, message, hint="choose columns of plain values as the primary key")


def check_name_lengths(node: NodeSpec, names: Iterable[str], *path: str, hint: str) -> Iterator[Finding]:
    """Postgres cuts longer names off, and two columns could become one. `path` leads to the field with the names."""
    for name in names:
        if (length := len(name.encode())) > _MAX_NAME_BYTES:
            message = f"the name of column '{name}' has {length} bytes; Postgres keeps {_MAX_NAME_BYTES}"
            yield node.error(INVALID_VALUE, message, *path, hint=hint)

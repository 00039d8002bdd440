"""Columns as an Avro schema: the one that a sink registers for a topic that has none.

The root is a union of null and a record, whose `doc` names the primary key: the Kafka source reads it back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from streamling.plan.types import DataType, Field, Schema

Json = Any

_PRIMITIVES = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "uint8": "int",
    "uint16": "int",
    "int64": "long",
    "uint32": "long",
    "uint64": "long",
    "float16": "float",
    "float32": "float",
    "float64": "double",
    "string": "string",
    "binary": "bytes",
}
_MILLIS = ("s", "ms")


def derive_schema(columns: Schema, topic: str, key: Sequence[str]) -> Json:
    """The schema of a topic with these columns. They have no types without an Avro counterpart."""
    names = _RecordNames(_record_name(topic))
    record = _record(columns.fields, names.root, (), names)
    if key:
        record["doc"] = json.dumps({"primaryKeys": [field_name(name) for name in key]})
    return ["null", record]


def field_name(column: str) -> str:
    """The name of a field for a column: only letters, digits and `_`, and no digit first."""
    name = re.sub(r"[^A-Za-z0-9_.]", "_", column).replace(".", "__")
    return f"_{name}" if not name or name[0].isdigit() else name


def same_field(fields: Sequence[Field], path: str = "") -> Iterator[tuple[str, str, str]]:
    """Columns whose names become the same field name: two paths and that name; inner ones too."""
    first: dict[str, str] = {}
    for field in fields:
        here, name = f"{path}{field.name}", field_name(field.name)
        if name in first:
            yield first[name], here, name
        first.setdefault(name, here)
        inner: DataType | None = field.type
        while inner is not None and inner.kind in ("list", "map"):
            inner = inner.item
        if inner is not None and inner.kind == "struct":
            yield from same_field(inner.fields, f"{here}.")


class _RecordNames:
    """Names of records: each may be defined only once."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._namespace, _, short = root.rpartition(".")
        self._taken = {short}

    def name(self, parent: str, path: tuple[str, ...]) -> str:
        short, root = parent.rpartition(".")[2], self.root.rpartition(".")[2]
        candidates = [f"{short}_{path[-1]}", "_".join((root, *path))]
        name = next((name for name in candidates if name not in self._taken), None)
        number = 2
        while name is None:
            candidate = f"{candidates[1]}_{number}"
            name = candidate if candidate not in self._taken else None
            number += 1
        self._taken.add(name)
        return f"{self._namespace}.{name}" if self._namespace else name


def _record_name(topic: str) -> str:
    return ".".join(_name_part(part) for part in topic.split("."))


def _name_part(part: str) -> str:
    valid = re.sub(r"[^A-Za-z0-9_]", "_", part)
    return f"_{valid}" if not valid or valid[0].isdigit() else valid


def _record(fields: Sequence[Field], name: str, path: tuple[str, ...], names: _RecordNames) -> dict[str, Json]:
    derived = []
    for field in fields:
        own = field_name(field.name)
        derived.append({"name": own, "type": _nullable(field.type, field.nullable, name, (*path, own), names)})
    return {"type": "record", "name": name, "fields": derived}


def _nullable(type_: DataType, nullable: bool, record: str, path: tuple[str, ...], names: _RecordNames) -> Json:
    schema = _schema(type_, record, path, names)
    return ["null", schema] if nullable else schema


def _schema(type_: DataType, record: str, path: tuple[str, ...], names: _RecordNames) -> Json:
    if (primitive := _PRIMITIVES.get(type_.kind)) is not None:
        return primitive
    match type_:
        case DataType(kind="timestamp", unit=unit):
            return {"type": "long", "logicalType": "timestamp-millis" if unit in _MILLIS else "timestamp-micros"}
        case DataType(kind="date32" | "date64"):
            return {"type": "int", "logicalType": "date"}
        case DataType(kind="decimal" | "decimal_arb"):
            digits = {"precision": type_.precision, "scale": type_.scale}
            return {"type": "bytes", "logicalType": "decimal", **digits}
        # Items of lists and maps may always be null: the planner does not know better.
        case DataType(kind="list", item=DataType() as item):
            return {"type": "array", "items": _nullable(item, True, record, (*path, "item"), names)}
        case DataType(kind="map", item=DataType() as item):
            return {"type": "map", "values": _nullable(item, True, record, (*path, "value"), names)}
        case DataType(kind="struct", fields=fields):
            return _record(fields, names.name(record, path), path, names)
    raise ValueError(f"no Avro encoding for {type_}")

"""Columns paired with an Avro schema by name: the encoder of each field, and everything that does not fit."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamling.formats.avro import branches_of, expand_schema, record_of
from streamling.formats.avro_blocks import encode_long
from streamling.formats.avro_derivation import field_name
from streamling.formats.avro_encoding import (
    Booleans,
    Bytes,
    Constant,
    Decimals,
    Encoder,
    Enums,
    Fixed,
    Floats,
    Lists,
    Longs,
    Maps,
    Nullable,
    Record,
    Required,
    join,
)
from streamling.plan.types import DataType, Field, Schema

Json = Any
_SMALL = ("int8", "int16", "uint8", "uint16")
_INTS = (*_SMALL, "int32")
_LONGS = (*_INTS, "int64", "uint32", "uint64")
_FLOATS = ("float16", "float32")
_DATES = ("date32", "date64")
_UINT64_DIGITS = 20
_UNITS = {"millis": ("s", "ms"), "micros": ("s", "ms", None, "ns"), "nanos": ("s", "ms", None, "ns")}


class Misfit(ValueError):
    """Why a column does not fit its field."""


@dataclass(frozen=True, slots=True)
class RowEncoder:
    """Encodes rows with one schema. `dropped`: the columns that the schema has no field for."""

    record: Record
    lead: bytes
    dropped: tuple[str, ...]

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Each row as bytes. Raises CannotEncode."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        return join([pa.scalar(self.lead), *self.record.columns(columns, batch.num_rows)])


def fit_columns(
    columns: Schema, text: str, references: Sequence[str] = (), *, header: bytes = b""
) -> tuple[RowEncoder, tuple[str, ...]]:
    """The encoder for a schema, and what does not fit; `header` precedes every row.

    Raises UserError SCHEMA_UNUSABLE.
    """
    root = expand_schema(text, references)
    schema = record_of(root)
    misfits: list[str] = []
    record = _record(columns.fields, schema, "", misfits)
    used = {name for name, _ in record.fields}
    dropped = tuple(name for name in columns.names if name not in used)
    branch = encode_long(root.index(schema)) if isinstance(root, list) else b""
    return RowEncoder(record, header + branch, dropped), tuple(misfits)


def _record(columns: Sequence[Field], schema: Json, path: str, misfits: list[str]) -> Record:
    fields: list[tuple[str | None, Encoder]] = []
    by_name = {field_name(column.name): column for column in columns} | {column.name: column for column in columns}
    for field in schema["fields"]:
        here = f"{path}{field['name']}"
        column = next((by_name[name] for name in _names(field) if name in by_name), None)
        try:
            if column is None:
                fields.append((None, Constant(_filler(field, here))))
            else:
                fields.append((column.name, _value(column.type, field["type"], f"{path}{column.name}")))
        except Misfit as misfit:
            misfits.append(str(misfit))
    return Record(tuple(fields))


def _names(field: Json) -> Iterator[str]:
    yield field["name"]
    yield from field.get("aliases") or ()


def _filler(field: Json, path: str) -> bytes:
    """What is written for a field without a column."""
    import fastavro

    if "default" in field:
        default, schema = field["default"], field["type"]
        first = schema[0] if isinstance(schema, list) else schema
        kind = first.get("type") if isinstance(first, dict) else first
        if kind in ("bytes", "fixed") and isinstance(default, str):
            default = default.encode("latin-1")
        content = io.BytesIO()
        fastavro.schemaless_writer(content, first, default)
        return (encode_long(0) if isinstance(schema, list) else b"") + content.getvalue()
    branches = field["type"] if isinstance(field["type"], list) else []
    for number, branch in enumerate(branches):
        if not branches_of(branch)[0]:
            return bytes(encode_long(number))
    if not branches_of(field["type"])[0]:
        return b""
    raise Misfit(f"the field '{path}' is required and has no default, and the input has no such column")


def _value(type_: DataType, schema: Json, path: str) -> Encoder:
    """The encoder of a column or an inner value. Raises Misfit."""
    if not isinstance(schema, list):
        return Required(path, _typed(type_, schema, path))
    null = next((number for number, branch in enumerate(schema) if not branches_of(branch)[0]), None)
    reasons = []
    for number, branch in enumerate(schema):
        if number == null:
            continue
        try:
            encoder = _typed(type_, branch, path)
        except Misfit as misfit:
            reasons.append(str(misfit))
            continue
        if null is None:
            return Required(path, encoder, encode_long(number))
        return Nullable(encoder, encode_long(number), encode_long(null))
    raise Misfit("; ".join(reasons) or f"column '{path}' is {type_}, and the field is always null")


def _typed(type_: DataType, schema: Json, path: str) -> Encoder:
    base = schema["type"] if isinstance(schema, dict) else schema
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    encoder = _complex(type_, schema, base, path) or _primitive(type_, schema, base, logical, path)
    if encoder is None:
        named = f"{base} ({logical})" if logical else base
        raise Misfit(f"column '{path}' is {type_}, and the field is {named}, which cannot hold all its values")
    return encoder


def _complex(type_: DataType, schema: Json, base: str, path: str) -> Encoder | None:
    match type_, base:
        case DataType(kind="struct", fields=fields), "record" | "error":
            misfits: list[str] = []
            record = _record(fields, schema, f"{path}.", misfits)
            if misfits:
                raise Misfit("; ".join(misfits))
            return record
        case DataType(kind="list", item=DataType() as item), "array":
            return Lists(_value(item, schema["items"], f"{path}[]"))
        case DataType(kind="map", item=DataType() as item, key=DataType(kind="string")), "map":
            return Maps(_value(item, schema["values"], f"{path}{{}}"))
        case DataType(kind="string"), "enum":
            return Enums(path, tuple(schema["symbols"]))
    return None


def _primitive(type_: DataType, schema: Json, base: str, logical: str | None, path: str) -> Encoder | None:
    kind = type_.kind
    match base:
        case "boolean" if kind == "boolean":
            return Booleans()
        case "int" | "long":
            return _number(type_, base, logical, path)
        case "float" if kind in (*_FLOATS, *_SMALL):
            return Floats(4)
        case "double" if kind in (*_FLOATS, "float64", *_INTS, "uint32"):
            return Floats(8)
        case "string" if kind == "string":
            return Bytes()
        case "bytes" | "fixed" if logical == "decimal":
            return _decimal(type_, schema, path)
        case "bytes" if kind == "binary":
            return Bytes()
        case "fixed" if kind == "binary" and type_.length in (None, schema["size"]):
            return Fixed(path, schema["size"])
    return None


def _number(type_: DataType, base: str, logical: str | None, path: str) -> Encoder | None:
    if type_.kind in _DATES:
        return Longs(path) if (base, logical) == ("int", "date") else None
    if type_.kind == "timestamp":
        unit = (logical or "").rpartition("-")[2]
        if base != "long" or "timestamp" not in (logical or "") or type_.unit not in _UNITS.get(unit, ()):
            return None
        return Longs(path, factor=1000 if unit == "nanos" else 1, divisor=1000 if unit == "millis" else 1)
    if logical in ("date", "time-millis", "time-micros") or "timestamp" in (logical or ""):
        return None
    return Longs(path) if type_.kind in (_INTS if base == "int" else _LONGS) else None


def _decimal(type_: DataType, schema: Json, path: str) -> Encoder | None:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if type_.kind == "uint64":
        own_precision, own_scale = _UINT64_DIGITS, 0
    elif type_.kind in ("decimal", "decimal_arb"):
        own_precision, own_scale = type_.precision or 0, type_.scale or 0
    else:
        return None
    if own_scale > scale or own_precision - own_scale > precision - scale:
        return None
    return Decimals(path, type_, precision, scale, schema.get("size"))

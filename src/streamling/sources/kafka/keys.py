"""Casts the keys of messages to values of key columns: framed Avro, a JSON object, or text."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

from streamling.clients.schema_registry import NoSuchSchema, SchemaRegistry
from streamling.formats.json_text import format_value, parse
from streamling.formats.json_values import value_cast
from streamling.plan.types import DataType, Field
from streamling.sources.kafka.payload import FRAME, MAGIC
from streamling.spec.settings.blocks import KafkaConnection

_schemas: dict[tuple[str, int], Any] = {}
# What the JSON converter of Kafka Connect puts around a key, unless its schemas are disabled.
_CONNECT_FIELDS = {"schema", "payload"}
# Between the columns of a key in text form.
_SEPARATOR = ":"


def key_values(key: bytes | None, columns: Sequence[Field], connection: KafkaConnection) -> list[Any]:
    """A value for each key column. Raises ValueError with what is wrong with the key."""
    if not key:
        raise ValueError("the message has neither payload nor key")
    names = [f.name for f in columns]
    values = _avro(key, names, connection) or _json(key, names) or _text(key, columns)
    return [_cast(value, f) for value, f in zip(values, columns, strict=True)]


def _avro(key: bytes, names: list[str], connection: KafkaConnection) -> list[Any] | None:
    """None for a key without the frame of a schema id. Raises StreamlingError if the schema registry fails."""
    if key[0] != MAGIC or len(key) < FRAME:
        return None
    id_ = int.from_bytes(key[1:FRAME])
    try:
        schema = _schema(id_, connection)
    except NoSuchSchema as error:
        raise ValueError(f"the key has the Avro schema id {id_}, which the schema registry does not have") from error
    import fastavro

    try:
        value = fastavro.schemaless_reader(io.BytesIO(key[FRAME:]), schema, None)
    except Exception as error:  # bytes that are not Avro make the library fail in any way
        raise ValueError(f"the key does not match its Avro schema: {error}") from error
    if not isinstance(value, dict):
        value = {names[0]: value} if len(names) == 1 else {}
    return [_plain(_of(value, name)) for name in names]


def _schema(id_: int, connection: KafkaConnection) -> Any:
    place = (connection.schema_registry_url, id_)
    if place not in _schemas:
        import fastavro

        with SchemaRegistry(connection) as registry:
            text, references = registry.by_id(id_)
        named: dict[str, Any] = {}
        for reference in references:
            fastavro.parse_schema(json.loads(reference), named_schemas=named)
        _schemas[place] = fastavro.parse_schema(json.loads(text), named_schemas=named)
    return _schemas[place]


def _plain(value: Any) -> Any:
    """The JSON form of the library's value of a logical type."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case float():
            return Decimal(repr(value))
        case UUID():
            return str(value)
    return value


def _json(key: bytes, names: list[str]) -> list[Any] | None:
    try:
        value = parse(key.decode())
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    if value.keys() == _CONNECT_FIELDS and not value.keys() >= set(names):
        value = value["payload"]
        if not isinstance(value, dict):
            value = {names[0]: value} if len(names) == 1 else {}
    return [_of(value, name) for name in names]


def _of(value: dict[str, Any], name: str) -> Any:
    if value.get(name) is None:
        raise ValueError(f"the key has no value for the column '{name}'")
    return value[name]


def _text(key: bytes, columns: Sequence[Field]) -> list[Any]:
    try:
        text = key.decode()
    except UnicodeDecodeError as error:
        raise ValueError("the key is neither Avro nor JSON nor text") from error
    parts = [text] if len(columns) == 1 else text.split(_SEPARATOR)
    if len(parts) != len(columns):
        raise ValueError(f"the key '{text}' has {len(parts)} parts, but the primary key has {len(columns)} columns")
    return [_parse_text(part, f.type) for part, f in zip(parts, columns, strict=True)]


def _parse_text(text: str, type_: DataType) -> Any:
    """The JSON value in a text; the text itself if it is not JSON, so that the cast rejects it."""
    if type_.kind in ("string", "binary"):
        return text
    try:
        return parse(text)
    except ValueError:
        return text


def _cast(value: Any, column: Field) -> Any:
    try:
        return _value_cast(column.type)(value)
    except (ValueError, ArithmeticError) as error:
        message = f"the key: column '{column.name}': {format_value(value)} is not a valid {column.type}"
        raise ValueError(message) from error


_value_cast = cache(value_cast)

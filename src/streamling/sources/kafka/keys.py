"""Keys of messages as values of key columns: Avro in a frame, a JSON object, or text."""

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
from streamling.formats.json_text import parsed, shown
from streamling.formats.json_values import conversion
from streamling.plan.types import DataType, Field
from streamling.sources.kafka.payload import FRAME, MAGIC
from streamling.spec.settings.blocks import KafkaConnection

_schemas: dict[tuple[str, int], Any] = {}
# Between the columns of a key that is text.
_SEPARATOR = ":"


def key_values(key: bytes | None, columns: Sequence[Field], connection: KafkaConnection) -> list[Any]:
    """A value for each key column. Raises ValueError with what is wrong with the key."""
    if not key:
        raise ValueError("the message has neither payload nor key")
    names = [f.name for f in columns]
    found = _avro(key, names, connection) or _json(key, names) or _text(key, columns)
    return [_fitting(value, f) for value, f in zip(found, columns, strict=True)]


def _avro(key: bytes, names: list[str], connection: KafkaConnection) -> list[Any] | None:
    """None for what is not framed with the id of a schema. A registry that cannot be asked is an error of its own."""
    if key[0] != MAGIC or len(key) < FRAME:
        return None
    id_ = int.from_bytes(key[1:FRAME])
    try:
        schema = _schema(id_, connection)
    except NoSuchSchema as error:
        raise ValueError(f"the key has the frame of an Avro schema with the id {id_}, which is not there") from error
    import fastavro

    try:
        value = fastavro.schemaless_reader(io.BytesIO(key[FRAME:]), schema, None)
    except Exception as error:  # bytes that are no Avro make the library fail in any way
        raise ValueError(f"the key is not of its Avro schema: {error}") from error
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
    """What the library gives for a logical type, as JSON has it."""
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
        value = parsed(key.decode())
    except ValueError:
        return None
    return [_of(value, name) for name in names] if isinstance(value, dict) else None


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
        raise ValueError(f"the key '{text}' has {len(parts)} parts, and the primary key {len(columns)} columns")
    return [_written(part, f.type) for part, f in zip(parts, columns, strict=True)]


def _written(text: str, type_: DataType) -> Any:
    """A value that is written as text, as JSON has it; what cannot be one is left, to be refused."""
    if type_.kind in ("string", "binary"):
        return text
    try:
        return parsed(text)
    except ValueError:
        return text


def _fitting(value: Any, column: Field) -> Any:
    try:
        return _conversion(column.type)(value)
    except (ValueError, ArithmeticError) as error:
        message = f"the key: {shown(value)} is no {column.type}, as the column '{column.name}' is"
        raise ValueError(message) from error


_conversion = cache(conversion)

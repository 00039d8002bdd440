"""Makes Kafka messages from lines of JSON, and readable text from messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streamling.clients.schema_registry import SchemaRegistry
from streamling.dev.row_codec import RowCodec
from streamling.dev.topics import Header, Message
from streamling.errors import DATA_ERROR, StreamlingError, UserError

_MAGIC, _FRAME = b"\0", 5
OPERATION_HEADER = "dbz.op"
# Operations that have another name in that header; all others are sent as they are.
_OPERATIONS = {"i": "c"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a row is turned into a message. Several key columns are joined by `:`, as in the Kafka sink.

    `operation` is the column that is sent in the header instead of the payload. With `avro` the payload is Avro and
    starts with the frame of `schema_id`; without, it is the JSON text.
    """

    key: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    operation: str | None = None
    avro: RowCodec | None = None
    schema_id: int = 0

    def message(self, text: str) -> Message:
        """Raises ValueError with the reason if the line cannot be sent."""
        # A float would lose digits of a decimal.
        try:
            row = json.loads(text, parse_float=Decimal if self.avro else None)
        except json.JSONDecodeError as error:
            raise ValueError(f"not valid JSON: {error.msg} at column {error.colno}") from error
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        key = self._key(row)
        headers = self.headers
        if self.operation is not None and (operation := row.pop(self.operation, None)) is not None:
            name = str(operation)
            headers = (*headers, (OPERATION_HEADER, _OPERATIONS.get(name, name).encode()))
            text = json.dumps(row, ensure_ascii=False, separators=(",", ":")) if self.avro is None else text
        if self.avro is None:
            return Message(text.encode(), key, headers)
        return Message(_MAGIC + self.schema_id.to_bytes(4) + self.avro.encode(row), key, headers)

    def _key(self, row: dict[str, Any]) -> bytes | None:
        if missing := [name for name in self.key if name not in row]:
            raise ValueError(f"the key column '{missing[0]}' is missing")
        values = [row[name] for name in self.key]
        if not values or None in values:
            return None
        return ":".join(v if isinstance(v, str) else json.dumps(v, default=str) for v in values).encode()


def messages(lines: Iterable[bytes], recipe: Recipe, file: str) -> Iterator[Message]:
    """A message for each line that is not empty. Raises UserError DATA_ERROR with the line number."""
    for number, line in enumerate(lines, start=1):
        if text := line.strip():
            try:
                yield recipe.message(text.decode())
            except ValueError as error:
                message = f"line {number} of {file} cannot be sent: {error}"
                raise UserError(DATA_ERROR, message) from error


@dataclass(frozen=True, slots=True)
class Payload:
    """The payload of a message: `format` is avro, json, text, binary or none; `text` can be printed."""

    format: str
    text: str | None = None
    schema_id: int | None = None


class PayloadReader:
    """Decodes payloads. Without a schema registry, Avro is shown as bytes."""

    def __init__(self, registry: SchemaRegistry | None) -> None:
        self._registry = registry
        self._schemas: dict[int, RowCodec | None] = {}

    def payload(self, value: bytes | None) -> Payload:
        if value is None:
            return Payload("none")
        framed = self._avro(value) if value[:1] == _MAGIC and len(value) >= _FRAME else None
        return framed or _plain(value)

    def _avro(self, value: bytes) -> Payload | None:
        id_ = int.from_bytes(value[1:_FRAME])
        schema = self._schema(id_)
        if schema is None:
            return None
        try:
            return Payload("avro", schema.decode(value[_FRAME:]), id_)
        except ValueError:
            return None  # it only starts like Avro

    def _schema(self, id_: int) -> RowCodec | None:
        if id_ not in self._schemas and self._registry is not None:
            try:
                self._schemas[id_] = RowCodec(*self._registry.by_id(id_))
            except StreamlingError:
                self._schemas[id_] = None  # the registry does not know the id
        return self._schemas.get(id_)


def _plain(value: bytes) -> Payload:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Payload("binary", value.hex())
    try:
        json.loads(text)
    except ValueError:
        readable = all(c.isprintable() or c in "\t\r\n" for c in text)
        return Payload("text", text) if readable else Payload("binary", value.hex())
    return Payload("json", text)

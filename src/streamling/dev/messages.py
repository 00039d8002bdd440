"""Lines of JSON as messages, and messages as people read them."""

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
# What the operations of a row are called in that header; others go as they are.
_OPERATIONS = {"i": "c"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a row becomes a message. Several key columns are joined by `:`, as the Kafka sink does it.

    `operation` names the column that goes into the header instead of the payload. With `avro` the payload is framed
    with `schema_id`, without it is the JSON text.
    """

    key: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    operation: str | None = None
    avro: RowCodec | None = None
    schema_id: int = 0

    def message(self, text: str) -> Message:
        """Raises ValueError with what is wrong with the line."""
        # Digits that a float does not have would be lost on the way to a decimal.
        try:
            row = json.loads(text, parse_float=Decimal if self.avro else None)
        except json.JSONDecodeError as error:
            raise ValueError(f"it is no JSON: {error.msg} at column {error.colno}") from error
        if not isinstance(row, dict):
            raise ValueError("it is no JSON object")
        key = self._key(row)
        headers = self.headers
        if self.operation is not None and (operation := row.pop(self.operation, None)) is not None:
            word = str(operation)
            headers = (*headers, (OPERATION_HEADER, _OPERATIONS.get(word, word).encode()))
            text = json.dumps(row, ensure_ascii=False, separators=(",", ":")) if self.avro is None else text
        if self.avro is None:
            return Message(text.encode(), key, headers)
        return Message(_MAGIC + self.schema_id.to_bytes(4) + self.avro.encoded(row), key, headers)

    def _key(self, row: dict[str, Any]) -> bytes | None:
        if missing := [name for name in self.key if name not in row]:
            raise ValueError(f"it has no column '{missing[0]}', which is the key")
        values = [row[name] for name in self.key]
        if not values or None in values:
            return None
        return ":".join(v if isinstance(v, str) else json.dumps(v, default=str) for v in values).encode()


def messages(lines: Iterable[bytes], recipe: Recipe, file: str) -> Iterator[Message]:
    """The message of each line that is not blank. Raises UserError DATA_ERROR with the line."""
    for number, line in enumerate(lines, start=1):
        if text := line.strip():
            try:
                yield recipe.message(text.decode())
            except ValueError as error:
                message = f"line {number} of {file} cannot become a message: {error}"
                raise UserError(DATA_ERROR, message) from error


@dataclass(frozen=True, slots=True)
class Payload:
    """What a message holds: `format` is avro, json, text, binary or none; `text` may be shown."""

    format: str
    text: str | None = None
    schema_id: int | None = None


class PayloadReader:
    """Tells what payloads are. Without a registry, Avro is bytes."""

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
            return Payload("avro", schema.decoded(value[_FRAME:]), id_)
        except ValueError:
            return None  # it only begins like Avro

    def _schema(self, id_: int) -> RowCodec | None:
        if id_ not in self._schemas and self._registry is not None:
            try:
                self._schemas[id_] = RowCodec(*self._registry.by_id(id_))
            except StreamlingError:
                self._schemas[id_] = None  # an id that nobody has given away
        return self._schemas.get(id_)


def _plain(value: bytes) -> Payload:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Payload("binary", value.hex())
    try:
        json.loads(text)
    except ValueError:
        written = all(c.isprintable() or c in "\t\r\n" for c in text)
        return Payload("text", text) if written else Payload("binary", value.hex())
    return Payload("json", text)

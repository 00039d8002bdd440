"""JSON bodies of messages, many at once, as rows of declared columns.

Arrow reads a chunk at once where it can. A chunk with something that Arrow refuses, or takes for something else than we
do, is read object by object: what becomes of a message must not depend on those beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from streamling.formats.arrow import arrow_type
from streamling.formats.bodies import BadBody, chunks
from streamling.formats.json_differences import beyond_ours, has_constants, has_tiny_numbers
from streamling.formats.json_lines import parsed_lines
from streamling.formats.json_text import parsed, shown
from streamling.formats.json_values import conversion
from streamling.plan.types import Field

# What Arrow reads exactly as we do; unsigned numbers, for instance, have carriers that hold more.
_DIRECT = frozenset(
    ("boolean", "int8", "int16", "int32", "int64", "float32", "float64", "string", "decimal", "date32", "timestamp")
)
_BLANKS = b" \t\n\r"
# To Arrow a line end is the end of an object. Like it, a tab may stand between values, and not inside of text.
_ONE_LINE = bytes.maketrans(b"\n\r", b"\t\t")


class ObjectDecoder:
    """Fields that are not declared are ignored, missing ones are null."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._names = [f.name for f in fields]
        self._words = [str(f.type) for f in fields]
        self._convert = [conversion(f.type) for f in fields]
        self._schema = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields])
        self._decimals = any(f.type.kind == "decimal" for f in fields)
        self._direct = bool(fields) and all(f.type.kind in _DIRECT and not f.type.wide for f in fields)

    def rows(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        for chunk in chunks(bodies):
            batch = self._at_once(chunk) if self._direct else None
            if batch is not None:
                yield batch
            else:
                yield from self._one_by_one(chunk)

    def _at_once(self, bodies: Sequence[bytes]) -> pa.RecordBatch | None:
        """None if something cannot be read, or not in this way."""
        lines = [body.strip(_BLANKS) for body in bodies]
        # An object that begins in one body and ends in another must not be taken for one.
        if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
            return None
        data = b"\n".join(lines)
        if b"\r" in data or data.count(b"\n") >= len(lines):
            lines = [line.translate(_ONE_LINE) for line in lines]
            data = b"\n".join(lines)
        if b"\0" in data or has_constants(data, lines) or (self._decimals and has_tiny_numbers(data, lines)):
            return None
        try:
            data.decode()  # Arrow does not look
            batch = parsed_lines(data, self._schema)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        return batch if batch.num_rows == len(bodies) and not any(map(beyond_ours, batch.columns)) else None

    def _one_by_one(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        read: list[list[Any]] = []
        for body in bodies:
            try:
                read.append(self._row(body))
            except _Bad as error:
                if read:
                    yield self._batch(read)
                read = []
                yield error.bad
        if read:
            yield self._batch(read)

    def _batch(self, rows: list[list[Any]]) -> pa.RecordBatch:
        columns = [pa.array(values, f.type) for values, f in zip(zip(*rows, strict=True), self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _row(self, body: bytes) -> list[Any]:
        found = _object(body)
        row: list[Any] = []
        for name, convert, word in zip(self._names, self._convert, self._words, strict=True):
            value = found.get(name)
            try:
                row.append(None if value is None else convert(value))
            except (ValueError, ArithmeticError):
                raise _Bad("schema_mismatch", f"column '{name}': {shown(value)} is no {word}") from None
        return row


class _Bad(Exception):
    def __init__(self, reason: str, message: str) -> None:
        self.bad = BadBody(reason, message)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = parsed(body.decode())
    except UnicodeDecodeError as error:
        raise _Bad("decode_error", f"the payload is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise _Bad("decode_error", f"the payload is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _Bad("decode_error", f"the payload is not a JSON object: {body[:80].decode(errors='replace')}")
    return found

"""Decodes the JSON bodies of many messages at once, to rows of declared columns.

Arrow reads a whole chunk where it can. A chunk with something that Arrow rejects, or reads differently, is read object
by object: the row of a message must not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from streamling.formats.arrow import arrow_type
from streamling.formats.bodies import BadBody, chunks
from streamling.formats.json_differences import has_constants, has_tiny_numbers, is_out_of_range
from streamling.formats.json_lines import parse_lines
from streamling.formats.json_text import format_value, parse
from streamling.formats.json_values import value_cast
from streamling.plan.types import Field

# Types that Arrow reads exactly as we do. Unsigned numbers, for instance, have Arrow types with a wider range.
_DIRECT = frozenset(
    ("boolean", "int8", "int16", "int32", "int64", "float32", "float64", "string", "decimal", "date32", "timestamp")
)
_SPACES = b" \t\n\r"
# For Arrow a line end is the end of an object. A tab is allowed in the same places: between values, not inside text.
_ONE_LINE = bytes.maketrans(b"\n\r", b"\t\t")


class ObjectDecoder:
    """Decodes JSON objects. Fields that are not declared are ignored, missing ones are null."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._names = [f.name for f in fields]
        self._type_names = [str(f.type) for f in fields]
        self._casts = [value_cast(f.type) for f in fields]
        self._schema = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields])
        self._decimals = any(f.type.kind == "decimal" for f in fields)
        self._direct = bool(fields) and all(f.type.kind in _DIRECT and not f.type.wide for f in fields)

    def rows(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        for chunk in chunks(bodies):
            batch = self._decode_chunk(chunk) if self._direct else None
            if batch is not None:
                yield batch
            else:
                yield from self._decode_each(chunk)

    def _decode_chunk(self, bodies: Sequence[bytes]) -> pa.RecordBatch | None:
        """All rows, decoded by Arrow; None if a body is bad, or if Arrow might read it differently."""
        lines = [body.strip(_SPACES) for body in bodies]
        # An object that begins in one body and ends in another must not be read as one object.
        if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
            return None
        data = b"\n".join(lines)
        if b"\r" in data or data.count(b"\n") >= len(lines):
            lines = [line.translate(_ONE_LINE) for line in lines]
            data = b"\n".join(lines)
        if b"\0" in data or has_constants(data, lines) or (self._decimals and has_tiny_numbers(data, lines)):
            return None
        try:
            data.decode()  # Arrow does not check UTF-8
            batch = parse_lines(data, self._schema)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        return batch if batch.num_rows == len(bodies) and not any(map(is_out_of_range, batch.columns)) else None

    def _decode_each(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        rows: list[list[Any]] = []
        for body in bodies:
            try:
                rows.append(self._row(body))
            except _Bad as error:
                if rows:
                    yield self._batch(rows)
                rows = []
                yield error.bad
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[list[Any]]) -> pa.RecordBatch:
        columns = [pa.array(values, f.type) for values, f in zip(zip(*rows, strict=True), self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _row(self, body: bytes) -> list[Any]:
        values = _parse_object(body)
        row: list[Any] = []
        for name, cast, type_name in zip(self._names, self._casts, self._type_names, strict=True):
            value = values.get(name)
            try:
                row.append(None if value is None else cast(value))
            except (ValueError, ArithmeticError):
                message = f"column '{name}': {format_value(value)} is not a valid {type_name}"
                raise _Bad("schema_mismatch", message) from None
        return row


class _Bad(Exception):
    def __init__(self, reason: str, message: str) -> None:
        self.bad = BadBody(reason, message)


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        value = parse(body.decode())
    except UnicodeDecodeError as error:
        raise _Bad("decode_error", f"the payload is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise _Bad("decode_error", f"the payload is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _Bad("decode_error", f"the payload is not a JSON object: {body[:80].decode(errors='replace')}")
    return value

"""JSON bodies of messages, many at once, as rows of declared columns.

Arrow reads a chunk at once where it can. A chunk with something that Arrow refuses, or takes for something else than we
do, is read object by object: what becomes of a message must not depend on those beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.arrow import arrow_type
from streamling.formats.bodies import BadBody, chunks
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
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_CONSTANTS = (b"NaN", b"Inf")
_WINDOW = 1 << 16  # stays in the caches of a core
_YEAR_1 = -719_162
_DAY_US = 24 * 3600 * 1_000_000


class ObjectDecoder:
    """Fields that are not declared are ignored, missing ones are null."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._names = [f.name for f in fields]
        self._words = [str(f.type) for f in fields]
        self._convert = [conversion(f.type) for f in fields]
        self._schema = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields])
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
        if b"\0" in data or _has_constants(data, lines):
            return None
        try:
            data.decode()  # Arrow does not look
            batch = parsed_lines(data, self._schema)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        return batch if batch.num_rows == len(bodies) and not any(map(_beyond_ours, batch.columns)) else None

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


def _has_constants(data: bytes, lines: Sequence[bytes]) -> bool:
    """Whether there are numbers like NaN, which Arrow reads and JSON does not have."""
    found = [constant for constant in _CONSTANTS if _holds(data, constant)]
    return any(constant in _STRING.sub(b"", line) for constant in found for line in lines if constant in line)


def _holds(data: bytes, word: bytes) -> bool:
    """Whether three letters stand there: what `in` says, three times as quick."""
    letters, (first, second, third) = np.frombuffer(data, np.uint8), word
    for start in range(0, len(letters), _WINDOW):
        seen = letters[start : start + _WINDOW + 2]
        if ((seen[:-2] == first) & (seen[1:-1] == second) & (seen[2:] == third)).any():
            return True
    return False


def _beyond_ours(column: pa.Array) -> bool:
    """Whether Arrow has read a number that is too large for its type, or a time before the year 1."""
    if pa.types.is_floating(column.type):
        return not pc.all(pc.is_finite(column), min_count=0).as_py()
    if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
        days = pa.types.is_date32(column.type)
        earliest = pc.min(column.view(pa.int32() if days else pa.int64())).as_py()
        return earliest is not None and earliest < (_YEAR_1 if days else _YEAR_1 * _DAY_US)
    return False


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

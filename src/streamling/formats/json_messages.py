"""Decodes the JSON bodies of many messages at once, to rows of declared columns.

Arrow reads a whole chunk where it can. Columns of types that it does not read as we do, such as maps, are read object
by object, beside it. A chunk with something that Arrow rejects, or reads differently, is read object by object as a
whole: the row of a message must not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamling.formats.arrow import arrow_type
from streamling.formats.bodies import BadBody, chunks
from streamling.formats.json_containers import object_reader
from streamling.formats.json_differences import has_constants, has_tiny_numbers, is_out_of_range
from streamling.formats.json_lines import parse_lines
from streamling.formats.json_text import format_value, parse_whole
from streamling.formats.json_values import ContainerInText, InnerMismatch, value_cast
from streamling.plan.types import DataType, Field

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
        self._fields = tuple(fields)
        self._casts = [value_cast(f.type) for f in fields]
        self._schema = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields])
        self._division = _Division.of(self._fields, self._schema, frozenset())

    def rows(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        for chunk in chunks(bodies):
            batch = self._decode_chunk(chunk) if self._division.direct else None
            if batch is not None:
                yield batch
            else:
                yield from self._decode_each(chunk)

    def _decode_chunk(self, bodies: Sequence[bytes]) -> pa.RecordBatch | None:
        """All rows, decoded by Arrow; None if a body is bad, or if Arrow might read it differently."""
        division = self._division
        lines = [body.strip(_SPACES) for body in bodies]
        # An object that begins in one body and ends in another must not be read as one object.
        if not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
            return None
        data = b"\n".join(lines)
        if b"\r" in data or data.count(b"\n") >= len(lines):
            lines = [line.translate(_ONE_LINE) for line in lines]
            data = b"\n".join(lines)
        if b"\0" in data or has_constants(data, lines) or (division.decimals and has_tiny_numbers(data, lines)):
            return None
        try:
            data.decode()  # Arrow does not check UTF-8
            batch = parse_lines(data, division.schema)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        if batch.num_rows != len(bodies) or any(map(is_out_of_range, batch.columns)):
            return None
        return self._with_others(batch, bodies, division) if division.others else batch

    def _with_others(
        self, batch: pa.RecordBatch, bodies: Sequence[bytes], division: _Division
    ) -> pa.RecordBatch | None:
        """The batch with the columns that Arrow does not read; None if a value of them does not fit."""
        columns = dict(zip(division.direct, batch.columns, strict=True))
        try:
            objects = [division.read(body.decode()) for body in bodies]
            for n in division.others:
                name, cast = self._fields[n].name, self._casts[n]
                values = [None if (value := row.get(name)) is None else cast(value) for row in objects]
                columns[n] = pa.array(values, self._schema.field(n).type)
        except (ValueError, ArithmeticError, RecursionError):
            return None
        return pa.RecordBatch.from_arrays([columns[n] for n in range(len(columns))], schema=self._schema)

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
        try:
            return self._cast(_parse_object(body, self._division.read))
        except _Containers as error:
            self._division = self._division.with_containers(self._fields, self._schema, error.column)
            return self._row(body)
        except RecursionError:
            return self._cast(_parse_object(body, object_reader(self._fields)))

    def _cast(self, values: dict[str, Any]) -> list[Any]:
        row: list[Any] = []
        for field, cast in zip(self._fields, self._casts, strict=True):
            value = values.get(field.name)
            try:
                row.append(None if value is None else cast(value))
            except ContainerInText:
                raise _Containers(field.name) from None
            except InnerMismatch as error:
                message = f"column '{field.name}{error.path}': {format_value(error.value)} is not a valid {error.type}"
                raise _Bad("schema_mismatch", message) from None
            except (ValueError, ArithmeticError):
                message = f"column '{field.name}': {format_value(value)} is not a valid {field.type}"
                raise _Bad("schema_mismatch", message) from None
        return row


@dataclass(frozen=True, slots=True)
class _Division:
    """Which columns of a chunk Arrow reads, and how the others are read, object by object.

    direct, others   the indexes of the columns
    schema           the columns that Arrow reads
    decimals         whether Arrow reads decimals
    containers       text columns that have had objects or lists in them: Arrow cannot read these
    read             the fields of an object; those in `containers` have the JSON text of objects and lists
    """

    direct: tuple[int, ...]
    others: tuple[int, ...]
    schema: pa.Schema
    decimals: bool
    containers: frozenset[str]
    read: Callable[[str], Any]

    @classmethod
    def of(cls, fields: Sequence[Field], schema: pa.Schema, containers: frozenset[str]) -> _Division:
        direct = [n for n, f in enumerate(fields) if f.name not in containers and all(map(_is_direct, _leaves(f.type)))]
        return cls(
            direct=tuple(direct),
            others=tuple(n for n in range(len(fields)) if n not in direct),
            schema=pa.schema([schema.field(n) for n in direct]),
            decimals=any(leaf.kind == "decimal" for n in direct for leaf in _leaves(fields[n].type)),
            containers=containers,
            read=object_reader([f for f in fields if f.name in containers]) if containers else parse_whole,
        )

    def with_containers(self, fields: Sequence[Field], schema: pa.Schema, column: str) -> _Division:
        if column in self.containers:
            raise AssertionError(f"the column '{column}' still has an object or a list in place of a text")
        return _Division.of(fields, schema, self.containers | {column})


def _is_direct(leaf: DataType) -> bool:
    return leaf.kind in _DIRECT and not leaf.wide


def _leaves(type_: DataType) -> Iterator[DataType]:
    """The flat types inside of a type. A map is not looked into: Arrow cannot read it from an object."""
    if type_.kind == "struct":
        for field in type_.fields:
            yield from _leaves(field.type)
    elif type_.kind == "list" and type_.item:
        yield from _leaves(type_.item)
    else:
        yield type_


class _Containers(Exception):
    """A text in this column, or inside of it, is an object or a list."""

    def __init__(self, column: str) -> None:
        self.column = column


class _Bad(Exception):
    def __init__(self, reason: str, message: str) -> None:
        self.bad = BadBody(reason, message)


def _parse_object(body: bytes, read: Callable[[str], Any]) -> dict[str, Any]:
    try:
        value = read(body.decode())
    except UnicodeDecodeError as error:
        raise _Bad("decode_error", f"the payload is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise _Bad("decode_error", f"the payload is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _Bad("decode_error", f"the payload is not a JSON object: {body[:80].decode(errors='replace')}")
    return value

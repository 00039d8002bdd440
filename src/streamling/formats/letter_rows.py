"""Rows of dead letters: the values of `formats/json.py` `json_row`, cast to the columns of a node again."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from streamling.formats.arrow import arrow_schema, arrow_type
from streamling.formats.json_text import format_value
from streamling.plan.types import DataType, Field, Schema

_FIRST_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Python's years end at 9999, those of a column do not.
_FAR_YEAR = re.compile(r"(?:\d{5,}|-\d+|0000)-")
Cast = Callable[[Any], Any]


class UnfitRow(Exception):
    """A row that the columns of a node cannot hold. The columns have changed since the row was stored."""


class LetterRows:
    """Casts rows of dead letters to these columns."""

    def __init__(self, columns: Schema) -> None:
        self.schema: pa.Schema = arrow_schema(columns)
        self._casts = [(field, _nullable(_cast(field.type))) for field in columns]

    def values(self, row: object) -> list[Any]:
        """Values that the Arrow types of the columns accept. Raises UnfitRow."""
        if not isinstance(row, Mapping):
            raise UnfitRow("the dead letter has no row")
        return [self._value(row, field, cast) for field, cast in self._casts]

    def batch(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """The rows of such values."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _value(self, row: Mapping[str, Any], field: Field, cast: Cast) -> Any:
        if field.name not in row:
            raise UnfitRow(f"the dead letter has no column '{field.name}', which is read now")
        try:
            value = cast(row[field.name])
            # A value may have the right form and still be out of the range of the type.
            pa.array([value], arrow_type(field.type))
        except (ValueError, TypeError, ArithmeticError, AttributeError, pa.ArrowException) as error:
            raise UnfitRow(
                f"column '{field.name}': {format_value(row[field.name])} is not a valid {field.type}"
            ) from error
        if value is None and not field.nullable:
            raise UnfitRow(f"column '{field.name}' is null, which is not allowed now")
        return value


def _cast(type_: DataType) -> Cast:
    """A function from JSON values to values that the Arrow type accepts."""
    match type_.kind:
        case "list" if type_.item:
            item = _nullable(_cast(type_.item))
            return lambda values: [item(value) for value in _instance(values, list)]
        case "struct":
            fields = [(f.name, _nullable(_cast(f.type))) for f in type_.fields]
            return lambda value: {name: cast(_instance(value, dict).get(name)) for name, cast in fields}
        case "map" if type_.item:
            item, key = _nullable(_cast(type_.item)), _key_cast(type_.key)
            return lambda value: [(key(k), item(v)) for k, v in _instance(value, dict).items()]
        case "uint64":
            return _decimal
        case "decimal" if not type_.wide:
            return _decimal
        case "decimal" | "decimal_arb":
            return lambda value: value if isinstance(value, str) else f"{_decimal(value):f}"
    return _simple_cast(type_.kind)


def _simple_cast(kind: str) -> Cast:
    if kind.startswith(("int", "uint")) and kind != "interval":
        return lambda value: _instance(value, int)
    match kind:
        case "boolean":
            return lambda value: _instance(value, bool)
        case "float16" | "float32" | "float64":
            return float  # also of the texts NaN and inf
        case "binary":
            return bytes.fromhex
        case "date32" | "date64":
            return _days
        case "timestamp":
            return _microseconds
        case "time32" | "time64":
            return time.fromisoformat
        case "duration":
            return lambda value: _instance(value, int)
    return lambda value: _instance(value, str)


def _key_cast(type_: DataType | None) -> Cast:
    """From the text of a key of a map, which is that of its Python value."""
    match type_.kind if type_ else "string":
        case "string" | "interval" | "decimal_arb":
            return str
        case "boolean":
            return lambda text: {"True": True, "False": False}[text]
        case "binary":
            return lambda text: _instance(ast.literal_eval(text), bytes)
        case kind if kind.startswith(("int", "uint")) and kind != "uint64":
            return int
    return _cast(type_) if type_ else str


def _nullable(cast: Cast) -> Cast:
    return lambda value: None if value is None else cast(value)


def _instance(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(value)
    return value


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise ValueError(value)
    try:
        return Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation as error:
        raise ValueError(value) from error


def _days(text: str) -> int:
    if _FAR_YEAR.match(text):
        return int(np.datetime64(text, "D").astype(np.int64))
    # A column of 64-bit dates is shown with its time of day, which is midnight.
    return (date.fromisoformat(text.partition("T")[0]) - _FIRST_DAY).days


def _microseconds(text: str) -> int:
    if _FAR_YEAR.match(text):
        return int(np.datetime64(text.removesuffix("Z"), "us").astype(np.int64))
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND

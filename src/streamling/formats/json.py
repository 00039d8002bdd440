"""Rows as JSON text, column by column: one object per row, columns in order, nulls written, no blanks.

Decimals keep all their digits, NaN and infinities become null, binary is lower-case hex, times are ISO
text with an offset only where the type has a zone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

_escape = json.encoder.encode_basestring


def json_rows(batch: pa.RecordBatch) -> list[str]:
    """One JSON object per row."""
    if batch.num_rows == 0:
        return []
    columns = [_column(batch.column(i)) for i in range(batch.num_columns)]
    prefixes = [f"{_escape(name)}:" for name in batch.schema.names]
    template = "{" + ",".join(prefix.replace("%", "%%") + "%s" for prefix in prefixes) + "}"
    return [template % row for row in zip(*columns, strict=True)]


def _column(array: pa.Array) -> Iterable[str]:
    type_ = array.type
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return array.cast(pa.string()).fill_null("null").to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_string(type_) and array.null_count == 0:
        return map(_escape, array.to_pylist())
    render = _renderer(type_)
    return ["null" if value is None else render(value) for value in array.to_pylist()]


def _renderer(type_: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _escape
    return json_value


def json_value(value: Any) -> str:
    """JSON text of one Python value as pyarrow gives it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else "null"
        case str():
            return _escape(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            return f'"{value.hex()}"'
        case datetime():
            zoned = value if value.tzinfo is None else value.astimezone(UTC)
            return f'"{zoned.isoformat().replace("+00:00", "Z")}"'
        case date() | time():
            return f'"{value.isoformat()}"'
        case timedelta():
            return str(value // timedelta(microseconds=1))
        case dict():
            return "{" + ",".join(f"{_escape(str(k))}:{json_value(v)}" for k, v in value.items()) + "}"
        case [*pairs] if pairs and all(isinstance(p, tuple) for p in pairs):  # a map arrives as key/value pairs
            return "{" + ",".join(f"{_escape(str(k))}:{json_value(v)}" for k, v in pairs) + "}"
        case list():
            return "[" + ",".join(map(json_value, value)) + "]"
    return _escape(str(value))

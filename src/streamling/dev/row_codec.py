"""Converts single rows between JSON, as people write it, and Avro. Pipelines decode whole batches instead.

Bytes are hex, times are ISO text or numbers in the unit of the schema, decimals are numbers or text.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from streamling.errors import SCHEMA_UNUSABLE, UserError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Units per microsecond, and microseconds per unit.
_UNITS = {"millis": (1, 1000), "micros": (1, 1), "nanos": (1000, 1)}
Json = Any


class RowCodec:
    """Writes and reads rows with an Avro schema and the schemas it references.

    Raises UserError SCHEMA_UNUSABLE if it is not a valid schema.
    """

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        import fastavro

        self._named: dict[str, Any] = {}
        try:
            for reference in references:
                fastavro.parse_schema(json.loads(reference), named_schemas=self._named)
            self._schema = fastavro.parse_schema(json.loads(text), named_schemas=self._named)
        except Exception as error:  # the library raises many kinds, KeyError among them
            reason = f"{type(error).__name__}: {error}"
            raise UserError(SCHEMA_UNUSABLE, f"the Avro schema cannot be used: {reason}", cause=error) from error

    def encode(self, row: Json) -> bytes:
        """Raises ValueError if the row does not match the schema."""
        import fastavro
        from fastavro.validation import ValidationError

        value = self._value(self._schema, row)
        content = io.BytesIO()
        try:
            fastavro.validate(value, self._schema, raise_errors=True)
            fastavro.schemaless_writer(content, self._schema, value)
        except ValidationError as error:
            raise ValueError("; ".join(str(one) for one in error.errors)) from error
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error
        return content.getvalue()

    def decode(self, content: bytes) -> str:
        """The row as JSON text. Raises ValueError if the bytes do not match the schema."""
        import fastavro

        stream = io.BytesIO(content)
        try:
            row = fastavro.schemaless_reader(stream, self._schema, None)
        except Exception as error:  # the library raises many kinds for invalid bytes
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if stream.tell() != len(content):
            raise ValueError(f"{len(content) - stream.tell()} bytes are left after the row")
        return as_json(row)

    def _value(self, schema: Any, value: Json) -> Any:
        """A JSON value as the library needs it. A value of the wrong type stays as it is: the library rejects it."""
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            return self._branch(schema, value)
        kind = schema["type"] if isinstance(schema, dict) else schema
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        match kind, value:
            case "record" | "error", dict():
                types = {field["name"]: field["type"] for field in schema["fields"]}
                return {n: self._value(types[n], v) if n in types else v for n, v in value.items()}
            case "array", list():
                return [self._value(schema["items"], item) for item in value]
            case "map", dict():
                return {key: self._value(schema["values"], item) for key, item in value.items()}
            case "bytes" | "fixed", _ if logical == "decimal":
                return _decimal(value)
            case "bytes" | "fixed", str():
                return bytes.fromhex(value.removeprefix("0x"))
            case "float" | "double", int() | Decimal() if not isinstance(value, bool):
                return float(value)
            case "int" | "long", str() if logical:
                return _moment(logical, value)
        return value

    def _branch(self, branches: list[Any], value: Json) -> Any:
        import fastavro

        if value is None:
            return None
        for branch in branches:
            try:
                candidate = self._value(branch, value)
                if fastavro.validate(candidate, branch, raise_errors=False):
                    return candidate
            except ValueError:
                continue
        return value


def as_json(value: Any) -> str:
    """A value as JSON text; decimals keep all digits."""
    match value:
        case None:
            return "null"
        case dict():
            return (
                "{" + ",".join(f"{json.dumps(str(k), ensure_ascii=False)}:{as_json(v)}" for k, v in value.items()) + "}"
            )
        case list() | tuple():
            return "[" + ",".join(map(as_json, value)) + "]"
        case bytes():
            return f'"{value.hex()}"'
        case Decimal():
            return format(value, "f")
        case float() if not math.isfinite(value):
            return "null"
        case bool() | int() | float() | str():
            return json.dumps(value, ensure_ascii=False)
        case datetime() | date() | time():
            return f'"{value.isoformat().replace("+00:00", "Z")}"'
    return json.dumps(str(value), ensure_ascii=False)


def _decimal(value: Json) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return value
    try:
        return Decimal(value)
    except InvalidOperation as error:
        raise ValueError(f"'{value}' is not a valid decimal number") from error


def _moment(logical: str, text: str) -> Any:
    """A date or time in ISO text, as the number or the object that the library needs."""
    if logical == "date":
        return date.fromisoformat(text)
    if logical.startswith("time-"):
        return time.fromisoformat(text)
    factor, divisor = _UNITS[logical.rpartition("-")[2]]
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND * factor // divisor

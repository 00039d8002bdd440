"""What is wrong with the bytes of a single Avro body.

The Arrow project's reader stops at the first body of a chunk that does not match its schema, and does not say which one
that is; reading the bodies one by one with it costs 1.6 ms each. So fastavro reads every body of a rejected chunk, some
tens of microseconds each, and its values are thrown away.

The Arrow reader decides which bodies are bad. Where it is stricter or more lenient than fastavro, its rule is applied
here: 32 bits of an int, the range of enum symbols and union branches, the width of decimals. What only the Arrow reader
rejects (a number of more than 64 bits, a negative block size) is found by the search by halves in `avro_messages.py`.
Lengths and counts are never trusted: fastavro reads only bytes that exist, and every item of an array or map takes at
least one byte.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from streamling.plan.types import SPARK_DIGITS

Json = Any
# Logical types of our own: fastavro calls the check of a value after it has read the value.
_INT, _SYMBOL, _DECIMAL = "streamling-int", "streamling-symbol", "streamling-decimal"


class _Fault(Exception):
    """A value that fastavro accepts and the Arrow reader does not."""


def fault_finder(schema: Json) -> Callable[[bytes], str | None]:
    """A function that returns what is wrong with a body, or None. The schema comes from `decoding_schema`."""
    from fastavro import schemaless_reader

    whole = _parse(schema)
    columns = [(path, _parse(type_)) for path, type_ in _columns(schema, "")]

    def fault(body: bytes) -> str | None:
        stream = io.BytesIO(body)
        try:
            schemaless_reader(stream, whole, None)
        except Exception:  # bytes that are not Avro make the library fail in any way
            return locate(body)
        end = stream.tell()
        return None if end == len(body) else f"it should end after {end} bytes, and has {len(body)}"

    def locate(body: bytes) -> str:
        """Reads column by column: a record is written as the values of its fields, one after the other."""
        stream = io.BytesIO(body)
        for path, column in columns:
            try:
                schemaless_reader(stream, column, None)
            except Exception as error:
                return f"'{path}' {_describe(error)}" if path else f"it {_describe(error)}"
        raise AssertionError("a body is read in one way as a whole and in another by columns")

    return fault


def _describe(error: Exception) -> str:
    match error:
        case _Fault():
            return str(error)
        case UnicodeDecodeError():
            return "is not UTF-8"
        case EOFError() if str(error).startswith(
            "Expected "
        ):  # for other values the text has only the address of the stream
            return f"ends early: e{str(error)[1:]}"
        case EOFError():
            return "ends early"
    return f"cannot be decoded: {error}"


def _columns(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
    """The values of a record and of the records in it, by their path."""
    if not isinstance(schema, dict) or schema["type"] != "record":
        yield path, schema
        return
    for field in schema["fields"]:
        yield from _columns(field["type"], f"{path}.{field['name']}" if path else field["name"])


def _parse(schema: Json) -> Json:
    """The schema for fastavro; in a record, because fastavro parses any other schema again for every body."""
    from fastavro import parse_schema

    _register_checks()
    names = count()
    return _with_branches(parse_schema(_record([_with_checks(schema, names)], names)))


def _with_checks(schema: Json, names: Iterator[int]) -> Json:
    """The schema with our checks, and without everything that does not decide how many bytes a value has."""
    if isinstance(schema, list):
        return [_with_checks(branch, names) for branch in schema]
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "int":
            return {"type": "int", "logicalType": _INT}
        case "enum":
            return {"type": "int", "logicalType": _SYMBOL, "count": len(schema["symbols"])}
        case "bytes" | "fixed" if isinstance(schema, dict):
            sized = {"name": f"n{next(names)}", "size": schema["size"]} if kind == "fixed" else {}
            if schema.get("logicalType") != "decimal":
                return {"type": kind, **sized}
            # It must fit into Arrow's decimals, whatever its precision.
            bits = 128 if schema["precision"] <= SPARK_DIGITS else 256
            return {"type": kind, **sized, "logicalType": _DECIMAL, "bits": bits}
        case "array":
            return {"type": "array", "items": _with_checks(schema["items"], names)}
        case "map":
            return {"type": "map", "values": _with_checks(schema["values"], names)}
        case "record":
            return _record([_with_checks(field["type"], names) for field in schema["fields"]], names)
    return kind


def _record(types: list[Json], names: Iterator[int]) -> Json:
    fields = [{"name": f"f{number}", "type": type_} for number, type_ in enumerate(types)]
    return {"type": "record", "name": f"n{next(names)}", "fields": fields}


def _register_checks() -> None:
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS[f"int-{_INT}"] = _check_int
    LOGICAL_READERS[f"int-{_SYMBOL}"] = _check_symbol
    LOGICAL_READERS[f"bytes-{_DECIMAL}"] = LOGICAL_READERS[f"fixed-{_DECIMAL}"] = _check_decimal


def _check_int(value: int, *_: Json) -> None:
    if not -(1 << 31) <= value < 1 << 31:
        raise _Fault("is a number of more than 32 bits")


def _check_symbol(index: int, schema: Json, *_: Json) -> None:
    if not 0 <= index < schema["count"]:
        raise _Fault(f"is symbol {index} of an enum of {schema['count']}")


def _check_decimal(value: bytes, schema: Json, *_: Json) -> None:
    if int.from_bytes(value, "big", signed=True).bit_length() >= schema["bits"]:
        raise _Fault(f"is a decimal of more than {schema['bits']} bits")


class _Branches(list[Json]):
    """The branches of a union, as the Arrow reader chooses one.

    If one of two is null, it takes the first for the index 0 and the second for every other index. In other unions the
    index must be in range; fastavro would count a negative one from the end.
    """

    def __getitem__(self, index: Any) -> Json:
        size = super().__len__()
        if size == 2 and "null" in self:
            return super().__getitem__(1 if index else 0)
        if not 0 <= index < size:
            raise _Fault(f"is branch {index} of a union of {size}")
        return super().__getitem__(index)

    def __len__(self) -> int:
        return 0  # compiled code adds the length to a negative index; with 0 the index stays what it is


def _with_branches(schema: Json) -> Json:
    if isinstance(schema, list):
        return _Branches(_with_branches(branch) for branch in schema)
    if isinstance(schema, dict):
        for key in ("type", "items", "values"):
            if key in schema:
                schema[key] = _with_branches(schema[key])
        for field in schema.get("fields", ()):
            _with_branches(field)
    return schema

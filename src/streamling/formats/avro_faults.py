"""What is wrong with the bytes of a single Avro body.

The Arrow project's reader gives up where the first body of many is not of its schema, and does not say which it was;
to show it bodies one by one costs milliseconds each. Here they are looked at byte by byte, without making values of
them. What is good or bad is the reader's judgement: this one must agree with it, also where it is lenient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamling.plan.types import SPARK_DIGITS

Json = Any
Walk = Callable[[bytes, int], int]
"""Where the value that begins at a place ends. Raises _Fault, or IndexError where the bytes end before it does."""

_LONGEST_NUMBER = 10
_SIZES = {"boolean": 1, "float": 4, "double": 8}


class _Fault(Exception):
    def __init__(self, what: str, *path: str) -> None:
        """`path` begins at the value, and is added to by what it stands in."""
        self.what, self.path = what, list(path)

    def __str__(self) -> str:
        path = "".join(reversed(self.path)).removeprefix(".")
        return f"'{path}' {self.what}" if path else f"it {self.what}"


def fault_finder(schema: Json) -> Callable[[bytes], str | None]:
    """What says what is wrong with a body, None if nothing is. The schema is one that `readable` gave."""
    walk = _walk(schema)

    def fault(body: bytes) -> str | None:
        try:
            end = walk(body, 0)
        except _Fault as found:
            return str(found)
        except IndexError:
            return "it ends early"
        return None if end == len(body) else f"it should end after {end} bytes, and has {len(body)}"

    return fault


def _walk(schema: Json) -> Walk:
    if isinstance(schema, list):
        return _union([_walk(branch) for branch in schema], schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "null":
            return lambda body, at: at
        case "boolean" | "float" | "double":
            return _sized(_SIZES[kind])
        case "int":
            return _int
        case "long":
            return lambda body, at: _number(body, at)[1]
        case "enum":
            return _symbol(len(schema["symbols"]))
        case "string":
            return _text
        case "fixed":
            return _decimal(schema) or _sized(schema["size"])
        case "bytes":
            return (_decimal(schema) if isinstance(schema, dict) else None) or (lambda body, at: _bytes(body, at)[1])
        case "array":
            return _blocks(_walk(schema["items"]), "[]")
        case "map":
            return _blocks(_entry(_walk(schema["values"])), "{}")
        case "record":
            return _record([(field["name"], _walk(field["type"])) for field in schema["fields"]])
    raise AssertionError(f"{kind} is no type of Avro")


def _number(body: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    found = body[at]
    if found < 0x80:  # as most of them
        return (found >> 1) ^ -(found & 1), at + 1
    found &= 0x7F
    for place in range(1, _LONGEST_NUMBER):
        byte = body[at + place]
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if found >> 64:
                break
            return (found >> 1) ^ -(found & 1), at + place + 1
    raise _Fault("is a number of more than 64 bits")


def _int(body: bytes, at: int) -> int:
    found, end = _number(body, at)
    if not -(1 << 31) <= found < 1 << 31:
        raise _Fault("is a number of more than 32 bits")
    return end


def _sized(size: int) -> Walk:
    def walk(body: bytes, at: int) -> int:
        if at + size > len(body):
            raise IndexError
        return at + size

    return walk


def _bytes(body: bytes, at: int) -> tuple[int, int]:
    """Where bytes begin and end whose number stands before them."""
    size, start = _number(body, at)
    if size < 0:
        raise _Fault(f"has {size} bytes")
    if start + size > len(body):
        raise IndexError
    return start, start + size


def _text(body: bytes, at: int) -> int:
    start, end = _bytes(body, at)
    try:
        body[start:end].decode()
    except UnicodeDecodeError:
        raise _Fault("is not UTF-8") from None
    return end


def _symbol(count: int) -> Walk:
    def walk(body: bytes, at: int) -> int:
        end = _int(body, at)
        index, _ = _number(body, at)
        if not 0 <= index < count:
            raise _Fault(f"is the symbol {index} of {count}")
        return end

    return walk


def _decimal(schema: dict[str, Json]) -> Walk | None:
    """None where the bytes are just bytes. Others must fit the decimals of Arrow, whatever their precision."""
    if schema.get("logicalType") != "decimal":
        return None
    width, size = 16 if schema["precision"] <= SPARK_DIGITS else 32, schema.get("size")
    fixed = _sized(size) if size is not None else None

    def walk(body: bytes, at: int) -> int:
        start, end = (at, fixed(body, at)) if fixed is not None else _bytes(body, at)
        if end - start > width:
            number = int.from_bytes(body[start:end], "big", signed=True)
            if not -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1:
                raise _Fault(f"is a decimal of more than {8 * width} bits")
        return end

    return walk


def _blocks(item: Walk, mark: str) -> Walk:
    def walk(body: bytes, at: int) -> int:
        while True:
            count, at = _number(body, at)
            if count < 0:
                count = -count
                size, at = _number(body, at)  # for those who skip the block
                if size < 0:
                    raise _Fault(f"has a block of {size} bytes")
            if not count:
                return at
            if count > len(body) - at:  # each has a byte at least
                raise IndexError
            try:
                for _ in range(count):
                    at = item(body, at)
            except _Fault as fault:
                fault.path.append(mark)
                raise

    return walk


def _entry(value: Walk) -> Walk:
    return lambda body, at: value(body, _text(body, at))


def _union(branches: list[Walk], schema: list[Json]) -> Walk:
    if len(branches) == 2 and "null" in schema:
        # The reader asks only whether it is the first of the two.
        first, second = branches

        def either(body: bytes, at: int) -> int:
            index, at = _number(body, at)
            return second(body, at) if index else first(body, at)

        return either

    def walk(body: bytes, at: int) -> int:
        index, at = _number(body, at)
        if not 0 <= index < len(branches):
            raise _Fault(f"is of the branch {index} of {len(branches)}")
        return branches[index](body, at)

    return walk


def _record(fields: list[tuple[str, Walk]]) -> Walk:
    def walk(body: bytes, at: int) -> int:
        for name, field in fields:
            try:
                at = field(body, at)
            except _Fault as fault:
                fault.path.append(f".{name}")
                raise
            except IndexError:
                raise _Fault("ends early", f".{name}") from None
        return at

    return walk

"""Reads one JSON object by the types of its fields, and keeps the text of objects and lists where text is expected.

The text stays as it is in the message: no digit, space or escape changes. Other values are those of `json_text.parse`.
Fields that are not declared may be nested to any depth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamling.formats.json_text import parse, scan
from streamling.plan.types import DataType, Field

Reader = Callable[[str, int], tuple[Any, int]]
"""Reads the value at an index of a text; returns it and the index after it."""
_SPACES = re.compile(r"[ \t\n\r]*")


def object_reader(fields: Sequence[Field]) -> Callable[[str], Any]:
    """A function that reads a text. It raises ValueError if the text is not JSON."""
    read = _struct(fields)

    def read_text(text: str) -> Any:
        try:
            value, end = read(text, _after_spaces(text, 0))
            if _after_spaces(text, end) == len(text):
                return value
        except ValueError:
            pass
        return parse(text)  # raises the error that the text causes everywhere else

    return read_text


def _reader(type_: DataType) -> Reader:
    match type_.kind:
        case "string":
            return _text
        case "struct":
            return _struct(type_.fields)
        case "list" if type_.item and (item := _reader(type_.item)) is not scan:
            return _list(item)
        case "map" if type_.item and (item := _reader(type_.item)) is not scan:
            return _object({}, item)
    return scan


def _text(text: str, at: int) -> tuple[Any, int]:
    value, end = scan(text, at)
    return (text[at:end] if isinstance(value, dict | list) else value), end


def _struct(fields: Sequence[Field]) -> Reader:
    return _object({f.name: _reader(f.type) for f in fields}, scan)


def _object(members: Mapping[str, Reader], others: Reader) -> Reader:
    """`others` reads the members without a reader of their own."""

    def read(text: str, at: int) -> tuple[Any, int]:
        if text[at : at + 1] != "{":
            return scan(text, at)
        values: dict[str, Any] = {}
        at = _after_spaces(text, at + 1)
        if text[at : at + 1] == "}":
            return values, at + 1
        while True:
            _expect(text, at, '"')
            name, at = scan(text, at)
            at = _after_spaces(text, _expect(text, _after_spaces(text, at), ":"))
            values[name], at = members.get(name, others)(text, at)
            at = _after_spaces(text, at)
            if text[at : at + 1] == "}":
                return values, at + 1
            at = _after_spaces(text, _expect(text, at, ","))

    return read


def _list(item: Reader) -> Reader:
    def read(text: str, at: int) -> tuple[Any, int]:
        if text[at : at + 1] != "[":
            return scan(text, at)
        values: list[Any] = []
        at = _after_spaces(text, at + 1)
        if text[at : at + 1] == "]":
            return values, at + 1
        while True:
            value, at = item(text, at)
            values.append(value)
            at = _after_spaces(text, at)
            if text[at : at + 1] == "]":
                return values, at + 1
            at = _after_spaces(text, _expect(text, at, ","))

    return read


def _after_spaces(text: str, at: int) -> int:
    match = _SPACES.match(text, at)
    return match.end() if match is not None else at


def _expect(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise ValueError(f"'{sign}' is expected at {at}")
    return at + 1

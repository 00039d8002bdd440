"""Types as authors write them in a pipeline file, as text.

A text is a name of this language or of SQL, `int64`, `double precision`, `numeric(12,2)`, or a nested type,
`list<int64>`, `map<string, int64>`, `struct<name: string, tags: list<string>>`, `int64[]`. It is what `plan` shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from streamling.plan.flat_types import NAMES as FLAT_NAMES
from streamling.plan.flat_types import UnknownName, UnknownType, checked_zone, flat_type, sized_decimal
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DECIMAL256_DIGITS,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULL,
    STRING,
    TIME64,
    TIMESTAMP,
    TIMESTAMP_UTC,
    DataType,
    Field,
    list_of,
    map_of,
    struct_of,
)
from streamling.spec.faults import nearest

# The names that SQL transforms accept too, with the same meaning.
_SQL = {
    "tinyint": INT8,
    "smallint": INT16,
    "int": INT32,
    "integer": INT32,
    "bigint": INT64,
    "real": FLOAT32,
    "float": FLOAT32,
    "double": FLOAT64,
    "double precision": FLOAT64,
    "bool": BOOLEAN,
    "text": STRING,
    "varchar": STRING,
    "char": STRING,
    "character": STRING,
    "character varying": STRING,
    "bytea": BINARY,
    "date": DATE,
    "time": TIME64,
    "time without time zone": TIME64,
    "timestamp without time zone": TIMESTAMP,
    "timestamptz": TIMESTAMP_UTC,
    "timestamp with time zone": TIMESTAMP_UTC,
}
# Their length is not checked, as in SQL transforms.
_SIZED_TEXT = ("varchar", "char", "character", "character varying")
# The names of types in other systems.
_OTHER_SYSTEMS = {
    "short": "int16",
    "long": "int64",
    "number": "float64",
    "numeric": "numeric(p,s)",
    "str": "string",
    "uuid": "string",
    "json": "string",
    "jsonb": "string",
    "bytes": "binary",
    "blob": "binary",
    "varbinary": "binary",
    "datetime": "timestamp",
    "list": "list<type>",
    "array": "list<type>",
    "map": "map<string, type>",
    "object": "struct<name: type, ...>",
    "struct": "struct<name: type, ...>",
    "record": "struct<name: type, ...>",
}
_UNITS = {"s": "s", "ms": "ms", "us": None, "ns": "ns"}
_NESTED = ("list<type>", "map<string, type>", "struct<name: type, ...>")

NAMES = (*FLAT_NAMES, *_SQL, "numeric(p,s)", "varchar(n)", "timestamp(unit, zone)", "binary(n)")
"""Every flat name that is accepted, with its parameters."""

_SPACES = re.compile(r"\s+")
_HEAD = re.compile(r"[^<>,\[\]()]*")
_PARAMETERS = re.compile(r"\((?:[^()]|\([^()]*\))*\)[^<>,\[\]()]*")
_FIELD = re.compile(r'\s*(?:"((?:[^"]|"")*)"|`([^`]*)`|([^<>,:"`()\[\]]+?))\s*:')
_FLAT = re.compile(r"([a-z0-9_ ]+?) ?(?:\((.*)\)(.*))?", re.DOTALL)
# Deeper types are a mistake, and would end the recursion of everything that walks through types.
_DEEPEST = 64


def declared_type(text: str) -> DataType:
    """The type that a text describes, ignoring case. Raises UnknownType."""
    if is_cut_off(text):
        raise UnknownType(f"'{text}' is cut off: between braces a comma ends the value; put the type in quotes")
    return _TypeText(text).whole()


def is_cut_off(text: str) -> bool:
    """Whether a bracket is open at the end, as it is if YAML has split a type at a comma between braces."""
    return any(text.count(left) > text.count(right) for left, right in ("()", "<>"))


class _TypeText:
    """Reads a type from its text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> DataType:
        type_ = self._type()
        if self._text[self._at :].strip():
            raise self._malformed()
        return type_

    def _type(self) -> DataType:
        start = self._at
        self._take(_HEAD)
        if self._text[self._at : self._at + 1] == "(":
            self._take(_PARAMETERS)
        head = self._text[start : self._at].strip()
        type_ = self._nested(head) if self._skip("<") else self._flat(head)
        while self._skip("["):
            if not self._skip("]"):
                raise self._malformed()
            type_ = checked_nested(list_of(type_))
        return type_

    def _nested(self, head: str) -> DataType:
        readers: dict[str, Callable[[], DataType]] = {
            "list": self._list,
            "array": self._list,
            "map": self._map,
            "struct": self._struct,
        }
        read = readers.get(head.lower())
        if read is None:
            raise _unsupported(f"{head}<...>", head, self._text)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnknownType(f"the type is nested deeper than {_DEEPEST} levels")
        type_ = read()
        if not self._skip(">"):
            raise self._malformed()
        self._depth -= 1
        return checked_nested(type_)

    def _list(self) -> DataType:
        return list_of(self._type())

    def _map(self) -> DataType:
        key = self._type()
        if not self._skip(","):
            raise self._malformed()
        if key != STRING:
            raise UnknownType(f"'{self._text}': the keys of a map are text; write map<string, type>")
        return map_of(self._type())

    def _struct(self) -> DataType:
        fields: list[Field] = []
        while True:
            name = _FIELD.match(self._text, self._at)
            if name is None:
                raise self._malformed()
            self._at = name.end()
            quoted, backquoted, bare = name.groups()
            fields.append(Field((quoted or "").replace('""', '"') or backquoted or bare or "", self._type()))
            if not self._skip(","):
                return struct_of(*fields)

    def _flat(self, head: str) -> DataType:
        try:
            return _flat_type(head)
        except UnknownType as error:
            if head == self._text.strip():
                raise
            inside = UnknownType(f"{error}; it is in '{self._text}'")
            inside.hint = error.hint
            raise inside from error

    def _take(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at

    def _skip(self, sign: str) -> bool:
        at = self._at
        while self._text[at : at + 1].isspace():
            at += 1
        if self._text[at : at + 1] != sign:
            return False
        self._at = at + 1
        return True

    def _malformed(self) -> UnknownType:
        rest = self._text[self._at :].strip()
        place = f"at '{rest[:40]}'" if rest else "at its end"
        return UnknownType(f"'{self._text}' is malformed {place}; nested types are {', '.join(_NESTED)} and type[]")


def checked_nested(type_: DataType) -> DataType:
    """A list, map or struct of types that can be inside of it. Raises UnknownType."""
    names = [field.name for field in type_.fields]
    if "" in names:
        raise UnknownType(f"'{type_}' has a field without a name")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UnknownType(f"'{type_}' has two fields with the name '{twice}'")
    if NULL in (type_.item, *(field.type for field in type_.fields)):
        raise UnknownType(f"'{type_}': null is the type of a column without values; it cannot be inside of another")
    return type_


def _flat_type(text: str) -> DataType:
    parts = _FLAT.fullmatch(_SPACES.sub(" ", text).strip().lower())
    if parts is None:
        raise _unsupported(text, text)
    name, inner, after = parts[1], parts[2], (parts[3] or "").strip()
    if after and inner is not None:  # as in timestamp(3) with time zone
        raise _unsupported(text, text)
    if inner is None and name in _SQL:
        return _SQL[name]
    if name == "numeric":
        return sized_decimal(text, inner, most=DECIMAL256_DIGITS)
    if name in _SIZED_TEXT and _is_size(inner):
        return STRING
    if name == "binary" and _is_size(inner):
        return DataType("binary", length=int(inner or "0"))
    if name == "timestamp" and inner is not None and (type_ := _timestamp(text)) is not None:
        return type_
    try:
        return flat_type(text)
    except UnknownName:
        raise _unsupported(text, name) from None


def _is_size(inner: str | None) -> bool:
    return inner is not None and inner.isascii() and inner.isdigit() and 0 < int(inner) < 2**31


def _timestamp(text: str) -> DataType | None:
    """`timestamp(ms)`, `timestamp(UTC)` or `timestamp(ms, UTC)`; None for Arrow's spelling."""
    inner = text[text.index("(") + 1 : text.rindex(")")]
    unit, _, zone = (part.strip().strip("\"'") for part in inner.partition(","))
    if unit.lower() in _UNITS:
        return DataType("timestamp", unit=_UNITS[unit.lower()], zone=checked_zone(text, zone) if zone else None)
    if not zone and re.fullmatch(r"UTC|[+-]\d\d:\d\d|\w+/.+", unit):
        return DataType("timestamp", zone=checked_zone(text, unit))
    return None


def _unsupported(text: str, word: str, whole: str | None = None) -> UnknownType:
    inside = f" in '{whole}'" if whole is not None else ""
    accepted = ", ".join((*FLAT_NAMES, *_NESTED))
    error = UnknownType(f"unsupported data type '{text}'{inside}; accepted: {accepted}, and SQL's names such as bigint")
    suggestion = nearest(re.sub(r"\(.*|[\W_]", "", word.lower()), (*FLAT_NAMES, *_SQL, *_OTHER_SYSTEMS))
    if suggestion is not None:
        error.hint = f"did you mean '{_OTHER_SYSTEMS.get(suggestion, suggestion)}'?"
    return error

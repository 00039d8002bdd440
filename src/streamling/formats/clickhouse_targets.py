"""The types of ClickHouse columns, parsed as far as the values that are sent to them depend on it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from streamling.formats.clickhouse_syntax import NAME, plain_name, split_list

_TYPE = re.compile(r"([A-Za-z][A-Za-z0-9]*)(?:\((.*)\))?", re.DOTALL)
_MEMBER = re.compile(rf"({NAME})\s+(.+)", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,9}")
_DECIMAL_DIGITS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
# Deeper than real types are nested.
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Target:
    """The type of a column, or of a part of it.

    text      as ClickHouse writes it
    name      without `Nullable` and `LowCardinality`
    numbers   parameters that are numbers: digits, length
    parts     types of the items of an array, of key and value of a map, of the members of a tuple
    names     of the members of a tuple
    """

    text: str
    name: str
    nullable: bool = False
    numbers: tuple[int, ...] = ()
    parts: tuple[Target, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def parse_target(text: str, depth: int = 0) -> Target:
    """Raises ValueError for text that is not a type."""
    type_ = _TYPE.fullmatch(text)
    if type_ is None or depth > _DEEPEST:
        raise ValueError(f"{text} is not a ClickHouse type")
    name, inner = type_[1], split_list(type_[2] or "")
    match name, inner:
        case "Nullable", [one]:
            return replace(parse_target(one, depth + 1), text=text, nullable=True)
        case ("LowCardinality", [one]) | ("SimpleAggregateFunction", [_, one]):
            return replace(parse_target(one, depth + 1), text=text)
        case ("Array", [_]) | ("Map", [_, _]):
            return Target(text, name, parts=tuple(parse_target(part, depth + 1) for part in inner))
        case "Tuple", [_, *_]:
            return _tuple(text, inner, depth)
        case _, [scale] if name in _DECIMAL_DIGITS:
            return Target(text, "Decimal", numbers=(_DECIMAL_DIGITS[name], int(scale)))
    numbers = tuple(int(part) for part in inner if _NUMBER.fullmatch(part))
    return Target(text, name, numbers=numbers)


def _tuple(text: str, inner: tuple[str, ...], depth: int) -> Target:
    """Members without a name are named by their number, as ClickHouse does."""
    names, parts = [], []
    for number, member in enumerate(inner, 1):
        named = _MEMBER.fullmatch(member)
        names.append((plain_name(named[1]) if named else None) or str(number))
        parts.append(parse_target(named[2] if named else member, depth + 1))
    return Target(text, "Tuple", parts=tuple(parts), names=tuple(names))

"""Types of the application settings, whose values always arrive as text.

A file and the environment are read in the same way: a value is the text the user wrote, and the key decides to which
type it is cast.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BeforeValidator

_TRUE = frozenset({"1", "true", "on", "yes"})
_FALSE = frozenset({"0", "false", "off", "no"})
_WHOLE = re.compile(r"[-+]?[0-9]{1,30}")


class Choice(StrEnum):
    """One of a few words; case and surrounding spaces are ignored."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        folded = value.strip().casefold() if isinstance(value, str) else None
        return next((member for member in cls if member.value.casefold() == folded), None)


def _boolean(value: object) -> object:
    if isinstance(value, bool):
        return value
    word = value.strip().casefold() if isinstance(value, str) else ""
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise ValueError(f"must be true or false, not {_describe(value)}")


def _whole(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise ValueError(f"must be a whole number, not {_describe(value)}")


def _names(value: object) -> object:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("must be a list of names, or one text with the names separated by commas")
    return tuple(part.strip() for part in parts if part.strip())


def _describe(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else "a list" if isinstance(value, list | tuple) else "a map"


Bool = Annotated[bool, BeforeValidator(_boolean)]
Int = Annotated[int, BeforeValidator(_whole)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]

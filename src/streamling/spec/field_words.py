"""The type and the default of a field of an options or settings model, in the words of YAML authors.

Values are put in backquotes, as in Markdown.
"""

from __future__ import annotations

import types
from datetime import timedelta
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamling.spec.duration import format_duration
from streamling.spec.secret import Secret

ANY = "any value"
"""The type of a field that accepts every value, for example an option of a plugin."""
_SIGNS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_PLAIN: dict[type, str] = {
    str: "text",
    Secret: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    timedelta: "duration",
}


def type_of(field: FieldInfo) -> str:
    """The type, with its bounds: `integer, at least 1`."""
    text = type_name(field.annotation)
    bounds = [f"{_SIGNS[name]} {value:,}" for name in _SIGNS for value in _bounds(field, name)]
    return f"{text}, {' and '.join(bounds)}" if bounds else text


def _bounds(field: FieldInfo, name: str) -> list[float]:
    return [value for item in field.metadata if (value := getattr(item, name, None)) is not None]


def type_name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_name(a) for a in arguments if a is not types.NoneType))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        # The only tuples of text are column names, which are written as one text with commas.
        return "text" if arguments[0] is str else f"list of {type_name(arguments[0])}s"
    if origin is dict:
        inner = type_name(arguments[1])
        return f"map of {'maps' if inner == 'map' else inner}"
    if hasattr(annotation, "__metadata__"):
        return type_name(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "map"
    if isinstance(annotation, type) and annotation in _PLAIN:
        return _PLAIN[annotation]
    # Column types are a class of the planner, which this package must not import.
    return "type" if getattr(annotation, "__name__", "") == "DataType" else ANY


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return format_value(field.get_default(call_default_factory=True))


def format_value(value: object) -> str:
    """A value as it would be written in a file."""
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case Enum():
            return f"`{value.value}`"
        case timedelta():
            return f"`{format_duration(value)}`"
        case BaseModel():
            return "`{" + ", ".join(f"{k}: {format_value(v).strip('`')}" for k, v in value) + "}`"
        case dict() | tuple() if not value:
            return "none"
        case dict():
            return "`{" + ", ".join(f"{k}: {v}" for k, v in value.items()) + "}`"
        case _:
            return f"`{value}`"

"""Options of nodes and stored positions as values of JSON, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any

from pydantic import BaseModel

from streamling.spec.duration import format_duration
from streamling.spec.mask import MASK, SECRETIVE, is_secretive, mask_text, mask_url
from streamling.spec.pipeline.options import NodeOptions
from streamling.spec.settings.masking import NAMES

# Programs: what looks like a password in an address may be a page of code.
_CODE = frozenset({"sql", "filter", "query"})
# `apiKey: '..'`, `password = ".."`: what a program assigns to such a name, or compares with it. A program may contain
# a megabyte of data in one word: it is looked at once, not again from each of its letters.
_LITERAL = re.compile(
    r"""((?<![\w.-])[\w.-]++["'`]?\s{0,9}(?:[:=]|=>|==|===)\s{0,9})"""
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)"""
)


def masked_options(options: NodeOptions) -> dict[str, Any]:
    """Every option by its name in the pipeline file."""
    code = _CODE | set(options.opaque)
    return {
        name: _masked_code(value) if name in code and isinstance(value, str) else _entry(name, value)
        for name, value in _fields(options).items()
    }


def _masked_code(text: str) -> str:
    return mask_text(_LITERAL.sub(lambda found: found[1] + MASK if SECRETIVE.search(found[1]) else found[0], text))


def masked_positions(positions: Mapping[str, Any]) -> dict[str, Any]:
    """State keys begin with the names of nodes, so they do not tell whether a position is a secret."""
    return {mask_text(key): masked(value) for key, value in positions.items()}


def masked(value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return mask_text(mask_url(value))
        case BaseModel():
            return masked(_fields(value))
        case Mapping():
            return {str(key): _entry(str(key), inner) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [masked(inner) for inner in value]
        case Enum():
            return masked(value.value)
        case timedelta():
            return format_duration(value)
        case _:
            return mask_text(str(value))


def _entry(key: str, value: Any) -> Any:
    if key in _CODE and isinstance(value, str):
        return _masked_code(value)
    if key in NAMES and isinstance(value, Mapping):
        return {str(name): masked(inner) for name, inner in value.items()}
    return MASK if is_secretive(key) and not isinstance(value, bool | None) else masked(value)


def _fields(model: BaseModel) -> dict[str, Any]:
    known = {field.alias or name: getattr(model, name) for name, field in type(model).model_fields.items()}
    return known | (model.model_extra or {})

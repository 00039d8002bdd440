"""Settings as plain values that may be printed: secrets are masked."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

from pydantic import BaseModel

from streamling.spec.duration import format_duration
from streamling.spec.mask import MASK, SECRETIVE, is_secretive, mask, mask_url, remember, remember_url
from streamling.spec.secret import Secret

NAMES = frozenset({"schema", "schema_override", "schema_overrides", "columns", "update_where", "labels"})
"""Maps whose keys are names of columns and labels: a column `token_id` is no secret."""


def mask_fields(model: BaseModel) -> dict[str, Any]:
    """Every field of the model by its name in a file; secrets and passwords in URLs are masked."""
    fields = type(model).model_fields
    return {field.alias or name: _mask_value(getattr(model, name)) for name, field in fields.items()}


def hide(value: object) -> object:
    """As `mask_fields`, for a single value of any type, and without the last characters of secrets."""
    match value:
        case str():
            return mask_url(value)
        case dict():
            return {key: MASK if isinstance(key, str) and is_secretive(key) else hide(v) for key, v in value.items()}
        case _:
            return value


def remember_secrets(model: BaseModel) -> None:
    """Passwords in URLs, and values of Spark settings and plugin options with a secret name: `mask_text` masks them."""
    programs = getattr(type(model), "opaque", ())
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if not (name in programs and isinstance(value, str)) and (field.alias or name) not in NAMES:
            _remember((), value)
    _remember((), model.model_extra or {})


def _remember(names: tuple[str, ...], value: object) -> None:
    """`names`: the keys that lead to the value in options that have no model."""
    match value:
        case BaseModel():
            remember_secrets(value)
        case str() if any(map(is_secretive, names)):
            remember(value)
        case str():
            remember_url(value)
        case dict():
            for name, inner in value.items():
                if name not in NAMES:
                    _remember((*names, str(name)), inner)
        case tuple() | list():
            for inner in value:
                _remember(names, inner)


def _mask_value(value: object) -> object:
    match value:
        case BaseModel():
            return mask_fields(value)
        case Secret():
            return value.masked()
        case Enum():
            return value.value
        case timedelta():
            return format_duration(value)
        case str():
            return mask_url(value)
        case dict():
            return {key: _mask_entry(str(key), inner) for key, inner in value.items()}
        case tuple():
            return [_mask_value(inner) for inner in value]
        case _:
            return value


def _mask_entry(key: str, value: object) -> object:
    # Under keys that users choose, a secret may be short: five characters could be most of it, so show none.
    if isinstance(value, Secret):
        return MASK
    return mask(value) if isinstance(value, str) and SECRETIVE.search(key) else _mask_value(value)

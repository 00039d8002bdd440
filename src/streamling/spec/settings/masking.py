"""Settings as plain values that may be printed."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

from pydantic import BaseModel

from streamling.spec.duration import format_duration
from streamling.spec.secret import MASK, SECRETIVE, Secret, mask, mask_url


def masked(model: BaseModel) -> dict[str, Any]:
    """Every field of the model by the name it has in a file; secrets and passwords in URLs are masked."""
    fields = type(model).model_fields
    return {field.alias or name: _shown(getattr(model, name)) for name, field in fields.items()}


def _shown(value: object) -> object:
    match value:
        case BaseModel():
            return masked(value)
        case Secret():
            return value.masked()
        case Enum():
            return value.value
        case timedelta():
            return format_duration(value)
        case str():
            return mask_url(value)
        case dict():
            return {key: _entry(str(key), inner) for key, inner in value.items()}
        case tuple():
            return [_shown(inner) for inner in value]
        case _:
            return value


def _entry(key: str, value: object) -> object:
    # Under keys that users choose nothing tells a short token from a long one: masked fully.
    if isinstance(value, Secret):
        return MASK
    return mask(value) if isinstance(value, str) and SECRETIVE.search(key) else _shown(value)

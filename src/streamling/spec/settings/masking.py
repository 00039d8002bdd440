"""Settings as plain values that may be printed: secrets are masked."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

from pydantic import BaseModel

from streamling.spec.duration import format_duration
from streamling.spec.secret import MASK, SECRETIVE, Secret, mask, mask_url


def mask_fields(model: BaseModel) -> dict[str, Any]:
    """Every field of the model by its name in a file; secrets and passwords in URLs are masked."""
    fields = type(model).model_fields
    return {field.alias or name: _mask_value(getattr(model, name)) for name, field in fields.items()}


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

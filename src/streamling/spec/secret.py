"""Secret values."""

from __future__ import annotations

from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from streamling.spec.mask import MASK, mask, remember


class Secret:
    """A text that is printed as `*****`; only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text
        remember(text)

    def reveal(self) -> str:
        return self._text

    def masked(self) -> str:
        """The form for logs, with the last five characters: they tell two secrets apart."""
        return mask(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.no_info_before_validator_function(
            lambda value: value.reveal() if isinstance(value, Secret) else value, core_schema.str_schema()
        )
        return core_schema.no_info_after_validator_function(
            cls, text, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

"""Secret values, and the masked form in which they may be printed."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

MASK: Final = "*****"
SECRETIVE = re.compile(
    r"(?<![a-z])pass(?![a-z])|password|passwd|passphrase|keypass|secret|token|credential|authori[sz]ation|cookie"
    r"|(?:api|access)[-_.]?key|keystore",
    re.IGNORECASE,
)
"""Matches names of fields, options and parameters whose values must be masked."""
_PARAMETER = re.compile(r"(?<=[?&;])([^=&;?\s]+=)([^&\s\"',}\]]+)")
# A URL with one slash is a typing error; its password must be masked all the same.
_USERINFO = re.compile(r"(:/{1,3}[^/@:]*):([^/@]*)@")


class Secret:
    """A text that is printed as `*****`; only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

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


def mask(text: str) -> str:
    """`*****`, followed by the last five characters if the text is longer than five."""
    return MASK + text[-5:] if len(text) > 5 else MASK


def mask_url(text: str) -> str:
    """A URL, or a list of URLs, with the passwords masked, both before the host and in the query."""
    return _PARAMETER.sub(_mask_parameter, _USERINFO.sub(rf"\1:{MASK}@", text))


def _mask_parameter(parameter: re.Match[str]) -> str:
    return parameter[1] + MASK if SECRETIVE.search(parameter[1]) else parameter[0]

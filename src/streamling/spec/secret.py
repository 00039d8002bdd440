"""Values that must not be seen, and how what may be printed of them looks."""

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
"""Found in names whose values must not be shown."""
_PARAMETER = re.compile(r"(?<=[?&;])([^=&;?\s]+=)([^&\s\"',}\]]+)")
# One slash is a slip, which is no reason to show the password.
_USERINFO = re.compile(r"(:/{1,3}[^/@:]*):([^/@]*)@")


class Secret:
    """A text that shows itself only to who asks for it by `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def masked(self) -> str:
        """The form for logs: the last five characters help to tell two secrets apart."""
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
    """`*****` and, of a text longer than that, the last five characters."""
    return MASK + text[-5:] if len(text) > 5 else MASK


def mask_url(text: str) -> str:
    """A URL, or a list of them, without the passwords it carries, before the host or in the query."""
    return _PARAMETER.sub(_masked_parameter, _USERINFO.sub(rf"\1:{MASK}@", text))


def _masked_parameter(found: re.Match[str]) -> str:
    return found[1] + MASK if SECRETIVE.search(found[1]) else found[0]

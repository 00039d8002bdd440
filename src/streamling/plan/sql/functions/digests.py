"""Digests of text (its UTF-8 bytes) and bytes. `md5` returns hexadecimal text, the others return bytes."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.functions.signature import BYTES, LITERAL_TEXT, Function, form
from streamling.plan.sql.values import Refusal, Value
from streamling.plan.types import BINARY, STRING

_FORMS = {"md5": "unhex(md5({0}))", **{f"sha{bits}": f"unhex(sha2({{0}}, {bits}))" for bits in (224, 256, 384, 512)}}


def _sha(name: str) -> Function:
    return Function(f"{name}(value)", (BYTES,), form(_FORMS[name], BINARY))


def _digest(arguments: Sequence[Value]) -> Value:
    value, method = arguments
    template = _FORMS.get(str(method.constant).lower())
    if template is None:
        raise Refusal(f"the method must be one of {', '.join(_FORMS)}, not '{method.constant}'")
    return Value(template.format(value.text), BINARY, value.nullable)


FUNCTIONS: dict[str, Function] = {
    "md5": Function("md5(value)", (BYTES,), form("md5({0})", STRING)),
    "sha224": _sha("sha224"),
    "sha256": _sha("sha256"),
    "sha384": _sha("sha384"),
    "sha512": _sha("sha512"),
    "digest": Function("digest(value, method)", (BYTES, LITERAL_TEXT), _digest),
}

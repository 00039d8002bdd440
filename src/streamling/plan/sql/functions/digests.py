"""Digests of text (its UTF-8 bytes) and bytes. md5 is hex text, the others are bytes."""

from __future__ import annotations

from streamling.plan.sql.functions.signature import BYTES, Function, form
from streamling.plan.types import BINARY, STRING


def _sha(bits: int) -> Function:
    return Function(f"sha{bits}(value)", (BYTES,), form(f"unhex(sha2({{0}}, {bits}))", BINARY))


FUNCTIONS: dict[str, Function] = {
    "md5": Function("md5(value)", (BYTES,), form("md5({0})", STRING)),
    "sha224": _sha(224),
    "sha256": _sha(256),
    "sha384": _sha(384),
    "sha512": _sha(512),
}

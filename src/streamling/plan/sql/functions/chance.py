"""Functions that give a new value for every row."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.functions.signature import Function
from streamling.plan.sql.functions.times import NOW
from streamling.plan.sql.values import Value
from streamling.plan.types import FLOAT64, STRING


def _uuid7(_: Sequence[Value]) -> Value:
    """48 bits of milliseconds of the epoch's clock, the rest of a random UUID, whose version is replaced."""
    digits = f"lpad(lower(hex(unix_millis({NOW}))), 12, '0')"
    text = f"concat(left({digits}, 8), '-', right({digits}, 4), '-7', substring(uuid(), 16))"
    return Value(text, STRING, nullable=False)


FUNCTIONS: dict[str, Function] = {
    "random": Function("random()", (), lambda _: Value("rand()", FLOAT64, nullable=False)),
    "uuid": Function("uuid()", (), lambda _: Value("uuid()", STRING, nullable=False)),
    "uuid7": Function("uuid7()", (), _uuid7, reads_clock=True),
}

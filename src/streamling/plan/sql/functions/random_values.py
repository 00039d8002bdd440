"""Each call gives each row another value; all sinks get the same values."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.epoch import EPOCH_NOW, EPOCH_SEED, NOW, SEED
from streamling.plan.sql.functions.signature import Function
from streamling.plan.sql.values import Value
from streamling.plan.types import FLOAT64, STRING

_VERSION_4, _VERSION_7 = 0x4000, 0x7000


def _first_hash(row: Value, salt: Value) -> str:
    return f"xxhash64({SEED}, {row.text}, {salt.text})"


def _second_hash(row: Value, salt: Value) -> str:
    """Not the first hash with another salt: two rows with the same first hash would have the same second one."""
    return f"xxhash64({salt.text}, {row.text}, {SEED})"


def _random(place: Sequence[Value]) -> Value:
    """53 bits of a hash as a fraction."""
    text = f"(shiftrightunsigned({_first_hash(*place)}, 11) * 1.1102230246251565E-16D)"
    return Value(text, FLOAT64, nullable=False)


def _first_digits(place: Sequence[Value], version: int) -> str:
    """16 hexadecimal digits; the version of a UUID is the 13th."""
    return f"lower(lpad(hex(({_first_hash(*place)} & {~0xF000}L) | {version}L), 16, '0'))"


def _last_digits(place: Sequence[Value]) -> str:
    """16 hexadecimal digits; the first is 8, 9, a or b: the variant of a UUID."""
    return f"lower(hex(({_second_hash(*place)} & {2**62 - 1}L) | {-(2**63)}L))"


def _uuid(place: Sequence[Value]) -> Value:
    first, last = _first_digits(place, _VERSION_4), _last_digits(place)
    head = f"left({first}, 8), substring({first}, 9, 4), right({first}, 4)"
    return Value(f"concat_ws('-', {head}, left({last}, 4), right({last}, 12))", STRING, nullable=False)


def _uuid7(place: Sequence[Value]) -> Value:
    """48 bits with the milliseconds of the epoch's clock, the rest as in `uuid()`."""
    time = f"lpad(lower(hex(unix_millis({NOW}))), 12, '0')"
    first, last = _first_digits(place, _VERSION_7), _last_digits(place)
    head = f"left({time}, 8), right({time}, 4), right({first}, 4)"
    return Value(f"concat_ws('-', {head}, left({last}, 4), right({last}, 12))", STRING, nullable=False)


_SEED = frozenset({EPOCH_SEED})

FUNCTIONS: dict[str, Function] = {
    "random": Function("random()", (), _random, takes=_SEED),
    "uuid": Function("uuid()", (), _uuid, takes=_SEED),
    "uuid7": Function("uuid7()", (), _uuid7, takes=_SEED | {EPOCH_NOW}),
}

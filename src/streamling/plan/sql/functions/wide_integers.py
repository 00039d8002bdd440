"""Integers of 256 bits. They can be compared with all exact numbers; arithmetic is not supported yet."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.casts import cast
from streamling.plan.sql.functions.signature import ANY, Function, Parameter
from streamling.plan.sql.values import Refusal, Value, string_literal
from streamling.plan.sql.wide import is_whole
from streamling.plan.types import I256, INT64, NULL, STRING, U256, DataType


def _to(name: str, type_: DataType) -> Function:
    """A cast for which NULL is an error of the row."""

    def build(arguments: Sequence[Value]) -> Value:
        (value,) = arguments
        if value.type == NULL or not (is_whole(value.type) or value.type == STRING):
            raise Refusal(f"`{name}(value)` expects text or an integer, got {value.type}")
        integer = cast(value, type_)
        if not value.nullable:
            return integer
        refusal = string_literal(f"{name}: the value is NULL")
        return Value(f"coalesce({integer.text}, raise_error({refusal}))", type_, nullable=False)

    return Function(f"{name}(value)", (ANY,), build, once=True)


def _of(type_: DataType) -> Parameter:
    def admit(value: Value) -> Value:
        if value.type not in (type_, NULL):
            raise Refusal(f"expected {type_}, got {value.type}", hint=f"cast it with to_{type_}(value)")
        return cast(value, type_)

    return Parameter(str(type_), admit)


def _to_int64(arguments: Sequence[Value]) -> Value:
    """A number from 2^63 to 2^64 is read as the bits of a signed integer; a number out of range gives NULL."""
    number = f"try_cast({arguments[0].text} AS DECIMAL(38,0))"
    text = (
        f"CASE WHEN {number} BETWEEN {-(2**63)}BD AND {2**63 - 1}BD THEN CAST({number} AS BIGINT) "
        f"WHEN {number} BETWEEN {2**63}BD AND {2**64 - 1}BD THEN CAST({number} - {2**64}BD AS BIGINT) END"
    )
    return Value(text, INT64)


def _to_string(name: str, type_: DataType) -> Function:
    return Function(f"{name}({type_})", (_of(type_),), lambda a: cast(a[0], STRING))


FUNCTIONS: dict[str, Function] = {
    "to_u256": _to("to_u256", U256),
    "to_i256": _to("to_i256", I256),
    "u256_to_string": _to_string("u256_to_string", U256),
    "i256_to_string": _to_string("i256_to_string", I256),
    "to_int64": Function("to_int64(i256)", (_of(I256),), _to_int64),
}

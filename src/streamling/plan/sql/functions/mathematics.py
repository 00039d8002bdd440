"""Functions for numbers. Outside of a function's domain, where Spark gives NULL, the result is that of IEEE 754."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.coercions import cast_to, is_integer
from streamling.plan.sql.functions.signature import DOUBLE, LITERAL_INTEGER, NUMBER, Function, form, unless_null
from streamling.plan.sql.operators import arithmetic, quotient
from streamling.plan.sql.spark_types import MAX_PRECISION, digits, spark_type
from streamling.plan.sql.values import Value, string_literal
from streamling.plan.types import BOOLEAN, FLOAT32, FLOAT64, DataType, decimal

# From 2^52 on every float64 is whole; Spark's ceil and floor, which cast to BIGINT, are not needed.
_WHOLE = "4503599627370496D"


def _whole(name: str) -> Function:
    def build(arguments: Sequence[Value]) -> Value:
        (value,) = arguments
        if value.type.kind == "decimal":
            return Value(f"CAST({name}({value.text}) AS {spark_type(value.type)})", value.type, value.nullable)
        return _on_doubles(f"CAST({name}({{0}}) AS DOUBLE)", value)

    return Function(f"{name}(number)", (NUMBER,), build)


def _on_doubles(small: str, value: Value) -> Value:
    if is_integer(value.type):
        return cast_to(value, FLOAT64)
    number = cast_to(value, FLOAT64)
    type_ = FLOAT32 if value.type == FLOAT32 else FLOAT64
    text = f"CASE WHEN abs({number.text}) < {_WHOLE} THEN {small.format(number.text)} ELSE {number.text} END"
    return Value(text if type_ == FLOAT64 else f"CAST({text} AS FLOAT)", type_, value.nullable)


def _trunc(arguments: Sequence[Value]) -> Value:
    value = arguments[0]
    places = arguments[1].constant if len(arguments) > 1 else 0
    if not isinstance(places, int):
        raise AssertionError("a literal was admitted")
    if value.type.kind == "decimal":
        operands = f"{value.text}, {min(places, digits(value.type)[1])}"
        cut = f"CASE WHEN {value.text} < 0 THEN ceil({operands}) ELSE floor({operands}) END"
        return Value(f"CAST({cut} AS {spark_type(value.type)})", value.type, value.nullable)
    if places == 0 or (places > 0 and is_integer(value.type)):
        return _on_doubles("CAST(CAST({0} AS BIGINT) AS DOUBLE)", value)
    return _truncate_at(cast_to(value, FLOAT64), places, FLOAT32 if value.type == FLOAT32 else FLOAT64)


def _truncate_at(value: Value, places: int, type_: DataType) -> Value:
    """A float truncated at a decimal place; unchanged if a float does not have that many digits."""
    power = f"{10.0 ** min(abs(places), 300)!r}D"
    up, down = ("*", "/") if places > 0 else ("/", "*")
    scaled = f"({value.text} {up} {power})"
    cut = f"CAST(CAST({scaled} AS BIGINT) AS DOUBLE) {down} {power}"
    text = f"CASE WHEN abs({scaled}) < {_WHOLE} THEN {cut} ELSE {value.text} END"
    return Value(text if type_ == FLOAT64 else f"CAST({text} AS FLOAT)", type_, value.nullable)


def _round(arguments: Sequence[Value]) -> Value:
    value = arguments[0]
    places = arguments[1].constant if len(arguments) > 1 else 0
    if not isinstance(places, int):
        raise AssertionError("a literal was admitted")
    return Value(f"round({value.text}, {places})", _rounded_type(value.type, places), value.nullable)


def _rounded_type(type_: DataType, places: int) -> DataType:
    if type_.kind != "decimal":
        return type_
    precision, scale = digits(type_)
    whole = precision - scale + 1
    if places < 0:
        return decimal(min(MAX_PRECISION, max(whole, 1 - places)), 0)
    return decimal(min(MAX_PRECISION, whole + min(scale, places)), min(scale, places))


def _logarithm(name: str) -> Function:
    def build(arguments: Sequence[Value]) -> Value:
        return _log(name, arguments[0])

    return Function(f"{name}(number)", (DOUBLE,), build)


def _log(name: str, value: Value) -> Value:
    x = value.text
    text = (
        f"CASE WHEN {x} > 0D THEN {name}({x}) WHEN {x} = 0D THEN CAST('-Infinity' AS DOUBLE) "
        f"WHEN {x} < 0D THEN CAST('NaN' AS DOUBLE) END"
    )
    return Value(text, FLOAT64, value.nullable)


def _log_of_base(arguments: Sequence[Value]) -> Value:
    """`log(x)` has the base 10, `log(b, x)` the base b."""
    if len(arguments) == 1:
        return _log("log10", arguments[0])
    base, value = arguments
    return quotient(_log("ln", value), _log("ln", base))


def _sqrt(arguments: Sequence[Value]) -> Value:
    (value,) = arguments
    refusal = string_literal("sqrt: the number is negative")
    text = f"CASE WHEN {value.text} < 0D THEN raise_error({refusal}) ELSE sqrt({value.text}) END"
    return Value(text, FLOAT64, value.nullable)


def _of_double(name: str) -> Function:
    return Function(f"{name}(number)", (DOUBLE,), form(f"{name}({{0}})", FLOAT64))


_SAME = (
    "cbrt", "degrees", "radians", "sin", "cos", "tan", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh",
)  # fmt: skip
_POWER = Function("power(base, exponent)", (DOUBLE, DOUBLE), form("power({0}, {1})", FLOAT64))
_SIGN = Function("signum(number)", (DOUBLE,), form("signum({0})", FLOAT64))

FUNCTIONS: dict[str, Function] = {
    **{name: _of_double(name) for name in _SAME},
    "isnan": Function(
        "isnan(number)", (DOUBLE,), lambda a: Value(unless_null(a, f"isnan({a[0].text})"), BOOLEAN, a[0].nullable)
    ),
    "nanvl": Function(
        "nanvl(number, instead)", (DOUBLE, DOUBLE), form("CASE WHEN isnan({0}) THEN {1} ELSE {0} END", FLOAT64)
    ),
    "atan2": Function("atan2(y, x)", (DOUBLE, DOUBLE), form("atan2({0}, {1})", FLOAT64)),
    "abs": Function("abs(number)", (NUMBER,), form("abs({0})")),
    "ceil": _whole("ceil"),
    "floor": _whole("floor"),
    "round": Function("round(number[, places])", (NUMBER, LITERAL_INTEGER), _round, optional=1),
    "trunc": Function("trunc(number[, places])", (NUMBER, LITERAL_INTEGER), _trunc, optional=1),
    "pi": Function("pi()", (), lambda _: Value("pi()", FLOAT64, nullable=False)),
    "sqrt": Function("sqrt(number)", (DOUBLE,), _sqrt),
    "power": _POWER,
    "pow": _POWER,
    "exp": Function("exp(number)", (DOUBLE,), form("exp({0})", FLOAT64)),
    "ln": _logarithm("ln"),
    "log10": _logarithm("log10"),
    "log2": _logarithm("log2"),
    "log": Function("log([base, ]number)", (DOUBLE, DOUBLE), _log_of_base, optional=1),
    "sign": _SIGN,
    "signum": _SIGN,
    "mod": Function("mod(number, divisor)", (NUMBER, NUMBER), lambda a: arithmetic("%", a[0], a[1])),
}

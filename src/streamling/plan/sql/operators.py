"""Operators on compiled values: arithmetic, comparison, text.

Spark differs from our rules in `/` of integers, in floating-point division and remainder by zero, and in text compared
with a number; the texts compiled here correct that.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamling.errors import SQL_UNSUPPORTED
from streamling.plan.sql.coercions import (
    cast_to,
    cast_to_common,
    common_type,
    computed_value,
    decimal_of,
    is_float,
    is_integer,
    is_number,
    wider_integer,
)
from streamling.plan.sql.intervals import time_arithmetic
from streamling.plan.sql.patterns import is_well_formed, java_regexp, like_pattern
from streamling.plan.sql.spark_types import MAX_PRECISION, check_computable, digits, spark_type
from streamling.plan.sql.values import Interval, Refusal, Value, any_nullable, string_literal
from streamling.plan.sql.wide import comparison_key
from streamling.plan.types import (
    BOOLEAN,
    DURATION,
    FLOAT32,
    FLOAT64,
    INT64,
    NULL,
    STRING,
    DataType,
    decimal,
)


def arithmetic(operator: str, left: Value, right: Value) -> Value:
    """`left <operator> right` for `+ - * / %`."""
    if operator in "+-":
        time = time_arithmetic(operator, left, right)
        if time is not None:
            return time
    left, right = _type_nulls(computed_value(left), computed_value(right))
    if not (is_number(left.type) and is_number(right.type)):
        raise Refusal(f"operator `{operator}` does not accept {left.type} and {right.type}")
    if is_integer(left.type) and is_integer(right.type):
        return _on_integers(operator, left, right)
    if is_float(left.type) or is_float(right.type):
        return _on_floats(operator, left, right)
    return _on_decimals(operator, left, right)


def _type_nulls(left: Value, right: Value) -> tuple[Value, Value]:
    if left.type == right.type == NULL:
        return cast_to(left, INT64), cast_to(right, INT64)
    if left.type == NULL:
        return cast_to(left, right.type), right
    return left, (cast_to(right, left.type) if right.type == NULL else right)


def _on_integers(operator: str, left: Value, right: Value) -> Value:
    type_ = wider_integer(left.type, right.type)
    nullable = any_nullable((left, right))
    if operator != "/":
        return Value(f"({left.text} {operator} {right.text})", type_, nullable)
    quotient = f"({left.text} div {right.text})"
    return Value(quotient if type_ == INT64 else f"CAST({quotient} AS {spark_type(type_)})", type_, nullable)


def _on_floats(operator: str, left: Value, right: Value) -> Value:
    if left.type == right.type == FLOAT32 and operator not in "/%":
        return Value(f"({left.text} {operator} {right.text})", FLOAT32, any_nullable((left, right)))
    left, right = cast_to(left, FLOAT64), cast_to(right, FLOAT64)
    if operator == "/":
        return quotient(left, right)
    text = f"({left.text} {operator} {right.text})"
    if operator == "%" and not right.constant:
        # try_mod is NULL for a zero divisor; then zero times infinity gives the NaN, and NULL for NULL operands.
        text = f"coalesce(try_mod({left.text}, {right.text}), {left.text} * 0D * power({right.text}, -1D))"
    return Value(text, FLOAT64, any_nullable((left, right)))


def quotient(left: Value, right: Value) -> Value:
    """IEEE 754 division of two float64 values; Spark in ANSI mode fails for a zero divisor.

    try_divide gives NULL then; power(±0, -1) is the infinity with the sign of the zero, and NULL for NULL.
    """
    nullable = any_nullable((left, right))
    if right.constant:
        return Value(f"({left.text} / {right.text})", FLOAT64, nullable)
    text = f"coalesce(try_divide({left.text}, {right.text}), {left.text} * power({right.text}, -1D))"
    return Value(text, FLOAT64, nullable)


def _on_decimals(operator: str, left: Value, right: Value) -> Value:
    left, right = cast_to(left, decimal_of(left.type)), cast_to(right, decimal_of(right.type))
    type_ = _decimal_result(operator, left.type, right.type)
    return Value(f"({left.text} {operator} {right.text})", type_, any_nullable((left, right)))


def _decimal_result(operator: str, left: DataType, right: DataType) -> DataType:
    """Spark's result type with `spark.sql.decimalOperations.allowPrecisionLoss` off.

    The scale is exact; a value with too many digits is an error of its row.
    """
    (p1, s1), (p2, s2) = digits(left), digits(right)
    if operator == "/":
        return _decimal_quotient(p1, s1, p2, s2)
    if operator == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    elif operator == "%":
        scale = max(s1, s2)
        precision = min(p1 - s1, p2 - s2) + scale
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if scale > MAX_PRECISION:
        raise Refusal(f"{left} {operator} {right} needs {scale} decimal places; at most {MAX_PRECISION} are supported")
    return decimal(max(1, min(precision, MAX_PRECISION)), scale)


def _decimal_quotient(p1: int, s1: int, p2: int, s2: int) -> DataType:
    whole = min(MAX_PRECISION, p1 - s1 + s2)
    scale = min(MAX_PRECISION, max(6, s1 + p2 + 1))
    excess = whole + scale - MAX_PRECISION
    if excess > 0:
        scale -= excess // 2 + 1
        whole = MAX_PRECISION - scale
    return decimal(whole + scale, scale)


def negation(value: Value) -> Value:
    """`- value`"""
    value = computed_value(value)
    constant = value.constant
    if isinstance(constant, Interval):
        raise Refusal(
            "`-` before an interval is not supported", hint="subtract the interval, or put the sign inside its text"
        )
    if isinstance(constant, int | float) and not isinstance(constant, bool):
        return Value(f"(-{value.text})", value.type, nullable=False, constant=-constant)
    if value.type == NULL:
        return value
    if not is_number(value.type) and value.type != DURATION:
        raise Refusal(f"operator `-` does not accept {value.type}")
    return Value(f"(- {value.text})", value.type, value.nullable)


def comparison(operator: str, left: Value, right: Value) -> Value:
    """`left <operator> right` for `= <> < <= > >=` and the null-safe `<=>`."""
    _, (a, b) = cast_for_comparison((left, right))
    nullable = operator != "<=>" and any_nullable((left, right))
    return Value(f"({a.text} {operator} {b.text})", BOOLEAN, nullable)


def cast_for_comparison(values: Sequence[Value]) -> tuple[DataType, list[Value]]:
    """The values cast to a type in which they can be compared: text compared with a number is cast to a number."""
    if any(value.type.wide for value in values):
        return STRING, [value if value.type == NULL else comparison_key(value) for value in values]
    type_, items = cast_to_common(values)
    if type_.kind == "map":
        raise Refusal("maps cannot be compared")
    check_computable(type_)
    return type_, items


def concatenation(values: Sequence[Value]) -> Value:
    """`a || b || ..`: text, NULL if any is NULL; lists are concatenated."""
    if all(value.type.kind == "list" for value in values):
        type_, items = cast_to_common(values)
        return Value(f"concat({', '.join(item.text for item in items)})", type_, any_nullable(values))
    left, right = values[0].type, values[1].type
    if not {STRING, NULL} & {left, right}:
        raise Refusal(f"operator `||` does not accept {left} and {right}", hint="cast one to text")
    texts = [cast_to(value, STRING).text for value in values]
    return Value(f"concat({', '.join(texts)})", STRING, any_nullable(values))


def like(value: Value, pattern: Value, *, ignore_case: bool, escape: str = "\\") -> Value:
    """`value LIKE pattern`"""
    subject, pattern_text = _text("LIKE", value), _text("LIKE", pattern)
    if isinstance(pattern.constant, str):
        text = string_literal(like_pattern(pattern.constant, escape))
    elif escape == "\\":
        # Spark fails for a backslash before an ordinary character; it is dropped, as in a literal pattern.
        text = rf"regexp_replace({pattern_text.text}, '(\\\\[%_\\\\])|\\\\', '$1')"
    else:
        raise Refusal("ESCAPE is unsupported with a pattern that is not a literal", condition=SQL_UNSUPPORTED)
    return Value(
        f"({subject.text} {'ILIKE' if ignore_case else 'LIKE'} {text})", BOOLEAN, any_nullable((value, pattern))
    )


def matches(value: Value, pattern: Value, flags: str = "") -> Value:
    """`value ~ pattern`: whether the regular expression matches anywhere in the value."""
    subject = _text("~", value)
    return Value(f"rlike({subject.text}, {regexp(pattern, flags)})", BOOLEAN, any_nullable((value, pattern)))


def regexp(pattern: Value, flags: str = "") -> str:
    """The Spark text of a regular expression. It must be a literal, since it has to be translated to Java's syntax."""
    if pattern.type == NULL:
        return "CAST(NULL AS STRING)"
    if not isinstance(pattern.constant, str):
        raise Refusal("unsupported: the regular expression must be a literal", condition=SQL_UNSUPPORTED)
    if not is_well_formed(pattern.constant):
        raise Refusal(f"'{pattern.constant}' is not a valid regular expression")
    return string_literal(java_regexp(pattern.constant, flags))


def _text(operator: str, value: Value) -> Value:
    if common_type(value.type, STRING) != STRING:
        raise Refusal(f"operator `{operator}` expects text, got {value.type}", hint="cast it to text")
    return cast_to(value, STRING)

"""Numbers with more digits than Spark's decimals, carried as canonical decimal text: casts and comparisons.

Canonical: plain digits, `-` before a negative number, no `+`, no leading zeros, zero is `0`. Two such texts are
compared by keys that order as texts the way the numbers order.
"""

from __future__ import annotations

from streamling.plan.sql.spark_types import computed_type, digits, spark_type
from streamling.plan.sql.values import Refusal, Value, once, string_literal
from streamling.plan.types import INTEGERS, STRING, DataType

_RANGES = {"u256": (0, 2**256 - 1), "i256": (-(2**255), 2**255 - 1)}
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def comparison_key(value: Value) -> Value:
    """A text that orders among others of its kind as the number orders among numbers."""
    if isinstance(value.constant, int) and not isinstance(value.constant, bool):
        return Value(string_literal(_key_of(value.constant)), STRING, nullable=False)
    return Value(once(wide_text(value), "k", _key_text), STRING, value.nullable)


def _key_text(text: str) -> str:
    magnitude = f"ltrim('-', {text})"
    whole = f"substring_index({magnitude}, '.', 1)"
    # Zeros at the end of a fraction do not count: 1.0 = 1.000.
    fraction = rf"regexp_replace(regexp_replace({magnitude}, '^[0-9]+\\.?', ''), '0+$', '')"
    size = f"concat(lpad(char_length({whole}), 5, '0'), {whole}, '.', {fraction})"
    # A greater magnitude below zero is a smaller number; the mark puts a longer fraction before a shorter one.
    below = f"concat('0', translate({size}, '0123456789', '9876543210'), '~')"
    return f"CASE WHEN startswith({text}, '-') THEN {below} ELSE concat('1', {size}) END"


def _key_of(number: int) -> str:
    whole = str(abs(number))
    size = f"{len(whole):05}{whole}."
    return f"0{size.translate(_COMPLEMENT)}~" if number < 0 else f"1{size}"


def wide_text(value: Value) -> str:
    """The canonical text of a wide number, of an integer or of a decimal."""
    type_ = computed_type(value.type)
    if type_.wide:
        return value.text
    if type_ == STRING:
        return canonical(value.text, "a text", safe=False)
    if type_ in INTEGERS or type_.kind == "decimal":
        return f"CAST({value.text} AS STRING)"
    raise Refusal(f"{value.type} does not go together with a number of more than 38 digits")


def canonical(text: str, what: str, *, safe: bool) -> str:
    """The canonical form of a text that is an integer; anything else is an error of the row, or NULL if `safe`."""
    refusal = "NULL" if safe else f"raise_error({string_literal(f'{what} is not an integer')})"
    bare = rf"regexp_replace(trim({text}), '^[+-]?0*(?=[0-9])', '')"
    sign = f"CASE WHEN startswith(trim({text}), '-') AND {bare} <> '0' THEN '-' ELSE '' END"
    return f"CASE WHEN NOT rlike(trim({text}), '^[+-]?[0-9]+$') THEN {refusal} ELSE concat({sign}, {bare}) END"


def is_whole(type_: DataType) -> bool:
    """An integer of any width: one of Spark's, or a decimal without decimal places."""
    type_ = computed_type(type_)
    return type_ in INTEGERS or (type_.kind in ("decimal", "decimal_arb") and type_.scale == 0)


def common_wide(left: DataType, right: DataType) -> DataType | None:
    """The wide type that two whole numbers go together in."""
    if not (is_whole(left) and is_whole(right)):
        return None
    if left.wide and right.wide:
        return DataType("decimal_arb", precision=max(digits(left)[0], digits(right)[0]), scale=0)
    return left if left.wide else right


def wide_cast(value: Value, type_: DataType, *, safe: bool) -> Value:
    """A cast from or to a wide number."""
    nullable = value.nullable or safe
    if not type_.wide:
        return Value(_narrowed(value, type_, safe=safe), type_, nullable)
    if not is_whole(type_) or not (is_whole(value.type) or value.type == STRING):
        raise Refusal(f"the cast from {value.type} to {type_} is not supported yet")
    if isinstance(value.constant, int):
        return _literal(value.constant, type_)
    text = canonical(value.text, f"a {type_}", safe=safe) if value.type == STRING else wide_text(value)
    return Value(_in_range(text, value.type, type_, safe=safe), type_, nullable)


def _literal(number: int, type_: DataType) -> Value:
    low, high = bounds(type_)
    if not low <= number <= high:
        raise Refusal(f"{number} is out of the range of {type_}")
    return Value(string_literal(str(number)), type_, nullable=False)


def _narrowed(value: Value, type_: DataType, *, safe: bool) -> str:
    if type_ == STRING:
        return value.text
    if type_.kind == "null" or not (is_whole(value.type) or type_.kind in ("float64", "decimal")):
        raise Refusal(f"there is no cast from {value.type} to {type_}")
    if type_ != computed_type(type_) or not (type_ in INTEGERS or type_.kind in ("float64", "decimal")):
        raise Refusal(f"there is no cast from {value.type} to {type_}")
    return f"{'try_cast' if safe else 'CAST'}({value.text} AS {spark_type(type_)})"


def bounds(type_: DataType) -> tuple[int, int]:
    """The least and the greatest whole number of a wide type."""
    if type_.native is not None:
        return _RANGES[type_.native]
    most = 10 ** digits(type_)[0] - 1
    return -most, most


def _in_range(text: str, source: DataType, target: DataType, *, safe: bool) -> str:
    low, high = bounds(target)
    if is_whole(source) and _within(source, low, high):
        return text
    least, greatest = (string_literal(_key_of(bound)) for bound in (low, high))
    refusal = "NULL" if safe else f"raise_error({string_literal(f'a value is out of the range of {target}')})"

    def checked(name: str) -> str:
        key = _key_text(name)
        return f"CASE WHEN {key} < {least} OR {key} > {greatest} THEN {refusal} ELSE {name} END"

    return once(text, "v", checked)


def _within(source: DataType, low: int, high: int) -> bool:
    source = computed_type(source)
    if source in INTEGERS:
        return low <= -(2**63) and high >= 2**63 - 1
    least, greatest = bounds(source)
    return low <= least and greatest <= high

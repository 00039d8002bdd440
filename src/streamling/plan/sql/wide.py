"""Numbers with more digits than Spark's decimals, carried as canonical decimal text: casts and comparisons.

Canonical text has plain digits, `-` before a negative number, no `+`, no leading zeros, and as many decimal places as
the type; zero is `0`. Two such texts are compared by keys: the order of the keys as texts is the order of the numbers.
"""

from __future__ import annotations

import re

from streamling.plan.sql.spark_types import computed_type, digits, spark_type
from streamling.plan.sql.values import Refusal, Value, bind, bind_unless_short, string_literal
from streamling.plan.types import DECIMAL256_DIGITS, INTEGERS, MOST_DIGITS, STRING, DataType, decimal, decimal_arb

_RANGES = {"u256": (0, 2**256 - 1), "i256": (-(2**255), 2**255 - 1)}
_COMPLEMENT = str.maketrans("0123456789", "9876543210")
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_DECIMALS = ("decimal", "decimal_arb")
_WHOLE_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19}


# Comparison


def comparison_key(value: Value) -> Value:
    """A text whose order among such texts is the order of the numbers."""
    if isinstance(value.constant, int | str) and not isinstance(value.constant, bool):
        return Value(string_literal(_key_of(str(value.constant))), STRING, nullable=False)
    return Value(bind_unless_short(wide_text(value), "k", _key_text), STRING, value.nullable)


def _key_text(text: str) -> str:
    magnitude = f"ltrim('-', {text})"
    whole = f"substring_index({magnitude}, '.', 1)"
    # Zeros at the end of a fraction do not count: 1.0 = 1.000.
    fraction = rf"regexp_replace(regexp_replace({magnitude}, '^[0-9]+\\.?', ''), '0+$', '')"
    size = f"concat(lpad(char_length({whole}), 5, '0'), {whole}, '.', {fraction})"
    # Below zero a greater magnitude is a smaller number; the `~` sorts a longer fraction before a shorter one.
    below = f"concat('0', translate({size}, '0123456789', '9876543210'), '~')"
    return f"CASE WHEN startswith({text}, '-') THEN {below} ELSE concat('1', {size}) END"


def _key_of(number: str) -> str:
    """The same key for a literal."""
    number = number.strip(" ")
    if not is_number_text(number):
        raise Refusal(f"'{number}' is not a number")
    whole, _, fraction = number.lstrip("+-").partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    size = f"{len(whole):05}{whole}.{fraction}"
    below = number.startswith("-") and (whole, fraction) != ("0", "")
    return f"0{size.translate(_COMPLEMENT)}~" if below else f"1{size}"


# Texts of numbers


def is_number_text(text: str) -> bool:
    """Whether a text can be cast to a wide decimal."""
    return re.fullmatch(_NUMBER, text.strip(" "), re.ASCII) is not None


def wide_text(value: Value) -> str:
    """A wide number, an integer, a decimal or a text as plain digits."""
    type_ = computed_type(value.type)
    if type_.wide:
        return value.text
    if type_ == STRING:
        return bind(_check_number(value.text, "a text", safe=False), "n", _normalize("n"))
    if type_ in INTEGERS or type_.kind == "decimal":
        return f"CAST({value.text} AS STRING)"
    hint = "write a number with decimal places as text: '1.5'" if type_.kind.startswith("float") else None
    raise Refusal(f"{value.type} is not compatible with a number of more than 38 digits", hint=hint)


def canonical(text: str, what: str, *, safe: bool) -> str:
    """The canonical text of an integer written as text; other texts are an error of the row, or NULL if `safe`."""
    refusal = "NULL" if safe else f"raise_error({string_literal(f'{what} is not an integer')})"
    bare = rf"regexp_replace(trim({text}), '^[+-]?0*(?=[0-9])', '')"
    sign = f"CASE WHEN startswith(trim({text}), '-') AND {bare} <> '0' THEN '-' ELSE '' END"
    return rf"CASE WHEN NOT rlike(trim({text}), '^[+-]?[0-9]+\\z') THEN {refusal} ELSE concat({sign}, {bare}) END"


def _check_number(text: str, what: str, *, safe: bool) -> str:
    """A number written as text, without spaces around it; other texts as in `canonical`."""
    refusal = "NULL" if safe else f"raise_error({string_literal(f'{what} is not a number')})"
    pattern = string_literal(rf"^{_NUMBER}\z")
    return f"CASE WHEN NOT rlike(trim({text}), {pattern}) THEN {refusal} ELSE trim({text}) END"


def _normalize(text: str) -> str:
    """A checked text without `+`, leading zeros or a negative zero; its decimal places are unchanged."""
    whole = f"substring_index({text}, '.', 1)"
    digits_ = _without_zeros("'+-0'", whole)
    fraction = f"substring({text}, char_length({whole}) + 2)"
    sign = f"CASE WHEN startswith({text}, '-') THEN '-' ELSE '' END"
    return f"CASE WHEN NOT rlike({text}, '[1-9]') THEN '0' ELSE concat({sign}, {digits_}, '.', {fraction}) END"


def _without_zeros(leading: str, text: str) -> str:
    """A text of digits without `leading` characters; a single zero if nothing is left, NULL for NULL."""
    bare = f"ltrim({leading}, {text})"
    return f"CASE WHEN {bare} = '' THEN '0' ELSE {bare} END"


def _pad(text: str, scale: int) -> str:
    """The canonical text of a number of plain digits, with additional decimal places."""
    whole = f"substring_index({text}, '.', 1)"
    fraction = f"rpad(substring({text}, char_length({whole}) + 2), {scale}, '0')"
    return f"CASE WHEN ltrim('0.', {text}) = '' THEN '0' ELSE concat({whole}, '.', {fraction}) END"


def _round(text: str, scale: int) -> str:
    """A checked text rounded half to even, as canonical text with `scale` decimal places.

    The digits are written without the point, after a 0 that takes up a carry. To add one to such a number, the last
    digit that is not a 9 is increased, and the nines after it become zeros.
    """
    whole = "substring_index(n, '.', 1)"
    fraction = f"substring(n, char_length({whole}) + 2)"
    digits_ = f"concat('0', ltrim('+-', {whole}), rpad({fraction}, {scale}, '0'))"
    rest = f"rtrim('0', substring({fraction}, {scale + 1}))"
    up = f"({rest} > '5' OR ({rest} = '5' AND right(d, 1) IN ('1', '3', '5', '7', '9')))"
    head = "rtrim('9', d)"
    more = (
        f"concat(left({head}, char_length({head}) - 1), CAST(CAST(right({head}, 1) AS INT) + 1 AS STRING), "
        f"repeat('0', char_length(d) - char_length({head})))"
    )
    above = _without_zeros("'0'", f"left(r, char_length(r) - {scale})")
    point = f", '.', right(r, {scale})" if scale else ""
    sign = "CASE WHEN startswith(n, '-') THEN '-' ELSE '' END"
    result = f"CASE WHEN ltrim('0', r) = '' THEN '0' ELSE concat({sign}, {above}{point}) END"
    return bind(text, "n", bind(digits_, "d", bind(f"CASE WHEN {up} THEN {more} ELSE d END", "r", result)))


# Types


def is_whole(type_: DataType) -> bool:
    """Whether it is an integer type of any width: one of Spark's, or a decimal without decimal places."""
    type_ = computed_type(type_)
    return type_ in INTEGERS or (type_.kind in _DECIMALS and type_.scale == 0)


def sized_decimal(precision: int, scale: int) -> DataType:
    """The decimal type with this precision, of any size."""
    return (decimal if precision <= DECIMAL256_DIGITS else decimal_arb)(precision, scale)


def common_wide(left: DataType, right: DataType) -> DataType | None:
    """The common type of two exact numbers, one of them wide; None if there is none."""
    left, right = computed_type(left), computed_type(right)
    if not all(type_ in INTEGERS or type_.kind in _DECIMALS for type_ in (left, right)):
        return None
    if left.wide is not right.wide and is_whole(left) and is_whole(right) and (left.native or right.native):
        return left if left.wide else right  # an integer and one of 256 bits
    (whole, scale), (other_whole, other_scale) = _sizes(left), _sizes(right)
    scale = max(scale, other_scale)
    precision = max(whole, other_whole) + scale
    if precision > MOST_DIGITS:
        return None
    kinds = {type_.kind for type_ in (left, right) if type_.wide}
    return decimal_arb(precision, scale) if "decimal_arb" in kinds else sized_decimal(precision, scale)


def _sizes(type_: DataType) -> tuple[int, int]:
    """The number of digits before and after the point."""
    if type_.kind in _WHOLE_DIGITS:
        return _WHOLE_DIGITS[type_.kind], 0
    precision, scale = digits(type_)
    return precision - scale, scale


def bounds(type_: DataType) -> tuple[int, int]:
    """The smallest and the largest whole number of a wide type."""
    if type_.native is not None:
        return _RANGES[type_.native]
    most = 10 ** _sizes(type_)[0] - 1
    return -most, most


# Casts


def wide_cast(value: Value, type_: DataType, *, safe: bool) -> Value:
    """A cast from or to a wide number."""
    nullable = value.nullable or safe
    if not type_.wide:
        return Value(_narrow(value, type_, safe=safe), type_, nullable)
    source = computed_type(value.type)
    if source != STRING and source not in INTEGERS and source.kind not in _DECIMALS:
        raise Refusal(f"there is no cast from {value.type} to {type_}", hint=_FLOAT_HINTS.get(source.kind))
    if isinstance(value.constant, int):
        return _literal(value.constant, type_, safe=safe)
    text = _scale(value, type_, safe=safe)
    return Value(_check_range(text, value.type, type_, safe=safe), type_, nullable)


_FLOAT_HINTS = dict.fromkeys(("float32", "float64"), "cast it to a decimal of up to 38 digits first, or to text")


def _scale(value: Value, type_: DataType, *, safe: bool) -> str:
    """The value as canonical text with the decimal places of `type_`."""
    source, (_, scale) = computed_type(value.type), digits(type_)
    if source == STRING:
        if type_.native is not None:
            return canonical(value.text, f"a {type_}", safe=safe)
        return _round(_check_number(value.text, f"a {type_}", safe=safe), scale)
    text, (_, places) = wide_text(value), _sizes(source)
    if places > scale:
        return _round(text, scale)
    exact = places == scale and (source.wide or not scale)
    return text if exact else bind_unless_short(text, "v", lambda name: _pad(name, scale))


def _literal(number: int, type_: DataType, *, safe: bool) -> Value:
    low, high = bounds(type_)
    if not low <= number <= high:
        if safe:
            return Value("CAST(NULL AS STRING)", type_)
        raise Refusal(f"{number} is out of the range of {type_}")
    places = f".{'0' * type_.scale}" if type_.scale and number else ""
    return Value(string_literal(f"{number}{places}"), type_, nullable=False)


_NARROW = ("float32", "float64", "decimal")


def _narrow(value: Value, type_: DataType, *, safe: bool) -> str:
    if type_ == STRING:
        return value.text
    if type_ != computed_type(type_) or not (type_ in INTEGERS or type_.kind in _NARROW):
        raise Refusal(f"there is no cast from {value.type} to {type_}")
    text = value.text
    if type_ in INTEGERS and not is_whole(value.type):
        text = f"substring_index({text}, '.', 1)"  # towards zero, as from any decimal
    elif type_.kind == "decimal" and _sizes(value.type)[1] > _sizes(type_)[1]:
        text = _round(text, _sizes(type_)[1])
    return f"{'try_cast' if safe else 'CAST'}({text} AS {spark_type(type_)})"


def _check_range(text: str, source: DataType, target: DataType, *, safe: bool) -> str:
    if computed_type(source) != STRING and _fits(computed_type(source), target):
        return text

    words = string_literal(f" is out of the range of {target}")

    def check(name: str) -> str:
        refusal = "NULL" if safe else f"raise_error(concat({name}, {words}))"
        return f"CASE WHEN {_is_outside(name, target)} THEN {refusal} ELSE {name} END"

    return bind_unless_short(text, "v", check)


def _is_outside(name: str, target: DataType) -> str:
    if target.native is not None:
        least, greatest = (string_literal(_key_of(str(bound))) for bound in bounds(target))
        key = _key_text(name)
        return f"{key} < {least} OR {key} > {greatest}"
    whole = f"substring_index(ltrim('-', {name}), '.', 1)"
    return f"char_length({whole}) > {_sizes(target)[0]} AND {whole} <> '0'"


def _fits(source: DataType, target: DataType) -> bool:
    """Whether every value of `source` fits into `target`, also after rounding."""
    if target.native is None:
        (whole, scale), (most, places) = _sizes(source), _sizes(target)
        return whole + (scale > places) <= most
    low, high = bounds(target)
    if source in INTEGERS:
        return low <= -(2**63) and high >= 2**63 - 1
    least, greatest = bounds(source)
    return is_whole(source) and low <= least and greatest <= high

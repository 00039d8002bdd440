"""Types that are inferred from the values of a sample, corrected where they would change one of these values.

| the values | the type |
|---|---|
| integers with a leading zero, a plus sign, or in hexadecimal | string |
| integers beyond int64 | decimal(38,0) if all of them fit, else string |
| numbers with more digits than a double has | decimal(38,s) if all of them fit, else string |
| 0 and 1 beside true and false | string |
| times finer than microseconds | string |

JSON has no string for a number: where no decimal fits, the column stays float64, and a row whose number would change is
a bad row. Texts with times are guessed by Arrow without their zone, and dates as timestamps; both is corrected here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamling.sources.file.exact_text import cast_texts, is_checked, keeps_digits

_PRECISION = 38
# A plus sign, or a zero before another digit.
_ODD = r"^[ \t]*(\+|-?0[0-9])"
_INTEGER = r"^-?[0-9]+$"
_FINER = r"\.[0-9]{7}"
_ZONE = re.compile(r":[0-9.]+([Zz]|[+-][0-9:]+)$|[Tt ][0-9]{2}([Zz]|[+-][0-9:]+)$")
_DATE_LENGTH = len("2026-01-31")


@dataclass(frozen=True, slots=True)
class Change:
    """A column whose inferred type was replaced, with a value that the inferred type would have changed."""

    column: str
    inferred: pa.DataType
    type: pa.DataType
    example: str


OnChange = Callable[[Change], object]


def correct_texts(name: str, inferred: pa.DataType, texts: pa.Array, on_change: OnChange) -> pa.DataType:
    """The type of a CSV column with these texts."""
    corrected, changed = _correct_texts(inferred, texts)
    if corrected != inferred:
        example = texts.filter(changed)[0].as_py()
        on_change(Change(name, inferred, corrected, repr(example)))
    return corrected


def _correct_texts(inferred: pa.DataType, texts: pa.Array) -> tuple[pa.DataType, pa.Array]:
    """The type, and which texts the inferred one would have changed."""
    if pa.types.is_timestamp(inferred):
        changed = pc.match_substring_regex(texts, _FINER).fill_null(False)
        return (pa.string() if pc.any(changed).as_py() else inferred), changed
    if not is_checked(inferred):
        return inferred, texts.is_valid()
    values, inexact = cast_texts(texts, inferred)
    changed = pa.array(inexact)
    if not pa.types.is_float64(inferred):
        return (pa.string() if inexact.any() else inferred), changed
    if not pc.any(pc.is_finite(values)).as_py():  # words like nan, which are numbers only among numbers
        return pa.string(), texts.is_valid()
    if pc.any(odd := pc.match_substring_regex(texts, _ODD).fill_null(False)).as_py():
        return pa.string(), odd
    if pc.all(pc.match_substring_regex(texts, _INTEGER)).as_py():  # some are beyond int64
        longest = pc.equal(pc.utf8_length(texts), pc.max(pc.utf8_length(texts))).fill_null(False)
        return _decimal_of(texts.drop_null().to_pylist()) or pa.string(), longest
    if inexact.any():
        return _decimal_of(texts.drop_null().to_pylist()) or pa.string(), changed
    return inferred, changed


def correct_values(name: str, inferred: pa.DataType, values: Sequence[Any], on_change: OnChange) -> pa.DataType:
    """The type of a JSON field with these values, which may be lists and objects. Numbers are `int` or Decimal."""
    present = [value for value in values if value is not None]
    if pa.types.is_struct(inferred):
        return pa.struct(
            [
                field.with_type(
                    correct_values(f"{name}.{field.name}", field.type, [v.get(field.name) for v in present], on_change)
                )
                for field in inferred
            ]
        )
    if pa.types.is_list(inferred):
        items = [item for value in present for item in value]
        return pa.list_(correct_values(f"{name}[]", inferred.value_type, items, on_change))
    if pa.types.is_timestamp(inferred):
        return _correct_times(name, inferred, present, on_change)
    if pa.types.is_float64(inferred):
        return _correct_numbers(name, present, on_change)
    return inferred


def _correct_numbers(name: str, values: Sequence[Any], on_change: OnChange) -> pa.DataType:
    integers = all(isinstance(value, int) for value in values)
    changed = [value for value in values if integers or not is_exact(value)]
    if not changed:
        return pa.float64()
    type_ = _decimal_of(map(str, values)) or pa.float64()
    on_change(Change(name, pa.float64(), type_, str(max(changed, key=lambda value: len(str(value))))))
    return type_


def is_exact(value: Any) -> bool:
    """Whether a JSON number keeps its digits as a double."""
    try:
        return isinstance(value, float) or keeps_digits(str(value), float(value))
    except OverflowError:
        return False


def _correct_times(name: str, inferred: pa.DataType, texts: Sequence[str], on_change: OnChange) -> pa.DataType:
    if all(len(text) == _DATE_LENGTH for text in texts):
        return pa.date32()
    zoned = [_ZONE.search(text) is not None for text in texts]
    if not any(zoned):
        return inferred
    if all(zoned):
        return pa.timestamp(inferred.unit, "UTC")
    on_change(Change(name, inferred, pa.string(), repr(texts[zoned.index(True)])))
    return pa.string()


def _decimal_of(texts: Iterable[str]) -> pa.DataType | None:
    """The decimal type that holds all of these numbers; None if there is none."""
    whole = scale = 0
    for text in texts:
        try:
            _, digits, exponent = Decimal(text.strip()).as_tuple()
        except InvalidOperation:
            return None
        if not isinstance(exponent, int):  # NaN or infinity
            return None
        whole, scale = max(whole, len(digits) + exponent), max(scale, -exponent)
    return pa.decimal128(_PRECISION, scale) if whole + scale <= _PRECISION else None

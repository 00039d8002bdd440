"""Casts text to the types that were inferred for a column, and finds the texts that are not exactly their value.

`01234` is not the number 1234, and no double has 20 digits. All texts are looked at in bulk; only long numbers are
compared one by one, and those only if their digits differ from the ones Arrow would write.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

_ZERO, _NINE, _PLUS, _MINUS = b"09+-"
# So many characters have 15 digits at most, which every double keeps.
_SHORT = 15
# A double is written with so many digits at most.
_MOST_DIGITS = 17
# Doubles near zero have fewer digits; `1e-400` is zero. Texts of zero are usually shorter than any of these.
_TINY, _SHORTEST_TINY = 1e-290, 6
# Beyond this a double is an integer, and not every integer is a double.
_LARGE = 2.0**53
# Beyond this a number may have 18 digits though few are behind its point.
MANY_DIGITS = 1e14
_WORDS = pa.array(["nan", "-nan", "inf", "-inf", "infinity", "-infinity"])


def is_checked(type_: pa.DataType) -> bool:
    """Whether a text may be cast to the type without being exactly its value."""
    return type_ in (pa.int64(), pa.float64(), pa.bool_()) or bool(pa.types.is_decimal(type_))


def cast_texts(texts: pa.Array, type_: pa.DataType, *, strict: bool = True) -> tuple[pa.Array, Mask]:
    """The values, and which texts are not exactly their value. Raises ArrowInvalid. Outer spaces are ignored.

    Without `strict` a float may differ from its text in the 16th and 17th digit, as in `keeps_value`.
    """
    try:
        values = pc.cast(texts, type_)
    except pa.ArrowInvalid:
        texts = pc.utf8_trim(texts, " \t")
        values = pc.cast(texts, type_)
    letters = _Letters(texts)
    if pa.types.is_boolean(type_):
        return values, letters.lengths == 1  # 0 and 1 are numbers
    if pa.types.is_int64(type_):
        return values, letters.begins_with_zero(or_is_minus_zero=strict)
    inexact = letters.begins_with_zero() | (letters.at(0) == _PLUS)
    if pa.types.is_decimal(type_):
        values.validate(full=True)  # Arrow does not check that a decimal has no more digits than its type
        # Much longer texts become other decimals.
        scaled = pc.match_substring(texts, "e", ignore_case=True).fill_null(False).to_numpy(zero_copy_only=False)
        careful = scaled | (letters.lengths > type_.precision)
    else:
        numbers = values.fill_null(0.0).to_numpy()
        tiny = (np.abs(numbers) < _TINY) & (letters.lengths >= _SHORTEST_TINY)
        large = ~(np.abs(numbers) < _LARGE)
        careful = (letters.lengths > (_SHORT if strict else _MOST_DIGITS)) | large | tiny
    if careful.any():
        inexact |= _changed(texts, values, careful, keeps_digits if strict else keeps_value)
    return values, inexact


def needs_digits(values: pa.Array) -> bool:
    """Whether the digits of these floats must be compared with their texts, however short these are."""
    least, most = pc.min_max(values).as_py().values()
    if least is None:
        return False
    return not max(-least, most) < MANY_DIGITS


def keeps_digits(text: str, value: float | Decimal) -> bool:
    """Whether the number in the text has the digits with which the value would be written."""
    try:
        return Decimal(text) == (value if isinstance(value, Decimal) else Decimal(repr(value)))
    except InvalidOperation:
        return False


def keeps_value(text: str, value: float | Decimal) -> bool:
    """As `keeps_digits`, but in numbers of up to 17 digits the last two may differ: every double has that precision."""
    if keeps_digits(text, value):
        return True
    digits = "".join(map(str, Decimal(text).as_tuple().digits)).strip("0")
    return len(digits) <= _MOST_DIGITS and _TINY <= abs(float(value)) < _LARGE


def _changed(texts: pa.Array, values: pa.Array, careful: Mask, keeps: Callable[[str, float | Decimal], bool]) -> Mask:
    rows = np.flatnonzero(careful)
    some_texts, some_values = texts.take(pa.array(rows)), values.take(pa.array(rows))
    is_word = pc.is_in(pc.utf8_lower(some_texts), _WORDS)
    same = pc.or_(is_word, pc.equal(some_texts, pc.cast(some_values, pa.string())))
    left = rows[~same.fill_null(True).to_numpy(zero_copy_only=False)]
    changed = np.zeros(len(texts), np.bool_)
    changed[[row for row in left.tolist() if not keeps(texts[row].as_py(), values[row].as_py())]] = True
    return changed


class _Letters:
    """The first bytes of texts."""

    def __init__(self, texts: pa.Array) -> None:
        _, offsets, data = texts.buffers()
        bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        self.lengths = np.diff(bounds)
        self._starts = bounds[:-1]
        self._data = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)

    def at(self, place: int) -> NDArray[np.uint8]:
        """The bytes at this place; 0 in texts that are too short."""
        places = np.minimum(self._starts + place, len(self._data) - 1)
        return np.where(self.lengths > place, self._data[places], 0)

    def begins_with_zero(self, *, or_is_minus_zero: bool = False) -> Mask:
        """Texts like `01`, `-01` and `0x1`; of decimal fractions `0.1` and of exponents `0e1` are none."""
        first, second = self.at(0), self.at(1)
        zero: Mask = (first == _ZERO) & self._goes_on(second)
        minus = first == _MINUS
        if minus.any():
            zero |= minus & (second == _ZERO) & (self._goes_on(self.at(2)) | or_is_minus_zero)
        return zero

    @staticmethod
    def _goes_on(letters: NDArray[np.uint8]) -> Mask:
        more: Mask = (letters >= _ZERO) & (letters <= _NINE)
        more |= letters | 32 == ord("x")
        return more

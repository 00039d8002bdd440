"""Searches the bytes of a text file for numbers that a type may change. Bytes are scanned in bulk, for every chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Letters = NDArray[np.uint8]
    Places = NDArray[np.int64]

_ZERO, _POINT, _PLUS, _MINUS, _COMMA = b"0.+-,"
# A double is written with so many digits at most.
_MOST_DIGITS = 17
_MOST_ZEROS = 14
_WINDOW = 1 << 16  # fits into the caches of a core
_IS_DIGIT = np.zeros(256, np.bool_)
_IS_DIGIT[ord("0") : ord("9") + 1] = True
_IS_E = np.zeros(256, np.bool_)
_IS_E[[ord("e"), ord("E")]] = True


def _at(letters: Letters, places: Places) -> Letters:
    """The bytes at these places; beyond the ends of the data its first and its last byte."""
    return letters.take(places, mode="clip")


def _digit_at(letters: Letters, places: Places) -> NDArray[np.bool_]:
    return _IS_DIGIT.take(_at(letters, places))


def _find(letters: Letters, letter: int) -> Places:
    """The places of a byte."""
    windows = [
        np.flatnonzero(letters[start : start + _WINDOW] == letter) + start for start in range(0, len(letters), _WINDOW)
    ]
    return np.concatenate(windows) if windows else np.empty(0, np.int64)


def has_odd_beginnings(letters: Letters) -> bool:
    """Whether a CSV field may be a number that begins with a plus sign, or with a zero before another digit."""
    if letters[:1] == _PLUS or (letters[:1] == _ZERO and letters[1:2] >= _ZERO):
        return True
    for start in range(1, len(letters) - 1, _WINDOW):
        window = letters[start - 1 : start + _WINDOW + 1]
        odd = window[1:-1] == _ZERO
        odd &= window[2:] > _ZERO - 1
        odd |= window[1:-1] == _PLUS
        odd &= window[:-2] <= _MINUS
        if odd.any() and _begin_fields(letters, np.flatnonzero(odd) + start):
            return True
    return False


def _begin_fields(letters: Letters, places: Places) -> bool:
    """Whether there is the end of a field, a quote or a space before one of the places, or before its minus sign."""
    before = _at(letters, places - 1)
    outer = np.where(places > 1, _at(letters, places - 2), _COMMA)  # the data begin with a field
    before = np.where(before == _MINUS, outer, before)
    return bool(((before <= _COMMA) & (before != _PLUS)).any())


def long_numbers(letters: Letters) -> Places:
    """The points of numbers with more digits than a double is ever written with, if they are below 1e14."""
    points: Places = _find(letters, _POINT)
    # Most numbers have few digits after the point, and end with the first look.
    points = points[_digit_at(letters, points + 3)]
    points = points[_digit_at(letters, points - 1) & _digit_at(letters, points + 1)]
    before = np.ones(len(points), np.int64)
    for digits in range(2, _MOST_DIGITS + 2):
        longer = before == digits - 1
        longer[longer] = _digit_at(letters, points[longer] - digits)
        if not longer.any():
            break
        before[longer] = digits
    # A single digit before the point is a zero in numbers below one.
    after = np.where(before == 1, _MOST_DIGITS + 1, np.maximum(_MOST_DIGITS + 1 - before, 1))
    for back in range(_MOST_DIGITS):
        keep = _digit_at(letters, points + np.maximum(after - back, 1))
        points, after = points[keep], after[keep]
    zeros = _zeros_after(letters, points)
    for more in range(int(zeros.max(initial=0))):
        keep = _digit_at(letters, points + after + np.minimum(more + 1, zeros))
        points, after, zeros = points[keep], after[keep], zeros[keep]
    return points


def _zeros_after(letters: Letters, points: Places) -> Places:
    """How many zeros follow the point of a number below one: they take no digits of a double."""
    zeros = np.zeros(len(points), np.int64)
    below_one = (_at(letters, points - 1) == _ZERO) & ~_digit_at(letters, points - 2)
    for digits in range(1, _MOST_ZEROS + 1):
        below_one[below_one] = _at(letters, points[below_one] + digits) == _ZERO
        if not below_one.any():
            break
        zeros[below_one] = digits
    return zeros


def small_exponents(letters: Letters) -> Places:
    """The minus signs of exponents of -100 or less."""
    signs = _find(letters, _MINUS)
    signs = signs[_IS_E.take(_at(letters, signs - 1))]
    for more in (1, 2, 3):
        signs = signs[_digit_at(letters, signs + more)]
    return signs

"""One JSON text as Python values: no digit is lost, and nothing valid is too long or too deep to be read."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

# Python reads no longer numbers as `int`, because it takes ever more time for each digit.
_INT_DIGITS = 4300
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def parsed(text: str) -> Any:
    """The value of a text. Raises ValueError.

    Numbers are `int`; those with a fraction or an exponent, and very long ones, are Decimal. One whose exponent is
    beyond that is a float: zero or infinite. Where something lies deeper than Python can go, lists and objects are
    empty from the second level on.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        return _DECODER.decode(_shallow(text))


def shown(value: Any, length: int = 80) -> str:
    """The beginning of a value, to be put in a message: any terminal and file can take it."""
    try:
        text = str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "[...]" if isinstance(value, list) else "{...}"
    return text[:length].encode(errors="backslashreplace").decode()


class _MinusZero(int):
    """`-0`, which is a zero of its own as a float only."""

    def __float__(self) -> float:
        return -0.0

    def __str__(self) -> str:
        return "-0"


def _whole(digits: str) -> int | Decimal:
    if len(digits) > _INT_DIGITS:
        return Decimal(digits)
    return int(digits) if digits != "-0" else _MinusZero()


def _fraction(digits: str) -> Decimal | float:
    try:
        return Decimal(digits)
    except InvalidOperation:
        return float(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_fraction, parse_constant=_no_constant)


def _shallow(text: str) -> str:
    """The text with what stands in lists and objects of the second level left out, after it was found to be valid."""
    outside: list[str] = []
    around: list[list[str]] = [outside]  # what was seen of each list and object that is open
    seen = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        bracket = token[0]
        if bracket[0] == '"':
            continue
        if bracket in "[{":
            around[-1].append(text[seen : token.start()])
            around.append([bracket])
        elif len(around) == 1:
            raise ValueError(f"'{bracket}' at {token.start()} closes nothing")
        else:
            whole = "".join((*around.pop(), text[seen : token.end()]))
            if len(around) > 1:
                _DECODER.decode(whole)
                whole = whole[0] + bracket
            around[-1].append(whole)
        seen = token.end()
    if len(around) > 1:
        raise ValueError("it ends early")
    return "".join((*outside, text[seen:]))

"""Parses one JSON text: no digit is lost, and no valid text is too long or too deep."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

# Python refuses to read longer numbers as `int`, because the time per digit grows with their length.
_INT_DIGITS = 4300
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def parse(text: str) -> Any:
    """The value of a text. Raises ValueError.

    Numbers are `int`; those with a fraction or an exponent, and very long ones, are Decimal. A number whose exponent is
    out of the range of Decimal is a float: zero or infinite. If the text is nested deeper than Python can parse, lists
    and objects are empty from the second level on.
    """
    try:
        return parse_whole(text)
    except RecursionError:
        return _DECODER.decode(_shallow(text))


def parse_whole(text: str) -> Any:
    """As `parse`, but raises RecursionError if the text is nested too deep."""
    return _DECODER.decode(text)


def scan(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at an index, as `parse` returns it, and the index after it. Raises ValueError."""
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        end = _end(text, at)
        return _DECODER.decode(_shallow(text[at:end])), end


def format_value(value: Any, length: int = 80) -> str:
    """The beginning of a value for a message, without characters that cannot be encoded as UTF-8."""
    try:
        text = str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "[...]" if isinstance(value, list) else "{...}"
    return text[:length].encode(errors="backslashreplace").decode()


class _MinusZero(int):
    """`-0`: only as a float it differs from 0."""

    def __float__(self) -> float:
        return -0.0

    def __str__(self) -> str:
        return "-0"


def _whole(digits: str) -> int | Decimal:
    if len(digits) > _INT_DIGITS:
        return Decimal(digits)
    return int(digits) if digits != "-0" else _MinusZero()


def fraction(digits: str) -> Decimal | float:
    """A number with a fraction or an exponent, with all digits."""
    try:
        return Decimal(digits)
    except InvalidOperation:
        return float(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=fraction, parse_constant=_no_constant)


def _end(text: str, at: int) -> int:
    """The index after the list or object that begins at an index. Raises ValueError if it does not end."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text, at):
        if token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
            if not depth:
                return token.end()
    raise ValueError("it ends early")


def _shallow(text: str) -> str:
    """The text with the lists and objects of the second level emptied, after their content was found to be valid."""
    outside: list[str] = []
    open_: list[list[str]] = [outside]  # the text so far of each list and object that is not closed yet
    end = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        bracket = token[0]
        if bracket[0] == '"':
            continue
        if bracket in "[{":
            open_[-1].append(text[end : token.start()])
            open_.append([bracket])
        elif len(open_) == 1:
            raise ValueError(f"'{bracket}' at {token.start()} closes nothing")
        else:
            whole = "".join((*open_.pop(), text[end : token.end()]))
            if len(open_) > 1:
                _DECODER.decode(whole)
                whole = whole[0] + bracket
            open_[-1].append(whole)
        end = token.end()
    if len(open_) > 1:
        raise ValueError("it ends early")
    return "".join((*outside, text[end:]))

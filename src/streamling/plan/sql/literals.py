"""Number and boolean literals."""

from __future__ import annotations

import math

from streamling.plan.sql.spark_types import MAX_PRECISION
from streamling.plan.sql.values import Refusal, Value
from streamling.plan.types import BOOLEAN, FLOAT64, INT64, decimal


def boolean(truth: bool) -> Value:
    return Value("true" if truth else "false", BOOLEAN, nullable=False, constant=truth)


def number(text: str, *, negated: bool = False) -> Value:
    """A number literal: whole numbers are int64, wider ones exact decimals, all others float64."""
    if not text.isdigit():
        return _float(text, negated)
    text = text.lstrip("0") or "0"
    if len(text) > MAX_PRECISION:  # before int(): Python limits the length of integers
        raise Refusal(f"the number {text} has more than {MAX_PRECISION} digits, which is not supported yet")
    value = -int(text) if negated else int(text)
    if -(2**63) <= value < 2**63:
        return Value(_signed(f"{abs(value)}L", negated), INT64, nullable=False, constant=value)
    return Value(_signed(f"{abs(value)}BD", negated), decimal(len(text), 0), nullable=False, constant=value)


def _float(text: str, negated: bool) -> Value:
    try:
        value = float(text)
    except ValueError:
        raise Refusal(f"{text} is not a number") from None
    if math.isinf(value):
        raise Refusal(f"the number {text} is too large for float64")
    return Value(_signed(f"{value!r}D", negated), FLOAT64, nullable=False, constant=-value if negated else value)


def _signed(text: str, negated: bool) -> str:
    return f"(-{text})" if negated else text

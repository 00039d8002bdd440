"""A condition: one thing that can go wrong, with a stable code. conditions.py has all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that can go wrong. `code` is stable: tools and tests match on it, never on the texts."""

    code: str
    explanation: str
    remedy: str


CONDITIONS: dict[str, Condition] = {}


def condition(code: str, explanation: str, remedy: str) -> Condition:
    """Declare a condition. Each code may be declared once."""
    if code in CONDITIONS:
        raise AssertionError(f"condition {code} is declared twice")
    CONDITIONS[code] = Condition(code, explanation, remedy)
    return CONDITIONS[code]

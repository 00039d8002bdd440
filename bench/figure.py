"""What a measurement says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, what it is compared with, and the bar it has to clear."""

    name: str
    value: str
    compared: str
    bar: str
    holds: bool

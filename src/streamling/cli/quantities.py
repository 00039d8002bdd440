"""Numbers as people read them: rows, bytes, rates and times."""

from __future__ import annotations

BYTES = "bytes"
"""The unit that is scaled: 1,500,000 bytes are 1.5 MB."""


def count(rows: int) -> str:
    """With separators between thousands; from a billion on in billions, `G`."""
    return f"{rows:,}" if rows < 1_000_000_000 else f"{rows / 1e9:,.3f} G"


def number_of(amount: int, noun: str) -> str:
    """`1 row`, `1,234 rows`."""
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")


def quantity(amount: int, unit: str) -> str:
    """A number without its unit; only bytes are scaled and have theirs."""
    if unit != BYTES:
        return count(amount)
    size, names = float(amount), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(names) > 1:
        size /= 1000
        names.pop(0)
    return f"{size:.0f} {names[0]}" if names[0] == "B" else f"{size:.1f} {names[0]}"


def speed(rate: float) -> str:
    """A rate; one decimal only if it is small."""
    return f"{rate:,.1f}" if 0.05 <= rate < 10 else f"{rate:,.0f}"


def clock(seconds: float) -> str:
    """`1:02:03`, or `2d 1:02:03`."""
    minutes, whole = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}d " if days else "") + f"{hours}:{minutes:02}:{whole:02}"

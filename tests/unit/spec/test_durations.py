"""Durations written as text."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamling.spec.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("1s", timedelta(seconds=1)),
        ("1m 30s", timedelta(seconds=90)),
        ("1m30s", timedelta(seconds=90)),
        ("2 hours", timedelta(hours=2)),
        ("1week 2days 3hr 4min 5sec", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)),
        ("10us", timedelta(microseconds=10)),
        ("0", timedelta(0)),
        ("0s", timedelta(0)),
        (" 1s ", timedelta(seconds=1)),
    ],
)
def test_parts_add_up(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


def test_no_positive_duration_becomes_zero() -> None:
    assert parse_duration("1ns") == timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text", ["", " ", "5", "1.5s", "-1s", "s", "1x", "1s 5", "1S", "1s,2s", "9" * 18 + "w", "9" * 99 + "s"]
)
def test_anything_else_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="is '"):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_what_is_printed_reads_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration

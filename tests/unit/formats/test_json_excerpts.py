"""Rows as JSON of limited length, for people."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from streamling.formats.json import json_rows
from streamling.formats.json_excerpts import json_excerpts

LIMIT = 64 << 10


def excerpts(batch: pa.RecordBatch, limit: int = LIMIT) -> list[Any]:
    """The rows; each is valid JSON, and short."""
    texts = json_excerpts(batch, (), limit)
    assert all(len(text) <= limit + 100 for text in texts), list(map(len, texts))
    return [json.loads(text, parse_float=Decimal, parse_constant=lambda name: 1 / 0) for text in texts]


def test_rows_that_are_short_enough_are_complete() -> None:
    batch = pa.record_batch({"id": [1, None], "text": ["a" * 60_000, '"\x00\u2028'], "n": [float("nan"), 1.5]})
    assert json_excerpts(batch, (), LIMIT) == json_rows(batch)


def test_long_texts_are_cut_and_no_digit_is_lost() -> None:
    digits = Decimal("123456789012345678901234567890.12345678")
    inner = pa.struct([("text", pa.string()), ("wide", pa.decimal128(38, 8)), ("most", pa.uint64())])
    value = {"text": "ü" * 70_000, "wide": digits, "most": 2**64 - 1}
    batch = pa.record_batch({"in": pa.array([value], inner), "all": pa.array([[value]], pa.list_(inner))})
    (row,) = excerpts(batch)
    for found in (row["in"], row["all"][0]):
        assert found["text"] == "ü" * 1000 + "... (70,000 characters)"
        assert (found["wide"], found["most"]) == (digits, 2**64 - 1)


def test_rows_of_ten_megabytes_take_no_time_and_no_space() -> None:
    text = "y" * 10_000_000
    batch = pa.record_batch(
        {"id": range(15), "text": [text] * 14 + [None], "bytes": [text.encode()] * 15, "list": [[1] * 2_000_000] * 15}
    )
    began = time.monotonic()
    rows = excerpts(batch)
    assert time.monotonic() - began < 1
    assert rows[0] == {
        "id": 0,
        "text": "y" * 1000 + "... (10,000,000 bytes)",
        "bytes": "79" * 500 + "... (10,000,000 bytes)",
        "list": "... (16,000,004 bytes)",
    }
    assert rows[14]["text"] is None


def test_a_cut_between_the_bytes_of_a_character_is_a_cut_before_it() -> None:
    (row,) = excerpts(pa.record_batch({"text": ["\U0001f600é" * 300_000]}))
    assert row["text"].startswith("\U0001f600é" * 500 + "... (")


def test_of_too_many_columns_the_first_ones_are_shown() -> None:
    batch = pa.record_batch({f"column {n}": [n, n] for n in range(5000)})
    for limit, least in ((LIMIT, 3000), (1000, 40)):
        for row in excerpts(batch, limit):
            left_out = row.pop("_truncated")
            assert row == {f"column {n}": n for n in range(len(row))}
            assert len(row) > least
            assert left_out == f"{5000 - len(row):,} more columns"


def test_lists_that_are_too_long_become_text() -> None:
    (row,) = excerpts(pa.record_batch({"id": [1], "list": [list(range(50_000))]}))
    assert row["id"] == 1
    assert row["list"].startswith("[0,1,2,3,")
    assert row["list"].endswith("... (288,891 characters)")


def test_text_that_is_not_utf8_is_shown_as_far_as_it_is() -> None:
    wrong = pa.array([b"a\xffb", None, b"c"]).cast(pa.string(), safe=False)
    nested = pa.StructArray.from_arrays([wrong], ["text"])
    rows = excerpts(pa.record_batch({"id": [1, 2, 3], "text": wrong, "in": nested}))
    assert [row["text"] for row in rows] == ["a\ufffdb", None, "c"]
    assert [row["in"] for row in rows] == ["(not valid UTF-8)"] * 3

"""Avro container files: blocks are cut, values arrive as the mapping of Avro types says, damage is told."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.connector import Room
from streamling.errors import PermanentError
from streamling.formats import avro_blocks
from support.file_source_samples import PLENTY, Row, bad_in, everything, file_source, opened, read, rows_in, rows_of

KEY = "events:bounded_progress"
ID_AND_NAME = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]


def write(
    path: Path, fields: list[dict[str, Any]], rows: list[Row], codec: str = "null", block_bytes: int = 16_000
) -> Path:
    schema = fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec=codec, sync_interval=block_bytes)
    return path


def value_of(tmp_path: Path, type_: Any, *values: Any) -> list[Any]:
    """What values of a type arrive as."""
    path = write(tmp_path / "a.avro", [{"name": "f", "type": type_}], [{"f": value} for value in values])
    return [row["f"] for row in rows_of(path, "avro")]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz"])
def test_every_codec_is_read(tmp_path: Path, codec: str) -> None:
    rows = [{"id": i, "name": f"n{i}"} for i in range(5000)]
    write(tmp_path / "a.avro", ID_AND_NAME, rows, codec)
    assert rows_of(tmp_path, "avro") == [{**row, "_gs_op": "i"} for row in rows]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=3), st.integers(1, 120), st.integers(1, 3))
def test_wherever_blocks_are_cut_all_rows_come_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], size: int, parts: int
) -> None:
    directory = tmp_path_factory.mktemp("blocks")
    first = 0
    for n, count in enumerate(counts):
        rows = [{"id": i, "name": "x" * (i % 7)} for i in range(first, first + count)]
        write(directory / f"{n}.avro", ID_AND_NAME, rows, block_bytes=100)
        first += count
    source, position, found = opened(directory, "avro"), None, []
    while (offer := source.offer(Room(size, parts, 1))) is not None:
        (slice_,) = offer.slices
        items = rows_in(read(source, offer))
        assert (slice_.start, slice_.rows) == (position, len(items))
        found += [row["id"] for row in items]
        position = slice_.end
        source.open({KEY: json.loads(json.dumps(position))})
    assert found == list(range(first))


INSTANT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC)
WALL = INSTANT.replace(tzinfo=None)


def logical(base: str, type_: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": type_, **more}


@pytest.mark.parametrize(
    ("type_", "values", "arrived"),
    [
        ("boolean", [True], [True]),
        ("int", [-1], [-1]),
        ("float", [1.5], [1.5]),
        ("bytes", [b"x"], [b"x"]),
        (["null", "long"], [None, 5], [None, 5]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["B", "A"], ["B", "A"]),
        ({"type": "fixed", "name": "F", "size": 2}, [b"ab"], [b"ab"]),
        ({"type": "array", "items": ["null", "int"]}, [[1, None], []], [[1, None], []]),
        ({"type": "map", "values": "long"}, [{"a": 1}], [[("a", 1)]]),
        (["null", "int", "string"], [1, "x", None], [{"int": 1, "string": None}, {"int": None, "string": "x"}, None]),
        (logical("int", "date"), [dt.date(2026, 1, 2)], [dt.date(2026, 1, 2)]),
        (logical("int", "time-millis"), [dt.time(1, 2, 3)], [dt.time(1, 2, 3)]),
        (logical("long", "time-micros"), [dt.time(1, 2, 3, 4)], [dt.time(1, 2, 3, 4)]),
        (logical("long", "timestamp-millis"), [INSTANT], [WALL]),
        (logical("long", "timestamp-micros"), [INSTANT], [WALL]),
        (logical("long", "timestamp-nanos"), [1_234_567], [WALL.replace(1970, 1, 1, 0, 0, 0, 1234)]),
        (logical("long", "local-timestamp-micros"), [WALL], [WALL]),
        (logical("string", "uuid"), [UUID(int=5)], [str(UUID(int=5))]),
        (logical("fixed", "uuid", name="U", size=16), [UUID(int=5).bytes], [UUID(int=5).bytes]),
        (logical("bytes", "decimal", precision=10, scale=2), [Decimal("-1.50")], [Decimal("-1.50")]),
        (logical("bytes", "decimal", precision=50, scale=2), [Decimal("-1.50")], ["-1.50"]),
        (logical("bytes", "decimal", precision=100, scale=3), [Decimal("-0.050"), Decimal(0)], ["-0.050", "0"]),
        (logical("fixed", "decimal", precision=78, scale=0, name="D", size=33), [Decimal(10**77)], [str(10**77)]),
        (
            {"type": "array", "items": logical("bytes", "decimal", precision=90, scale=1)},
            [[Decimal("1.5")]],
            [["1.5"]],
        ),
        (
            {"type": "record", "name": "X", "fields": [{"name": "n", "type": "null"}, {"name": "a", "type": "int"}]},
            [{"n": None, "a": 1}],
            [{"n": None, "a": 1}],
        ),
    ],
)
def test_values_arrive_as_the_mapping_says(tmp_path: Path, type_: Any, values: list[Any], arrived: list[Any]) -> None:
    assert value_of(tmp_path, type_, *values) == arrived


def test_a_duration_counts_days_of_24_hours_and_refuses_months(tmp_path: Path) -> None:
    def encoded(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(4, "little") for number in numbers)

    fields = [*ID_AND_NAME[:1], {"name": "f", "type": logical("fixed", "duration", name="Du", size=12)}]
    rows = [{"id": i, "f": encoded(int(i == 3), 2, 3)} for i in range(6)]
    write(tmp_path / "a.avro", fields, rows)
    items = everything(opened(tmp_path, "avro"))
    assert [row["id"] for row in rows_in(items)] == [0, 1, 2, 4, 5]
    assert rows_in(items)[0]["f"] == dt.timedelta(days=2, milliseconds=3)
    assert [(bad.reason, bad.source["row"]) for bad in bad_in(items)] == [("schema_mismatch", 4)]


def test_later_files_are_matched_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a.avro", ID_AND_NAME, [{"id": 1, "name": "a"}])
    write(tmp_path / "b.avro", [{"name": "more", "type": "int"}, {"name": "id", "type": "int"}], [{"more": 1, "id": 2}])
    with caplog.at_level(logging.WARNING):
        rows = rows_of(tmp_path, "avro")
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, None)]
    assert "lacks columns" in caplog.text and "are not read: more" in caplog.text


def test_the_operation_may_come_from_the_file(tmp_path: Path) -> None:
    write(tmp_path / "a.avro", [{"name": "_gs_op", "type": "string"}], [{"_gs_op": "d"}, {"_gs_op": "?"}])
    items = everything(opened(tmp_path, "avro"))
    assert rows_in(items) == [{"_gs_op": "d"}]
    assert [bad.reason for bad in bad_in(items)] == ["unknown_operation"]


def test_a_file_without_rows_is_done_at_once(tmp_path: Path) -> None:
    write(tmp_path / "a.avro", ID_AND_NAME, [])
    assert rows_of(tmp_path, "avro") == []


# Damage


def damaged(tmp_path: Path, at: int, put: bytes) -> Path:
    """A file of three blocks whose bytes are changed at a distance from the start of the second block."""
    rows = [{"id": i, "name": "x" * 10} for i in range(30)]
    path = write(tmp_path / "a.avro", ID_AND_NAME, rows, block_bytes=110)
    data = bytearray(path.read_bytes())
    sync = bytes(data[-16:])
    second = data.index(sync, data.index(sync) + 16) + 16
    data[second + at : second + at + len(put)] = put
    path.write_bytes(bytes(data))
    return path


@pytest.mark.parametrize("put", [b"\xff" * 12, b"\x00\x00\x00", b"\x02\x7f\x7f\x7f"])
def test_a_block_that_cannot_be_decoded_is_told_row_by_row_and_the_others_are_read(tmp_path: Path, put: bytes) -> None:
    damaged(tmp_path, 4, put)
    items = everything(opened(tmp_path, "avro"))
    bad = bad_in(items)
    assert bad, "the damage went unnoticed"
    assert {b.reason for b in bad} == {"decode_error"}
    numbers = [b.source["row"] for b in bad]
    assert numbers == list(range(numbers[0], numbers[0] + len(bad)))
    good = [row["id"] for row in rows_in(items)]
    assert good == [i for i in range(30) if i + 1 not in numbers]


def test_a_file_that_is_cut_short_is_told_with_the_place(tmp_path: Path) -> None:
    path = damaged(tmp_path, 0, b"")
    path.write_bytes(path.read_bytes()[:-5])
    source = opened(tmp_path, "avro")
    with pytest.raises(PermanentError, match=r"a\.avro' is damaged: there is no complete Avro block at byte \d+"):
        source.offer(PLENTY)


def test_a_later_file_that_is_no_avro_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.avro", ID_AND_NAME, [{"id": 1, "name": "a"}])
    (tmp_path / "b.avro").write_bytes(b"no avro")
    source = file_source(tmp_path, "avro", like=tmp_path / "a.avro")
    source.open({})
    with pytest.raises(PermanentError, match=r"b\.avro' cannot be read as avro"):
        source.offer(PLENTY)


def test_what_a_killed_process_has_left_in_memory_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    old, fresh, other = (memory / name for name in ("streamling-a.avro", "streamling-b.avro", "other.avro"))
    for file in (old, fresh, other):
        file.write_bytes(b"rows")
    for file in (old, other):
        os.utime(file, (1, 1))
    monkeypatch.setattr(avro_blocks, "_SHARED_MEMORY", memory)
    write(tmp_path / "a.avro", ID_AND_NAME, [{"id": 1, "name": "a"}])
    assert len(rows_of(tmp_path / "a.avro", "avro")) == 1
    assert sorted(memory.iterdir()) == [other, fresh]

"""Rows of files that cannot be read: each stands in its place, with file, number, bytes and reason."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamling.connector import BadRow, Room
from support.file_source_samples import PLENTY, Row, bad_in, everything, file_source, opened, rows_in

GOOD = {"csv": "id,name\n0,n\n", "json": '{"id": 0, "name": "n", "price": 1.5}\n'}


def items_of(path: Path, format_: str, room: Room = PLENTY) -> list[pa.RecordBatch | BadRow]:
    """Read with the columns of a good file, where the format has none of its own."""
    like = path
    if format_ in GOOD:
        like = path / "good" / f"a.{format_}"
        like.parent.mkdir(exist_ok=True)
        like.write_text(GOOD[format_])
    source = file_source(path / f"*.{format_}", format_, like=like)
    source.open({})
    return everything(source, room)


def told(items: list[pa.RecordBatch | BadRow]) -> list[tuple[str, object, bytes | None]]:
    return [(bad.reason, bad.source["row"], bad.raw) for bad in bad_in(items)]


def csv_file(directory: Path, *lines: bytes) -> list[pa.RecordBatch | BadRow]:
    (directory / "a.csv").write_bytes(b"id,name\n" + b"".join(lines))
    return items_of(directory, "csv")


@pytest.mark.parametrize(
    ("line", "reason", "part"),
    [
        (b"x,a\n", "schema_mismatch", "column 'id': 'x' is not a valid int64"),
        (b"1.5,a\r\n", "schema_mismatch", "column 'id': '1.5'"),
        (b"5\n", "decode_error", "Expected 2 columns, got 1"),
        (b"5,a,b\n", "decode_error", "Expected 2 columns, got 3"),
        (b"5,\xff\xfe\n", "decode_error", "column 'name' is not UTF-8"),
        (b"5,a\r6,b\n", "decode_error", "contains a lone CR"),
        (b'x,"a\nb"\n', "schema_mismatch", "column 'id': 'x'"),
    ],
)
def test_a_bad_csv_record_is_told_and_the_others_are_read(tmp_path: Path, line: bytes, reason: str, part: str) -> None:
    good = [b"%d,n\n" % i for i in range(1, 101)]
    items = csv_file(tmp_path, *good[:40], line, *good[40:])
    (bad,) = bad_in(items)
    assert (bad.reason, bad.source) == (reason, {"file": str(tmp_path / "a.csv"), "row": 41})
    assert bad.raw == line.rstrip(b"\r\n")
    assert part in bad.message
    assert [row["id"] for row in rows_in(items)] == list(range(1, 101))
    assert [row["id"] for row in rows_in(items[: items.index(bad)])] == list(range(1, 41))


def test_a_type_is_called_what_pipelines_call_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,price\n1,1.5\n2,2.5\n")
    source = opened(tmp_path, "csv")
    (tmp_path / "b.csv").write_text("id,price\n3,much\n")
    (bad,) = bad_in(everything(source))
    assert bad.message == "column 'price': 'much' is not a valid float64"


def test_many_bad_rows_are_all_found_whatever_the_cuts(tmp_path: Path) -> None:
    lines = [b"id\n"] + [b"bad %d\n" % i if i % 7 == 0 else b"%d\n" % i for i in range(1, 500)]
    (tmp_path / "a.csv").write_bytes(b"".join(lines))
    for room in (PLENTY, Room(13, 3, 2)):
        items = items_of(tmp_path, "csv", room)
        assert told(items) == [("schema_mismatch", i, b"bad %d" % i) for i in range(7, 500, 7)]
        assert [row["id"] for row in rows_in(items)] == [i for i in range(1, 500) if i % 7]


def test_empty_lines_count_as_rows_of_a_file(tmp_path: Path) -> None:
    assert told(csv_file(tmp_path, b"1,a\n", b"\n", b"\n", b"x,b\n")) == [("schema_mismatch", 4, b"x,b")]


def test_a_letter_can_tell_the_versions_of_a_file_apart(tmp_path: Path) -> None:
    (before,) = bad_in(csv_file(tmp_path, b"1,a\n", b"x,b\n"))
    (after,) = bad_in(csv_file(tmp_path, b"12,a\n", b"x,b\n"))
    assert before.version != after.version


@pytest.mark.parametrize(
    ("line", "reason", "part"),
    [
        (b"nonsense", "decode_error", "not a JSON object: nonsense"),
        (b"null", "decode_error", "not a JSON object"),
        (b"[1]", "decode_error", "one object per line, not an array"),
        (b'{"price": "much"}', "schema_mismatch", "column 'price': \"much\" is not a valid float64"),
        (b'{"id": 5', "decode_error", "not one JSON object"),
        (b'{"id": 5}{"id": 6}', "decode_error", "not one JSON object"),
        (b'{"id": "five"}', "schema_mismatch", '"five" is not a valid int64'),
        (b'{"name": 5}', "schema_mismatch", "column 'name': 5 is not a valid string"),
        (b'{"id": %s}' % (b"9" * 5000), "schema_mismatch", "999 is not a valid int64"),
        (b'{"name": %s}' % (b"[" * 5000 + b"]" * 5000), "schema_mismatch", "column 'name': [] is not a valid string"),
        (b'{"id": "five", "price": NaN}', "schema_mismatch", "column 'id': its value is not a valid int64"),
        (b'{"name": "\xff"}', "decode_error", "not UTF-8"),
        (b'{"_gs_op": null}', "unknown_operation", "_gs_op is null"),
        (b'{"_gs_op": "x"}', "unknown_operation", "_gs_op is 'x'; it must be i, u or d"),
    ],
)
def test_a_bad_json_line_is_told_and_the_others_are_read(tmp_path: Path, line: bytes, reason: str, part: str) -> None:
    good = [b'{"id": %d, "name": "n", "price": 1.5}' % i for i in range(1, 101)]
    (tmp_path / "a.json").write_bytes(b"\n".join([*good[:40], line, *good[40:]]))
    items = items_of(tmp_path, "json")
    (bad,) = bad_in(items)
    assert (bad.reason, bad.source["row"], bad.raw) == (reason, 41, line)
    assert part in bad.message
    assert [row["id"] for row in rows_in(items)] == list(range(1, 101))


def test_a_csv_operation_must_be_one_of_three(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,_gs_op\n1,d\n2,\n3,x\n4,u\n")
    items = items_of(tmp_path, "csv")
    assert told(items) == [("unknown_operation", 2, b"2,"), ("unknown_operation", 3, b"3,x")]
    assert [row["id"] for row in rows_in(items)] == [1, 4]


def test_values_of_a_later_parquet_file_that_do_not_fit_are_bad_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([2, 2**40, 3], pa.int64())}), tmp_path / "b.parquet")
    items = items_of(tmp_path, "parquet")
    (bad,) = bad_in(items)
    assert (bad.reason, bad.source["row"], bad.raw) == ("schema_mismatch", 2, None)
    assert "column 'id': 1099511627776 does not fit int32" in bad.message
    assert [row["id"] for row in rows_in(items)] == [1, 2, 3]


def test_nulls_where_none_were_planned_are_bad_rows(tmp_path: Path) -> None:
    never = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    pq.write_table(pa.table({"id": [1]}, never), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2, None]}), tmp_path / "b.parquet")
    items = items_of(tmp_path, "parquet")
    assert told(items) == [("schema_mismatch", 2, None)]
    rows: list[Row] = rows_in(items)
    assert [row["id"] for row in rows] == [1, 2]


def test_row_numbers_go_on_in_the_next_slice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n" + "1,a\n" * 10 + "x,a\n")
    assert told(items_of(tmp_path, "csv", Room(7, 1, 1))) == [("schema_mismatch", 11, b"x,a")]


def test_bad_lines_do_not_hide_the_columns_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,name\n1,a\n2\n3,\xff\n4,d\n")
    (tmp_path / "a.json").write_bytes(b'{"id": 1}\nnull\nnonsense\n{"id": 2, "name": "b"}\n{"name": "\xff"}\n')
    for format_, bad, ids in (("csv", [2, 3], [1, 4]), ("json", [2, 3, 5], [1, 2])):
        items = everything(opened(tmp_path, format_))
        assert [number for _, number, _ in told(items)] == bad
        assert [row["id"] for row in rows_in(items)] == ids

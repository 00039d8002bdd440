"""A path means files, and files tell their columns."""

from __future__ import annotations

import datetime as dt
import errno
import json
from decimal import Decimal
from pathlib import Path

import datafusion
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamling.errors import PermanentError, StreamlingError, UserError
from streamling.plan.types import INT64, decimal
from streamling.plan.written_types import declared_type
from streamling.sources.file import columns as columns_module
from streamling.sources.file.columns import columns_of, look_up_columns
from streamling.sources.file.listing import list_files
from support.file_source_samples import PLENTY, bad_in, everything, file_source, rows_in

ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "price": pa.array(["1.50", None]).cast(pa.decimal128(20, 4)),
        "at": pa.array([0, 1], pa.timestamp("ms", "UTC")),
        "tags": pa.array([["a"], []], pa.list_(pa.string())),
        "where": pa.array([{"x": 1.5}, None], pa.struct([("x", pa.float64())])),
        "count": pa.array([1, 2], pa.uint32()),
    }
)


def touch(directory: Path, *names: str) -> None:
    for name in names:
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("id\n1\n")


def found(path: Path | str, base: Path, format_: str = "csv") -> list[str]:
    return [Path(file.path).relative_to(base).as_posix() for file in list_files(str(path), format_).files]


def columns(path: Path | str, format_: str) -> list[str]:
    return [f"{f.name} {f.type}" for f in columns_of(str(path), format_)]


# Which files


def test_a_directory_means_every_file_below_it_with_the_extension(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a.csv", "deep/er/c.CSV", "d.json", "e.csv.tmp")
    assert found(tmp_path, tmp_path) == ["a.csv", "b.csv", "deep/er/c.CSV"]


def test_hidden_names_and_those_with_an_underscore_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", ".b.csv", "_c.csv", ".hidden/d.csv", "_temporary/e.csv")
    assert found(tmp_path, tmp_path) == ["a.csv"]


def test_one_file_may_be_named_even_below_a_hidden_directory(tmp_path: Path) -> None:
    touch(tmp_path, ".cache/a.csv")
    assert found(tmp_path / ".cache" / "a.csv", tmp_path) == [".cache/a.csv"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["a.csv", "ab.csv"]),
        ("?.csv", ["a.csv"]),
        ("**/*.csv", ["a.csv", "ab.csv", "x/b.csv", "x/y/c.csv"]),
        ("x/**", ["x/b.csv", "x/y/c.csv"]),
        ("*/b.csv", ["x/b.csv"]),
        ("a[a-c].csv", ["ab.csv"]),
        ("a[!a-c].csv", []),
        ("no/where/*.csv", []),
    ],
)
def test_a_pattern_means_what_it_matches(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    touch(tmp_path, "a.csv", "ab.csv", "x/b.csv", "x/y/c.csv")
    assert found(f"{tmp_path}/{pattern}", tmp_path) == expected


def test_leading_directories_of_the_form_key_value_are_partitions(tmp_path: Path) -> None:
    touch(tmp_path, "day=1/hour=2/a.csv", "day=1/hour=3/x/b.csv", "day=4/c.csv", "d.csv")
    listing = list_files(str(tmp_path), "csv")
    assert [file.partitions for file in listing.files] == [
        (("day", "1"), ("hour", "2")),
        (("day", "1"), ("hour", "3")),
    ]
    assert [Path(file.path).name for file in listing.outside] == ["d.csv", "c.csv"]


# Their columns


def test_parquet_tells_exact_types(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    assert columns(tmp_path, "parquet") == [
        "id int64",
        "price decimal(20,4)",
        "at timestamp(ms, UTC)",
        "tags list<string>",
        "where struct<x: float64>",
        "count uint32",
        "_gs_op string",
    ]


def test_csv_and_json_lines_tell_types_by_their_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name,price,day\n1,x,1.5,2026-01-02\n")
    (tmp_path / "a.jsonl").write_text('{"id": 1, "in": {"a": [true]}, "none": null}\n')
    assert columns(tmp_path, "csv") == ["id int64", "name string", "price float64", "day date32", "_gs_op string"]
    assert columns(tmp_path, "json") == ["id int64", "in struct<a: list<boolean>>", "none string", "_gs_op string"]


def test_large_json_is_sampled_up_to_a_whole_line(tmp_path: Path) -> None:
    line = json.dumps({"id": 1, "text": "x" * 1000}) + "\n"
    (tmp_path / "a.json").write_text(line * 3000 + "this is no JSON and far behind\n")
    assert columns(tmp_path, "json") == ["id int64", "text string", "_gs_op string"]


def test_avro_tells_its_own_schema(tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "n", "type": "string"}]
    (tmp_path / "a.avro").write_bytes(avro_header(json.dumps({"type": "record", "name": "R", "fields": fields})))
    assert datafusion.SessionContext().read_avro(str(tmp_path / "a.avro")).schema().names == ["id", "n"]
    assert columns(tmp_path, "avro") == ["id int64", "n string", "_gs_op string"]


def avro_header(schema: str) -> bytes:
    """A container file without rows."""

    def number(value: int) -> bytes:
        value <<= 1
        found = bytearray()
        while value > 0x7F:
            found.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes((*found, value))

    def text(value: str) -> bytes:
        return number(len(value.encode())) + value.encode()

    metadata = number(2) + text("avro.codec") + text("null") + text("avro.schema") + text(schema) + number(0)
    return b"Obj\x01" + metadata + b"0123456789abcdef"


def test_partitions_are_columns_behind_those_of_the_file(tmp_path: Path) -> None:
    touch(tmp_path, "day=1/id=7/a.csv")
    assert columns(tmp_path, "csv") == ["id int64", "day string", "_gs_op string"]


def test_an_operation_column_of_the_files_is_used_and_stands_last(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("_gs_op,id\ni,1\n")
    assert columns(tmp_path, "csv") == ["id int64", "_gs_op string"]


def test_empty_files_are_passed_over_as_long_as_one_has_content(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("")
    (tmp_path / "b.json").write_text('{"id": 1}\n')
    assert columns(tmp_path, "json") == ["id int64", "_gs_op string"]


# What can be wrong


def test_no_files_is_said_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        columns_of(str(tmp_path / "*.csv"), "csv")
    assert caught.value.code == "SCHEMA_NOT_FOUND"
    assert "no files matched" in caught.value.message
    assert "*.csv" in caught.value.message


@pytest.mark.parametrize(
    ("name", "part"),
    [("ok.csv", "does not end in .parquet"), ("_ok.parquet", "names that begin with '.' or '_' are ignored")],
)
def test_a_file_that_is_there_and_not_read_is_explained(tmp_path: Path, name: str, part: str) -> None:
    (tmp_path / name).write_text("id\n1\n")
    with pytest.raises(UserError, match="no files matched") as caught:
        columns_of(str(tmp_path / name), "parquet")
    assert part in caught.value.message


@pytest.mark.parametrize(
    ("names", "path", "part"),
    [
        ((), "nowhere", "no file or directory with this name"),
        ((), "nowhere/*.csv", "there is no directory '{base}/nowhere'"),
        ((), "", "there are no files"),
        (("x.json", "y.json", "deep/z.json"), "", "there are 3 files, none ends in .csv; for example deep/z.json"),
        (("x.json",), "", "there is 1 file, none ends in .csv; for example x.json"),
        (("a.csv.gz",), "", "compressed files are not supported; for example a.csv.gz"),
        (("a.csv.gz",), "a.csv.gz", "compressed files are not supported"),
        (("a.csv", "b.csv"), "c*.csv", "there are 2 files in '{base}', none matches; for example a.csv"),
        (("_a.csv",), "", "names that begin with '.' or '_' are ignored"),
    ],
)
def test_why_no_files_are_found_is_said(tmp_path: Path, names: tuple[str, ...], path: str, part: str) -> None:
    touch(tmp_path, *names)
    with pytest.raises(UserError, match="no files matched") as caught:
        columns_of(f"{tmp_path}/{path}", "csv")
    assert part.format(base=tmp_path) in caught.value.message


def test_a_leading_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    touch(tmp_path, "in/a.csv")
    assert found("~/in", tmp_path) == ["in/a.csv"]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name,id\n1,a,2\n")
    with pytest.raises(UserError, match="two columns with the name 'id'") as caught:
        columns_of(str(tmp_path), "csv")
    assert caught.value.code == "SCHEMA_UNUSABLE"


@pytest.mark.parametrize(
    ("name", "content", "format_"),
    [
        ("a.parquet", b"PAR1 but not really", "parquet"),
        ("a.avro", b"no avro", "avro"),
        ("a.avro", b"Obj\x01\xff\xff", "avro"),
        ("a.json", b"[1, 2]\n", "json"),
        ("a.json", b"\xff\xfe\n", "json"),
        ("a.csv", b"", "csv"),
    ],
)
def test_a_file_of_another_form_is_named(tmp_path: Path, name: str, content: bytes, format_: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StreamlingError) as caught:
        columns_of(str(tmp_path), format_)
    assert caught.value.code == "SCHEMA_UNUSABLE"
    assert name in caught.value.message


def test_an_operation_column_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("_gs_op,id\n1,1\n")
    with pytest.raises(UserError, match=r"_gs_op.*must be text, it is int64"):
        columns_of(str(tmp_path), "csv")


def test_declared_types_take_the_place_of_guessed_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,price,note\n1,2.50,x\n2,n/a,y\n")
    declared = {"price": decimal(10, 2), "later": INT64}
    schema = columns_of(str(tmp_path), "csv", declared)
    assert [(f.name, str(f.type)) for f in schema] == [
        ("id", "int64"),
        ("price", "decimal(10,2)"),
        ("note", "string"),
        ("later", "int64"),
        ("_gs_op", "string"),
    ]


def test_a_directory_column_cannot_be_declared(tmp_path: Path) -> None:
    (tmp_path / "dt=2024-01-01").mkdir()
    (tmp_path / "dt=2024-01-01" / "a.csv").write_text("id\n1\n")
    with pytest.raises(UserError, match="comes from directory names"):
        columns_of(str(tmp_path), "csv", {"dt": INT64})


def test_declared_columns_of_json_lines_may_hold_what_arrow_would_not_mix(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "price": "2.50"}\n{"id": 2, "price": 3}\n')
    with pytest.raises(UserError, match="price") as refused:
        columns_of(str(tmp_path), "json")
    assert refused.value.hint == "set the type of the column in 'schema' of the source"
    schema = columns_of(str(tmp_path), "json", {"price": decimal(10, 2)})
    assert [(f.name, str(f.type)) for f in schema if f.name != "_gs_op"] == [
        ("price", "decimal(10,2)"),
        ("id", "int64"),
    ]


def test_declared_structs_and_lists_of_json_lines_are_read_exactly(tmp_path: Path) -> None:
    good = '{"id": 1, "user": {"born": "2001-02-03", "paid": [12345678901234567.89, null], "more": 1}}'
    (tmp_path / "a.json").write_text(good + '\n{"id": 2}\n{"id": 3, "user": {"paid": [123456789012345678901]}}\n')
    declared = {"user": declared_type("struct<born: date, paid: list<decimal(20,2)>>")}
    source = file_source(tmp_path, "json")
    columns = columns_of(str(tmp_path), "json", declared)
    source.prepare(columns, columns.names)
    source.open({})
    items = everything(source, PLENTY)
    assert [(row["id"], row["user"]) for row in rows_in(items)] == [
        (1, {"born": dt.date(2001, 2, 3), "paid": [Decimal("12345678901234567.89"), None]}),
        (2, None),
    ]
    (bad,) = bad_in(items)
    assert bad.source["row"] == 3
    assert bad.message.startswith("column 'user': ")


def test_a_password_in_the_path_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(PermanentError, match="cannot be listed") as caught:
        columns_of("s3://me:topsecret@shop/in", "csv")
    assert "topsecret" not in str(caught.value)
    assert "s3://me:" in str(caught.value)


def test_declared_columns_of_json_lines_come_first_in_the_order_of_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"x": 1, "b": 2, "a": 3, "y": 4}\n')
    schema = columns_of(str(tmp_path), "json", {"b": INT64, "later": INT64, "a": INT64})
    assert schema.names == ("b", "later", "a", "x", "y", "_gs_op")


@pytest.mark.parametrize(("format_", "content"), [("csv", b""), ("json", b"[1, 2]\n")])
def test_where_types_are_not_the_trouble_no_types_are_advised(tmp_path: Path, format_: str, content: bytes) -> None:
    (tmp_path / f"a.{format_}").write_bytes(content)
    with pytest.raises(UserError) as caught:
        columns_of(str(tmp_path), format_)
    assert caught.value.hint is None
    assert ("line of column names" if format_ == "csv" else "one object per line, not an array") in caught.value.message


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Failed to open local file. Detail: [errno 13] Permission denied")

    monkeypatch.setattr(columns_module, "_columns", refuse)  # root may read everything
    with pytest.raises(UserError, match=r"a\.csv' cannot be read: Permission denied") as caught:
        columns_of(str(tmp_path), "csv")
    assert (caught.value.code, caught.value.hint) == ("SCHEMA_NOT_FOUND", None)


# Operations


@pytest.mark.parametrize("format_", ["csv", "json", "parquet", "avro"])
@pytest.mark.parametrize("present", [True, False])
def test_files_with_an_operation_column_may_have_updates_and_deletes(
    tmp_path: Path, format_: str, present: bool
) -> None:
    row = {"id": 1, "_gs_op": "u"} if present else {"id": 1}
    file = tmp_path / f"a.{format_}"
    match format_:
        case "csv":
            file.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
        case "json":
            file.write_text(json.dumps(row) + "\n")
        case "parquet":
            pq.write_table(pa.Table.from_pylist([row]), file)
        case _:
            fields = [{"name": name, "type": "long" if name == "id" else "string"} for name in row]
            with file.open("wb") as stream:
                fastavro.writer(stream, {"type": "record", "name": "R", "fields": fields}, [row])
    schema, has_operations = look_up_columns(str(file), format_, {}, lambda change: None)
    assert (schema.names, has_operations) == (("id", "_gs_op"), present)

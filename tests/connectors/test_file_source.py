"""The file source: files are cut into slices, and slices hold each row once, in order, wherever they are cut."""

from __future__ import annotations

import csv
import errno
import io
import json
import logging
import os
from itertools import accumulate
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.connector import Room
from streamling.errors import PermanentError, StreamlingError, TransientError
from streamling.sources.file import avro_container, records
from streamling.sources.file import source as source_module
from streamling.sources.file.storage import open_unchanged
from support.file_source_samples import PLENTY, Row, everything, file_source, opened, read, rows_in, rows_of

KEY = "events:bounded_progress"
FORMATS = ("csv", "json", "parquet")
# What a name may hold without being taken for a number or a time; all that is special in CSV among it.
TEXTS = st.text(st.sampled_from("ab \",\n'é{}:\\"), max_size=8).map(lambda text: f"t{text}")


def write(path: Path, format_: str, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    match format_:
        case "csv":
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, ["id", "name"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            path.write_bytes(text.getvalue().encode())
        case "json":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "parquet":
            schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
            pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=3)


def sample(first: int, count: int) -> list[Row]:
    return [{"id": i, "name": f"name {i}"} for i in range(first, first + count)]


def delivered(rows: list[Row], **more: Any) -> list[Row]:
    return [{**row, **more, "_gs_op": "i"} for row in rows]


# Whatever the cuts, the rows are those of the files


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    format_=st.sampled_from(FORMATS),
    files=st.lists(st.lists(TEXTS, max_size=12), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    parts=st.integers(1, 4),
    chunk=st.sampled_from([1, 2, 3, 7, 64, 1 << 20]),
)
def test_wherever_files_are_cut_all_rows_come_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    format_: str,
    files: list[list[str]],
    sizes: list[int],
    parts: int,
    chunk: int,
) -> None:
    directory = tmp_path_factory.mktemp("cuts")
    contents = [[{"id": n * 100 + i, "name": text} for i, text in enumerate(texts)] for n, texts in enumerate(files)]
    for n, rows in enumerate(contents):
        write(directory / f"{n}.{format_}", format_, rows)
    (directory / "like").mkdir()
    write(directory / "like" / f"z.{format_}", format_, [{"id": 1, "name": "t"}])
    expected = [row for rows in contents for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_CHUNK", chunk)
        source = file_source(directory / f"*.{format_}", format_, like=directory / "like")
        source.open({})
        found, position, turn = [], None, 0
        while (offer := source.offer(Room(sizes[turn % len(sizes)], parts, 1))) is not None:
            (slice_,) = offer.slices
            assert (slice_.node, slice_.key, slice_.start) == ("events", KEY, position)
            items = rows_in(read(source, offer))
            assert slice_.rows == len(items) <= sizes[turn % len(sizes)]
            assert len(slice_.parts) <= parts
            found += items
            position, turn = slice_.end, turn + 1
            if turn % 2:  # the rest by a new process that knows only what is stored
                source.open({KEY: json.loads(json.dumps(position))})
    assert source.ended
    assert found == delivered(expected)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_finished_job_reads_nothing_when_it_is_run_again(tmp_path: Path, format_: str) -> None:
    write(tmp_path / f"a.{format_}", format_, sample(0, 5))
    source = opened(tmp_path, format_)
    end = source.offer(PLENTY).slices[0].end
    again = opened(tmp_path, format_, {KEY: end})
    assert again.offer(PLENTY) is None
    assert again.ended


def test_a_slice_reads_the_same_again(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "csv", sample(0, 100))
    source = opened(tmp_path, "csv")
    source.offer(Room(30, 1, 1))
    offer = source.offer(Room(30, 3, 5))
    assert len(offer.slices[0].parts) == 3
    assert rows_in(read(source, offer)) == rows_in(read(source, offer)) == delivered(sample(30, 30))


def test_small_files_share_an_offer_and_large_ones_take_several(tmp_path: Path) -> None:
    for n in range(5):
        write(tmp_path / f"{n}.csv", "csv", sample(n * 10, 10))
    source = opened(tmp_path, "csv")
    assert [source.offer(Room(25, 2, 1)).rows for _ in range(2)] == [25, 25]
    assert source.ended


def test_parallelism_bounds_the_parts_of_an_offer(tmp_path: Path) -> None:
    for n in range(8):
        write(tmp_path / f"{n}.csv", "csv", sample(n * 10, 10))
    parts = {
        more: len(opened(tmp_path, "csv", more=more).offer(Room(100, 4, 1)).slices[0].parts)
        for more in ("", ", parallelism: 1", ", parallelism: 2", ", parallelism: 8")
    }
    assert parts == {"": 4, ", parallelism: 1": 1, ", parallelism: 2": 2, ", parallelism: 8": 8}


def test_a_continuous_source_reads_in_one_stream_unless_told_otherwise(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "csv", sample(0, 100))
    old(tmp_path / "a.csv")
    assert len(opened(tmp_path, "csv", mode="continuous").offer(Room(100, 4, 1)).slices[0].parts) == 1
    wide = opened(tmp_path, "csv", mode="continuous", more=", parallelism: 2")
    assert len(wide.offer(Room(100, 4, 1)).slices[0].parts) == 2


def old(path: Path, seconds: int = 1_700_000_000) -> None:
    os.utime(path, (seconds, seconds))


def test_parts_of_parquet_files_begin_at_row_groups_where_they_can(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    pq.write_table(pa.table({"id": range(40)}, schema), tmp_path / "a.parquet", row_group_size=10)
    parts = opened(tmp_path, "parquet").offer(Room(1000, 2, 10)).slices[0].parts
    assert [[(s[4], s[5]) for s in part] for part in parts] == [[(0, 20)], [(20, 40)]]


def test_columns_that_nobody_reads_stay_in_a_parquet_file_and_nobody_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"], "blob": [b"x", b"y"]}), tmp_path / "a.parquet")
    source = file_source(tmp_path, "parquet", read={"id", "_gs_op"})
    source.open({})
    assert rows_in(everything(source)) == [{"id": 1, "_gs_op": "i"}, {"id": 2, "_gs_op": "i"}]
    assert source.columns.names == ("id", "_gs_op")
    assert caplog.text == ""


def test_rows_that_are_wide_make_offers_of_fewer_rows(tmp_path: Path) -> None:
    line = json.dumps({"text": "x" * 1_000_000}) + "\n"
    (tmp_path / "a.json").write_text(line * 80)
    offer = opened(tmp_path, "json").offer(Room(20_000, 1, 1, bytes=32 << 20))
    assert 32 <= offer.rows < 80


def test_progress_is_told_in_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "csv", sample(0, 100))
    write(tmp_path / "b.csv", "csv", sample(0, 100))
    size = (tmp_path / "a.csv").stat().st_size
    source = opened(tmp_path, "csv")
    assert source.extent() is None
    source.offer(Room(50, 1, 1))
    half = source.extent()
    assert (half.total, half.unit) == (2 * size, "bytes")
    assert 0.4 * size < half.done < 0.6 * size
    everything(source)
    assert (source.extent().done, source.extent().total) == (2 * size, 2 * size)


# Odd files


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("id,name\n", []),
        ("id,name", []),
        ("", []),
        ("\n\n", []),
        ("id,name\n1,a", [(1, "a")]),
        ("id,name\r\n1,a\r\n2,b\r\n", [(1, "a"), (2, "b")]),
        ("\ufeffid,name\n1,a\n", [(1, "a")]),
        ('"id","name"\n1,"a\r\nb"\n', [(1, "a\r\nb")]),
        ('id,name\n1,"say ""hi"""\n2,""\n3,\n', [(1, 'say "hi"'), (2, ""), (3, None)]),
        ('id,name\n1,5" pipe\n2,"x"\n', [(1, '5" pipe'), (2, "x")]),
        ("id,name\n\n1,a\n\n\n2,b\n", [(1, "a"), (2, "b")]),
        ("name,id\na,1\n", [(1, "a")]),
        ("id,other,name\n1,x,a\n", [(1, "a")]),
        ("id\n1\n", [(1, None)]),
        ("id,name\n1,NULL\n2,NaN\n", [(1, "NULL"), (2, "NaN")]),
        ("id,name\n1,naïve 🚀\n", [(1, "naïve 🚀")]),
    ],
)
def test_csv_is_read_as_it_is_meant(tmp_path: Path, text: str, rows: list[tuple[int, str | None]]) -> None:
    write(tmp_path / "0.csv", "csv", [{"id": 0, "name": "z"}])
    (tmp_path / "1.csv").write_bytes(text.encode())
    expected = [{"id": 0, "name": "z"}, *({"id": id_, "name": name} for id_, name in rows)]
    for room in (PLENTY, Room(1, 1, 1)):
        assert rows_in(everything(opened(tmp_path, "csv"), room)) == delivered(expected)


FIELDS = ("", "a", 'a"b', 'a""', '"x"', '"x\ny"', '"a""b"', '""', '"a,b"', '"x"y', '"x"y"z', '"""\n"', "é")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(*[st.sampled_from(FIELDS)] * 2), max_size=12), st.sampled_from(["\n", "\r\n"]), st.integers(1, 9)
)
def test_records_end_where_arrow_ends_them(rows: list[tuple[str, str]], line_end: str, chunk: int) -> None:
    lines = [f"{','.join(row)}{line_end}".encode() for row in rows]
    data = b"".join(lines)
    expected = list(accumulate(len(line) for line in lines))
    whole, pieced, walked = records.CsvEnds(), records.CsvEnds(), records.CsvEnds()
    assert whole.feed(data).tolist() == expected
    assert walked._scan_fields(data).tolist() == expected if data else True
    found = []
    for start in range(0, len(data), chunk):
        found += [start + end for end in pieced.feed(data[start : start + chunk]).tolist()]
    assert found == expected
    if data:
        options = pacsv.ReadOptions(column_names=["a", "b"], block_size=len(data) + 1)
        assert pacsv.read_csv(pa.py_buffer(data), options).num_rows == len(rows)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ('{"id": 1, "name": "a"}', [1]),
        ('\ufeff{"id": 1}\r\n\r\n  {"id": 2}  \r\n', [1, 2]),
        ('{"id": 1, "more": {"deep": [1]}}\n{}\n', [1, None]),
    ],
)
def test_json_lines_are_read_as_they_are_meant(tmp_path: Path, text: str, ids: list[int | None]) -> None:
    write(tmp_path / "0.json", "json", [{"id": 0, "name": "z"}])
    (tmp_path / "1.json").write_bytes(text.encode())
    for room in (PLENTY, Room(1, 1, 1)):
        assert [row["id"] for row in rows_in(everything(opened(tmp_path, "json"), room))] == [0, *ids]


def test_parquet_files_without_rows_or_groups_are_done_at_once(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", "parquet", [])
    write(tmp_path / "b.parquet", "parquet", sample(0, 2))
    assert rows_of(tmp_path, "parquet") == delivered(sample(0, 2))


def test_files_without_rows_move_the_position_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "csv", [])
    (offer,) = [opened(tmp_path, "csv").offer(PLENTY)]
    assert (offer.rows, offer.slices[0].parts) == (0, ())
    assert opened(tmp_path, "csv", {KEY: offer.slices[0].end}).offer(PLENTY) is None


def test_directories_of_the_form_key_value_become_columns(tmp_path: Path) -> None:
    write(tmp_path / "dt=2024-01-01" / "city=S%C3%A3o Paulo" / "a b=c.csv", "csv", sample(0, 1))
    write(tmp_path / "dt=2024-01-02" / "city=x" / "ü.csv", "csv", sample(1, 1))
    assert rows_of(tmp_path, "csv") == [
        *delivered(sample(0, 1), dt="2024-01-01", city="São Paulo"),
        *delivered(sample(1, 1), dt="2024-01-02", city="x"),
    ]


def test_a_column_of_the_file_comes_before_a_directory_of_its_name(tmp_path: Path) -> None:
    for format_ in FORMATS:
        write(tmp_path / format_ / "id=7" / f"a.{format_}", format_, sample(1, 2))
        assert rows_of(tmp_path / format_, format_) == delivered(sample(1, 2))


def test_files_outside_the_layout_are_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "dt=1" / "a.csv", "csv", sample(0, 1))
    write(tmp_path / "b.csv", "csv", sample(1, 1))
    assert rows_of(tmp_path, "csv") == delivered(sample(0, 1), dt="1")
    assert "b.csv" in caplog.text and "outside the directory layout" in caplog.text


def test_the_operation_comes_from_the_file_where_it_has_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,_gs_op\n1,d\n2,u\n")
    (tmp_path / "b.csv").write_text("id\n3\n")
    assert [(row["id"], row["_gs_op"]) for row in rows_of(tmp_path, "csv")] == [(1, "d"), (2, "u"), (3, "i")]
    (tmp_path / "a.json").write_text('{"id": 1, "_gs_op": "d"}\n{"id": 2}\n')
    assert [(row["id"], row["_gs_op"]) for row in rows_of(tmp_path, "json")] == [(1, "d"), (2, "i")]


@pytest.mark.parametrize("line", ['{"id": 1, "more": {"_gs_op": null}}', '{"id": 1, "name": "_gs_op"}'])
def test_a_json_row_that_only_speaks_of_the_operation_has_none(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.json").write_text(f'{line}\n{{"id": 2, "_gs_op": "d"}}\n')
    assert [(row["id"], row["_gs_op"]) for row in rows_of(tmp_path, "json")] == [(1, "i"), (2, "d")]


def test_types_of_all_kinds_arrive_in_their_carriers(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ns": pa.array([1_234_567], pa.timestamp("ns")),
            "zoned": pa.array([5], pa.timestamp("ms", "UTC")),
            "u64": pa.array([2**64 - 1], pa.uint64()),
            "wide": pa.array(["1" * 50]).cast(pa.decimal256(50, 0)),
            "word": pa.array(["x"]).dictionary_encode(),
            "fixed": pa.array([b"abcd"], pa.binary(4)),
            "half": pa.array([1.5], pa.float16()),
            "time": pa.array([1_000_001], pa.time64("ns")),
            "list": pa.array([[1]], pa.large_list(pa.int8())),
            "pair": pa.array([{"at": 1_999}], pa.struct([("at", pa.timestamp("ns"))])),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    (row,) = rows_of(tmp_path, "parquet")
    assert row["ns"].microsecond == 1234 and row["zoned"].tzinfo is not None
    assert (int(row["u64"]), row["wide"], row["word"]) == (2**64 - 1, "1" * 50, "x")
    assert (row["fixed"], row["half"], row["time"].microsecond) == (b"abcd", 1.5, 1000)
    assert (row["list"], row["pair"]["at"].microsecond) == ([1], 1)


# Files with other columns


def test_columns_that_a_later_file_lacks_are_null_and_others_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"more": [True], "id": pa.array([2], pa.int32())}), tmp_path / "b.parquet")
    with caplog.at_level(logging.WARNING):
        rows = rows_in(everything(opened(tmp_path, "parquet"), Room(1, 1, 1)))
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, None)]
    assert caplog.text.count("lacks columns") == caplog.text.count("are not read") == 1


def test_a_type_that_can_never_fit_is_said_with_file_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("us"))}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"at": [True]}), tmp_path / "b.parquet")
    with pytest.raises(PermanentError, match=r"b\.parquet.*'at' of type bool") as caught:
        everything(opened(tmp_path, "parquet"))
    assert caught.value.code == "SCHEMA_UNUSABLE"


def test_a_column_that_may_not_be_null_may_not_be_missing(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    pq.write_table(pa.table({"id": [1]}, schema), tmp_path / "a.parquet")
    pq.write_table(pa.table({"name": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(PermanentError, match=r"b\.parquet.*has no column 'id'"):
        everything(opened(tmp_path, "parquet"))


@pytest.mark.parametrize("text", ["id,id\n1,2\n", "id,name\r1,a\r2,b\r"])
def test_a_header_that_cannot_be_used_is_said(tmp_path: Path, text: str) -> None:
    write(tmp_path / "a.csv", "csv", sample(0, 1))
    (tmp_path / "b.csv").write_bytes(text.encode())
    with pytest.raises(StreamlingError, match=r"b\.csv") as caught:
        everything(opened(tmp_path, "csv"))
    assert caught.value.code == "SCHEMA_UNUSABLE"


def test_a_record_without_end_is_said_before_memory_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST_RECORD", 1000)
    monkeypatch.setattr(records, "_CHUNK", 100)
    (tmp_path / "a.csv").write_text('id,name\n1,a\n2,"' + "x\n" * 1000)
    with pytest.raises(PermanentError, match=r"row 2 of .*a\.csv.* does not end"):
        everything(opened(tmp_path, "csv"))


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more", b"PAR1" * 9])
def test_a_later_file_that_is_no_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "a.parquet", "parquet", sample(0, 1))
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(PermanentError, match=r"b\.parquet' cannot be read as parquet"):
        everything(opened(tmp_path, "parquet"))


class Breaking:
    """A file whose reading breaks once."""

    def __init__(self, stream: Any, reads: int) -> None:
        self._stream, self._left = stream, reads

    def read(self, size: int) -> bytes:
        self._left -= 1
        if not self._left:
            raise OSError(errno.EIO, "the store is away")
        return self._stream.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@pytest.mark.parametrize("format_", ["csv", "json", "avro"])
@pytest.mark.parametrize("reads", range(1, 40, 3))
def test_a_store_that_is_away_for_a_moment_costs_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str, reads: int
) -> None:
    if format_ == "avro":
        schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
        with (tmp_path / "a.avro").open("wb") as file:
            fastavro.writer(file, schema, sample(0, 200), sync_interval=40)
    else:
        write(tmp_path / f"a.{format_}", format_, sample(0, 200))
    monkeypatch.setattr(records, "_CHUNK", 100)
    monkeypatch.setattr(avro_container, "_WINDOW", 100)
    source = opened(tmp_path, format_)
    breaks = iter([reads])

    def breaking(system: Any, file: Any) -> Any:
        stream = open_unchanged(system, file)
        return Breaking(stream, found) if (found := next(breaks, 0)) else stream

    monkeypatch.setattr(source_module, "open_unchanged", breaking)
    ids: list[int] = []
    while not source.ended:
        try:
            ids += [row["id"] for row in rows_in(read(source, source.offer(Room(50, 1, 1))))]
        except TransientError:
            continue
    assert ids == list(range(200))

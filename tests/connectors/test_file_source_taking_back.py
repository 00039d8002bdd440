"""What there is no room for goes back to the file source, which offers it again; batches are bounded in bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.connector import BadRow, Json, Offer, Reached, Room, Slice
from streamling.sources.file import avro_files, parquet_files, reader, records, rows
from streamling.sources.file.source import FileSource
from support.file_source_samples import PLENTY, Row, bad_in, everything, file_source, opened, read, rows_in

FORMATS = ("csv", "json", "parquet", "avro")
BOUNDED, WATERMARK = "events:bounded_progress", "events:watermark"
AVRO = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}
Items = list[pa.RecordBatch | BadRow]


def write(path: Path, format_: str, content: list[Row]) -> None:
    match format_:
        case "csv":
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, ["id", "name"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(content)
            path.write_bytes(text.getvalue().encode())
        case "json":
            path.write_text("".join(json.dumps(row) + "\n" for row in content))
        case "parquet":
            schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
            pq.write_table(pa.Table.from_pylist(content, schema), path, row_group_size=3)
        case "avro":
            with path.open("wb") as file:
                fastavro.writer(file, AVRO, content, sync_interval=20)


@pytest.fixture
def _fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers say after every few bytes what they have reached."""
    monkeypatch.setattr(reader, "_POSITION_BYTES", 0)
    monkeypatch.setattr(records, "_CHUNK", 16)
    monkeypatch.setattr(avro_files, "_CHUNK_BYTES", 1)
    for module in (rows, parquet_files):
        monkeypatch.setattr(module, "BATCH_BYTES", 16)


def taken(source: FileSource, slice_: Slice, stop: int) -> tuple[Items, Slice | None]:
    """Read as the engine does, part after part, up to a place that is reached; the rest goes back."""
    found: Items = []
    place: Json = None
    for item in (item for part in slice_.parts for item in source.reader().read(part)):
        if stop <= 0:
            break
        if isinstance(item, Reached):
            place, stop = item.place, stop - 1
            keep = len(found)
            continue
        found.append(item)
    kept = source.take_back(slice_, json.loads(json.dumps(place)))
    return (found[:keep] if place is not None else []), kept


def sample(files: list[int]) -> list[list[Row]]:
    return [[{"id": n * 100 + i, "name": f"t{i}" * (i % 3 + 1)} for i in range(count)] for n, count in enumerate(files)]


def ids(items: Items) -> list[int]:
    return [row["id"] for row in rows_in(items)]


def test_the_engine_knows_that_it_takes_back(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "csv", sample([1])[0])
    assert file_source(tmp_path, "csv").capabilities.takes_back


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    format_=st.sampled_from(FORMATS),
    mode=st.sampled_from(["bounded", "continuous"]),
    files=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    stops=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    restart=st.booleans(),
)
@pytest.mark.usefixtures("_fine")
def test_what_is_kept_and_what_is_offered_again_are_all_rows_once(
    tmp_path_factory: pytest.TempPathFactory,
    format_: str,
    mode: str,
    files: list[int],
    stops: list[int],
    sizes: list[int],
    restart: bool,
) -> None:
    directory = tmp_path_factory.mktemp("back")
    (directory / "like").mkdir()
    write(directory / "like" / f"z.{format_}", format_, [{"id": 1, "name": "t"}])
    contents = sample(files)
    for n, content in enumerate(contents):
        write(directory / f"{n}.{format_}", format_, content)
    source = file_source(directory / f"*.{format_}", format_, mode, like=directory / "like")
    # Files are as old as the test: a continuous source would wait until nobody writes to them.
    source._stable = lambda files: files  # type: ignore[method-assign]
    source.open({})
    key = BOUNDED if mode == "bounded" else WATERMARK
    found: list[int] = []
    position: Json = None
    turn = idle = 0
    while (offer := source.offer(Room(sizes[turn % len(sizes)], 2, 1))) is not None:
        (slice_,) = offer.slices
        assert slice_.start == position
        stop = stops[turn % len(stops)] if idle < 3 else 100
        items, kept = taken(source, slice_, stop)
        turn, idle = turn + 1, idle + 1 if kept is None else 0
        if kept is None:
            assert not items
            continue
        assert (kept.node, kept.key, kept.start) == (slice_.node, slice_.key, slice_.start)
        assert ids(read(source, Offer((kept,)))) == ids(items)  # as after a crash
        found += ids(items)
        position = json.loads(json.dumps(kept.end))
        if restart and turn % 2:
            source.open({key: position})
    assert found == [row["id"] for content in contents for row in content]
    # Whatever was taken back on the way, the last position is that of a source that was never asked to.
    plain = file_source(directory / f"*.{format_}", format_, mode, like=directory / "like")
    plain._stable = lambda files: files  # type: ignore[method-assign]
    plain.open({})
    end: Json = None
    while (offer := plain.offer(PLENTY)) is not None:
        end = offer.slices[0].end
    assert position == json.loads(json.dumps(end))


@pytest.mark.usefixtures("_fine")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_slice_over_several_files_ends_inside_of_one(tmp_path: Path, format_: str) -> None:
    for n, content in enumerate(sample([4, 9, 4])):
        write(tmp_path / f"{n}.{format_}", format_, content)
    source = opened(tmp_path, format_)
    (slice_,) = source.offer(PLENTY).slices
    places = [item.place for part in slice_.parts for item in source.reader().read(part) if isinstance(item, Reached)]
    inside = [n for n, (path, *_) in enumerate(places) if str(path).endswith(f"1.{format_}")][1]
    items, kept = taken(source, slice_, inside + 1)
    assert kept is not None
    path, at, row = places[inside]
    assert kept.end["reading"]["path"] == path
    assert (kept.end["reading"]["at"], kept.end["reading"]["row"]) == (at, row)
    assert kept.rows == len(ids(items)) == 4 + row - 1
    rest = ids(everything(opened(tmp_path, format_, {BOUNDED: json.loads(json.dumps(kept.end))})))
    assert ids(items) + rest == [*range(4), *range(100, 109), *range(200, 204)]
    assert ids(everything(source)) == rest


@pytest.mark.usefixtures("_fine")
@pytest.mark.parametrize("format_", FORMATS)
def test_where_nothing_was_read_all_is_offered_again(tmp_path: Path, format_: str) -> None:
    for n, content in enumerate(sample([4, 4])):
        write(tmp_path / f"{n}.{format_}", format_, content)
    source = opened(tmp_path, format_)
    (first,) = source.offer(Room(2, 1, 1)).slices
    (second,) = source.offer(PLENTY).slices
    before = source.extent()
    assert source.take_back(second, None) is None
    assert source.extent() != before
    assert not source.ended
    again = source.offer(PLENTY)
    assert again.slices == (second,)
    assert source.extent() == before
    assert ids(read(source, Offer((first,)))) + ids(read(source, again)) == [*range(4), *range(100, 104)]


def test_a_slice_that_was_read_to_its_end_stays_as_it_is(tmp_path: Path) -> None:
    for n, content in enumerate(sample([4, 0])):
        write(tmp_path / f"{n}.csv", "csv", content)
    source = file_source(tmp_path, "csv", like=tmp_path / "0.csv")
    source.open({})
    (slice_,) = source.offer(PLENTY).slices
    *_, last = (item for part in slice_.parts for item in source.reader().read(part))
    assert source.take_back(slice_, last.place) is slice_
    assert source.ended


@pytest.mark.usefixtures("_fine")
@pytest.mark.parametrize("stop", [1, 2, 3, 5])
def test_bad_rows_keep_their_numbers(tmp_path: Path, stop: int) -> None:
    good = [{"id": i, "name": f"t{i}"} for i in range(8)]
    write(tmp_path / "a.csv", "csv", good)
    source = opened(tmp_path, "csv")
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "a.csv").write_text(text.replace("3,", "x3,").replace("6,", "\nx6,"))
    source.open({})
    (slice_,) = source.offer(PLENTY).slices
    items, kept = taken(source, slice_, stop)
    assert kept is not None
    items += everything(source)
    assert ids(items) == [0, 1, 2, 4, 5, 7]
    assert [bad.source["row"] for bad in bad_in(items)] == [4, 8]


# The size of batches


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A megabyte on disk, four gigabytes in memory."""
    directory = tmp_path_factory.mktemp("wide")
    docs = pa.array([chr(97 + n) * 20_000 for n in range(10)])
    numbers = pa.array([n % 10 for n in range(200_000)], pa.int32())
    table = pa.table({"id": range(200_000), "doc": pa.DictionaryArray.from_arrays(numbers, docs)})
    pq.write_table(table, directory / "typed.parquet")
    pq.write_table(table, directory / "plain.parquet", store_schema=False)
    assert (directory / "plain.parquet").stat().st_size < 2 << 20
    return directory


def batches_of(path: Path, format_: str, most: int) -> Iterator[pa.RecordBatch]:
    source = opened(path, format_)
    (slice_,) = source.offer(Room(most, 1, 1)).slices
    return (item for part in slice_.parts for item in source.reader().read(part) if isinstance(item, pa.RecordBatch))


@pytest.mark.parametrize("name", ["plain", "typed"])
def test_rows_of_a_dictionary_come_in_batches_of_bounded_size(wide: Path, name: str) -> None:
    before = pa.total_allocated_bytes()
    peak = count = 0
    for batch in batches_of(wide / f"{name}.parquet", "parquet", 20_000):
        assert batch.nbytes <= rows.BATCH_BYTES
        assert batch.column("id")[0].as_py() == count
        count += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert count == 20_000
    assert peak < 64 << 20


def test_rows_that_grow_long_in_the_middle_come_in_smaller_batches(tmp_path: Path) -> None:
    docs = pa.array(["x", "y" * 100_000])
    numbers = pa.array([int(n > 30_000) for n in range(31_000)], pa.int32())
    table = pa.table({"id": range(31_000), "doc": pa.DictionaryArray.from_arrays(numbers, docs)})
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False)
    found = list(batches_of(tmp_path / "a.parquet", "parquet", 31_000))
    assert max(batch.nbytes for batch in found) <= rows.BATCH_BYTES
    assert found[0].num_rows > 20_000
    assert [i for batch in found for i in batch.column("id").to_pylist()] == list(range(31_000))


@pytest.mark.parametrize("format_", FORMATS)
def test_short_rows_come_in_few_batches(tmp_path: Path, format_: str) -> None:
    content = [{"id": n, "name": "abc"} for n in range(60_000)]
    write(tmp_path / f"a.{format_}", format_, content[:1])
    if format_ == "parquet":
        pq.write_table(pa.Table.from_pylist(content), tmp_path / "a.parquet")
    elif format_ == "avro":
        with (tmp_path / "a.avro").open("wb") as file:
            fastavro.writer(file, AVRO, content)
    else:
        write(tmp_path / f"a.{format_}", format_, content)
    found = list(batches_of(tmp_path / f"a.{format_}", format_, 60_000))
    assert len(found) <= 3
    assert sum(batch.num_rows for batch in found) == 60_000


def test_many_columns_of_short_lines_come_in_batches_of_bounded_size(tmp_path: Path) -> None:
    names = ", ".join(f'"c{n}": 1' for n in range(200))
    (tmp_path / "a.json").write_text("{" + names + "}\n" + '{"c0": 2}\n' * 100_000)
    found = list(batches_of(tmp_path / "a.json", "json", 100_001))
    assert max(batch.nbytes for batch in found) <= rows.BATCH_BYTES
    assert sum(batch.num_rows for batch in found) == 100_001


@pytest.mark.parametrize("codec", ["deflate", "null"])
def test_packed_blocks_come_in_batches_of_bounded_size(tmp_path: Path, codec: str) -> None:
    content = [{"id": n, "name": "x" * 50_000} for n in range(500)]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, AVRO, content, codec=codec, sync_interval=500_000)
    found = list(batches_of(tmp_path / "a.avro", "avro", 500))
    assert max(batch.nbytes for batch in found) <= rows.BATCH_BYTES
    assert [i for batch in found for i in batch.column("id").to_pylist()] == list(range(500))


def test_a_row_that_is_larger_than_a_batch_comes_alone(tmp_path: Path) -> None:
    content = [{"id": n, "name": "x" * size} for n, size in enumerate([10, 20 << 20, 10])]
    write(tmp_path / "a.json", "json", content)
    assert [batch.num_rows for batch in batches_of(tmp_path / "a.json", "json", 3)] == [1, 1, 1]

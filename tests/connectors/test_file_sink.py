"""The file sink: each row in exactly one file that appears whole, whoever dies when."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamling.connector import Applied, Epoch, Report, SinkContext, Task
from streamling.errors import Fenced, PermanentError, TransientError
from streamling.plan.types import INT64, OPERATION_FIELD, DataType, Field, Schema, list_of, map_of
from streamling.sinks.file import FileSink
from support.connector_samples import epoch, opened, read_rows, rows, sink, sink_node, written


class Died(Exception):
    """The process ended here."""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "made" / "when missing"


def file_sink(target: Path, format_: str = "json", name: str = "out") -> FileSink:
    return opened(f"type: file, path: '{target}', format: {format_}", name=name)


def visible(target: Path) -> list[str]:
    """The names that somebody finds who reads the directory."""
    lines = [line for path in sorted(target.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line)["name"] for line in lines]


def delivered(to: FileSink, epoch_: Epoch, *names: str) -> int:
    return to.commit(epoch_, [written(to, epoch_, *names)])


def dying(to: FileSink) -> FileSink:
    """The sink of a process that dies after the commit has been logged, before its files are moved."""

    def die(entries: object) -> None:
        raise Died

    to._move_files = die  # type: ignore[method-assign]
    return to


# One owner


def test_rows_are_invisible_until_their_epoch_is_committed(target: Path) -> None:
    out = file_sink(target)
    first = epoch(1, 0, 2)
    report = written(out, first, "a", "b")
    assert visible(target) == []
    assert [p.name for p in target.iterdir()] == ["_streamling"]
    assert out.commit(first, [report]) == 2
    assert visible(target) == ["a", "b"]


def test_epochs_follow_each_other(target: Path) -> None:
    out = file_sink(target)
    assert [delivered(out, epoch(n, n - 1, n), f"row{n}") for n in (1, 2, 3)] == [1, 1, 1]
    assert visible(target) == ["row1", "row2", "row3"]


def test_committing_twice_is_committing_once(target: Path) -> None:
    out, first = file_sink(target), epoch(1, 0, 1)
    assert delivered(out, first, "a") == 1
    assert delivered(out, first, "a") == 1
    assert visible(target) == ["a"]


def test_slices_that_another_epoch_has_brought_are_not_written_again(target: Path) -> None:
    out = file_sink(target)
    delivered(out, epoch(1, 0, 1, id_="aa" * 16), "a")
    assert delivered(out, epoch(1, 0, 1, id_="bb" * 16), "a") == 1
    assert visible(target) == ["a"]


def test_a_passing_error_after_the_commit_is_logged_loses_nothing(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, first = file_sink(target), epoch(1, 0, 1)
    report = written(out, first, "a")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", _full_disk)
        with pytest.raises(TransientError):
            out.commit(first, [report])
    out.abort(first)  # what the engine does before it tries again
    again = written(out, first, "a", task=Task(0, 1))
    assert out.commit(first, [again]) == 1
    assert visible(target) == ["a"]


def _full_disk(self: Path, to: Path) -> Path:
    raise OSError(errno.ENOSPC, "No space left on device", str(to))


def test_a_restarted_owner_knows_what_it_has(target: Path) -> None:
    delivered(file_sink(target), epoch(1, 0, 3), "a")
    again = file_sink(target)
    assert again.applied(epoch(1, 0, 3).slices) is Applied.YES
    assert again.applied(epoch(2, 3, 9).slices) is Applied.NO
    assert again.applied(epoch(2, 2, 9).slices) is Applied.UNKNOWN
    assert again.applied(epoch(1, 0, 1, key="new key").slices) is Applied.NO


def test_a_new_generation_starts_afresh_beside_the_old_files_and_says_so(
    target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delivered(file_sink(target), epoch(1, 0, 1, id_="a" * 32), "a")
    fresh = sink(f"type: file, path: '{target}', format: json")
    fresh.open(SinkContext("out", "app", "another generation", Schema((OPERATION_FIELD,))))
    assert delivered(fresh, epoch(1, 0, 1, id_="b" * 32), "b") == 1
    assert sorted(visible(target)) == ["a", "b"]
    assert "written with another state" in caplog.text


def test_several_tasks_write_a_file_each_and_only_acked_ones_count(target: Path) -> None:
    out, first = file_sink(target), epoch(1, 0, 4)
    written(out, first, "lost", task=Task(0, 0))
    reports = [written(out, first, "a", "b", task=Task(0, 1)), written(out, first, "c", task=Task(1, 2))]
    assert out.commit(first, reports) == 3
    assert visible(target) == ["a", "b", "c"]
    assert len(list(target.glob("*.jsonl"))) == 2


def test_an_epoch_without_rows_moves_the_position_and_makes_no_file(target: Path) -> None:
    out, first = file_sink(target), epoch(1, 0, 4)
    assert out.writer().write(first, Task(0, 0), iter([rows([])])) == Report(0)
    assert out.commit(first, [Report(0)]) == 0
    assert list(target.glob("*.jsonl")) == []
    assert out.applied(first.slices) is Applied.YES


def test_an_aborted_epoch_leaves_nothing(target: Path) -> None:
    out, first = file_sink(target), epoch(1, 0, 1)
    written(out, first, "a")
    out.abort(first)
    assert visible(target) == []
    assert list((target / "_streamling").rglob("*.jsonl")) == []
    assert delivered(out, epoch(1, 0, 1), "b") == 1
    assert visible(target) == ["b"]


def test_log_and_staging_stay_bounded(target: Path) -> None:
    out = file_sink(target)
    for n in range(1, 31):
        delivered(out, epoch(n, n - 1, n), str(n))
    hidden = [p for p in (target / "_streamling").rglob("*") if p.is_file()]
    assert len(hidden) <= 10
    assert visible(target) == [str(n) for n in range(1, 31)]
    assert file_sink(target).applied(epoch(30, 29, 30).slices) is Applied.YES


# Crashes


def test_a_restart_moves_the_files_of_a_logged_epoch_into_place(target: Path) -> None:
    out, first = dying(file_sink(target)), epoch(1, 0, 1)
    with pytest.raises(Died):
        delivered(out, first, "a")
    assert visible(target) == []
    again = file_sink(target)
    assert visible(target) == ["a"]
    assert again.applied(first.slices) is Applied.YES


def test_the_next_commit_of_another_owner_moves_them_too(target: Path) -> None:
    other = file_sink(target)
    with pytest.raises(Died):
        delivered(dying(file_sink(target)), epoch(1, 0, 1), "a")
    assert delivered(other, epoch(2, 1, 2), "b") == 1
    assert visible(target) == ["a", "b"]


def test_an_owner_that_repeats_a_logged_epoch_moves_its_files(target: Path) -> None:
    other, first = file_sink(target), epoch(1, 0, 1)
    with pytest.raises(Died):
        delivered(dying(file_sink(target)), first, "a")
    assert delivered(other, epoch(1, 0, 1, id_="again" * 6), "a") == 1
    assert visible(target) == ["a"]


def test_a_crash_before_the_log_leaves_nothing_to_be_seen(target: Path) -> None:
    written(file_sink(target), epoch(1, 0, 1), "a")
    again = file_sink(target)
    assert again.applied(epoch(1, 0, 1).slices) is Applied.NO
    assert visible(target) == []


def test_what_a_dead_process_left_unlogged_is_removed_by_the_next_one(target: Path) -> None:
    dead = file_sink(target)
    written(dead, epoch(1, 0, 1), "a")
    (Path(dead.writer().staging) / ".draft-of-a-log-entry").write_text("{")
    dead.close()  # a process that ends releases its lock
    file_sink(target)
    hidden = [path.name for path in (target / "_streamling").rglob("*") if path.is_file()]
    assert hidden == [".lock"]


def test_no_clock_makes_a_process_dead(target: Path) -> None:
    slow, first = file_sink(target), epoch(1, 0, 1)
    report = written(slow, first, "a")
    for path in (target / "_streamling").rglob("*"):
        os.utime(path, (0, 0))
    file_sink(target)
    assert slow.commit(first, [report]) == 1
    assert visible(target) == ["a"]


def test_a_retry_leaves_the_file_of_a_logged_epoch_as_it_is(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, first = file_sink(target), epoch(1, 0, 4)
    report = written(out, first, "a", "b", "c", "d")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", _full_disk)
        with pytest.raises(TransientError):
            out.commit(first, [report])
    out.abort(first)

    def killed() -> Iterator[pa.RecordBatch]:
        yield rows(["a", "b"])
        raise Died

    with pytest.raises(Died):
        out.writer().write(first, Task(0, 0), killed())
    again = file_sink(target)
    assert again.applied(first.slices) is Applied.YES
    assert visible(target) == ["a", "b", "c", "d"]


def test_a_commit_without_its_staged_files_is_not_logged(target: Path) -> None:
    out, first = file_sink(target), epoch(1, 0, 1)
    report = written(out, first, "a")
    shutil.rmtree(out.writer().staging)
    with pytest.raises(TransientError, match="staged files are gone") as caught:
        out.commit(first, [report])
    assert not isinstance(caught.value, Fenced)
    out.abort(first)
    assert delivered(out, first, "a") == 1
    assert visible(target) == ["a"]


def test_a_staging_root_that_is_not_there_ends_the_run(target: Path) -> None:
    """On a cluster whose hosts do not share the directory, for instance."""
    out = file_sink(target)
    shutil.rmtree(target / "_streamling")
    with pytest.raises(PermanentError, match="there is no directory") as caught:
        written(out, epoch(1, 0, 1), "a")
    assert "the same storage for all hosts" in str(caught.value.hint)


# Two owners


def test_of_two_owners_the_later_one_is_fenced(target: Path) -> None:
    one, two = file_sink(target), file_sink(target)
    report = written(two, epoch(1, 0, 9, id_="slow" * 8), "x")
    delivered(one, epoch(1, 0, 5), "a")
    with pytest.raises(Fenced) as caught:
        two.commit(epoch(1, 0, 9, id_="slow" * 8), [report])
    assert (caught.value.code, caught.value.node) == ("STATE_MOVED", "out")
    assert visible(target) == ["a"]


def test_an_abandoned_epoch_cannot_be_committed_any_more(target: Path) -> None:
    slow, next_ = file_sink(target), file_sink(target)
    theirs = epoch(1, 0, 9)
    report = written(slow, theirs, "x")
    assert next_.abandon(theirs) is Applied.NO
    assert next_.abandon(theirs) is Applied.NO
    with pytest.raises(Fenced):
        slow.commit(theirs, [report])
    assert delivered(next_, epoch(1, 0, 9, id_="again" * 6), "a") == 1
    assert visible(target) == ["a"]


@pytest.mark.parametrize("late", [False, True])
def test_a_writer_whose_epoch_is_abandoned_meanwhile_is_fenced(target: Path, late: bool) -> None:
    slow, next_ = file_sink(target), file_sink(target)
    theirs = epoch(1, 0, 9)

    def suspended() -> Iterator[pa.RecordBatch]:
        yield rows(["x"])
        next_.abandon(theirs)
        if late:
            delivered(next_, epoch(1, 0, 5, id_="again" * 6), "a")
        yield rows(["y"])

    with pytest.raises(Fenced) as caught:
        slow.writer().write(theirs, Task(0, 0), suspended())
    assert (caught.value.code, caught.value.node) == ("STATE_MOVED", "out")


def test_an_epoch_that_was_committed_in_the_meantime_cannot_be_abandoned(target: Path) -> None:
    slow, next_ = file_sink(target), file_sink(target)
    delivered(slow, epoch(1, 0, 9), "x")
    assert next_.abandon(epoch(1, 0, 9)) is Applied.YES
    assert next_.abandon(epoch(1, 0, 5, id_="other")) is Applied.UNKNOWN
    assert visible(target) == ["x"]


def test_an_abandoned_epoch_stays_so_while_other_keys_move(target: Path) -> None:
    slow, next_ = file_sink(target), file_sink(target)
    theirs = epoch(1, 0, 9, key="left")
    report = written(slow, theirs, "x")
    next_.abandon(theirs)
    delivered(next_, epoch(2, 0, 1, key="right"), "a")
    with pytest.raises(Fenced):
        slow.commit(theirs, [report])


def test_owners_of_different_keys_do_not_disturb_each_other(target: Path) -> None:
    one, two = file_sink(target), file_sink(target)
    for n in range(1, 4):
        delivered(one, epoch(n, n - 1, n, key="left", id_=f"left{n}" * 6), f"left{n}")
        delivered(two, epoch(n, n - 1, n, key="right", id_=f"right{n}" * 6), f"right{n}")
    assert sorted(visible(target)) == ["left1", "left2", "left3", "right1", "right2", "right3"]


def test_an_owner_suspended_until_its_entry_has_come_and_gone_is_fenced(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, other = file_sink(target), file_sink(target)
    mine = epoch(1, 0, 9, id_="late" * 8)
    report = written(late, mine, "x")
    append = late._directory.log.append

    def suspended(entry: Any) -> bool:
        """It has decided to write entry 1; meanwhile the log moves on and forgets its first entries."""
        monkeypatch.undo()
        for n in range(1, 21):
            delivered(other, epoch(n, n - 1, n), str(n))
        return append(entry)

    monkeypatch.setattr(late._directory.log, "append", suspended)
    with pytest.raises(Fenced):
        late.commit(mine, [report])
    assert visible(target) == [str(n) for n in range(1, 21)]
    assert file_sink(target).applied(epoch(20, 19, 20).slices) is Applied.YES


def test_sinks_with_similar_names_and_one_directory_keep_their_own_books(target: Path) -> None:
    names = ["out", "_out", "o ut", "o_ut", "Oüt/../x", "..."]
    first = epoch(1, 0, 1)
    assert [delivered(file_sink(target, name=name), first, name) for name in names] == [1] * len(names)
    assert sorted(visible(target)) == sorted(names)


# Formats

COLUMNS = {
    "id": pa.array([1, None], pa.int64()),
    "name": pa.array(['a,"b"\nc', "ü"], pa.string()),
    "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
    "day": pa.array([date(2024, 2, 29), None], pa.date32()),
    "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    "_gs_op": pa.array(["i", "d"], pa.string()),
}


def read_back(target: Path, format_: str, columns: dict[str, pa.Array]) -> pa.Table:
    """What is in the one file that a batch of these columns becomes."""
    out = file_sink(target, format_)
    first = epoch(1, 0, 2)
    out.commit(first, [out.writer().write(first, Task(0, 0), [pa.RecordBatch.from_pydict(columns)])])
    (file,) = (path for path in target.iterdir() if path.is_file())
    return read_rows(file, format_)


def test_parquet_keeps_values_and_types(target: Path) -> None:
    nested = COLUMNS | {"tags": pa.array([["x"], []], pa.list_(pa.string()))}
    assert read_back(target, "parquet", nested).equals(pa.Table.from_pydict(nested))


def test_csv_keeps_values_behind_a_header(target: Path) -> None:
    table = read_back(target, "csv", COLUMNS)
    assert table.column_names == list(COLUMNS)
    assert table.column("id").to_pylist() == [1, None]
    assert table.column("price").cast(pa.string()).to_pylist() == ["1.5", None]
    assert table.column("day").to_pylist() == [date(2024, 2, 29), None]
    assert table.column("_gs_op").to_pylist() == ["i", "d"]


def test_csv_quotes_what_needs_it(target: Path) -> None:
    plain = {"name": pa.array(['a,"b"', "", None], pa.string()), "_gs_op": pa.array(["i"] * 3)}
    read_back(target, "csv", plain)
    (file,) = target.glob("*.csv")
    assert file.read_text() == '"name","_gs_op"\n"a,""b""","i"\n"","i"\n,"i"\n'


def test_json_is_one_object_per_line(target: Path) -> None:
    table = read_back(target, "json", COLUMNS)
    assert table.column("name").to_pylist() == COLUMNS["name"].to_pylist()
    (file,) = target.glob("*.jsonl")
    assert file.read_text().splitlines()[1] == '{"id":null,"name":"ü","price":null,"day":null,"at":null,"_gs_op":"d"}'


TIMES = {
    "at": pa.array([0, 2**63 - 1, -(2**63)], pa.timestamp("us", "UTC")),
    "local": pa.array([0, 2**63 - 1, None], pa.timestamp("us")),
    "day": pa.array([0, 2**31 - 1, -(2**31)], pa.date32()),
    "_gs_op": pa.array(["i"] * 3),
}


def test_json_writes_every_time(target: Path) -> None:
    read_back(target, "json", TIMES)
    (file,) = target.glob("*.jsonl")
    assert [list(json.loads(line).values()) for line in file.read_text().splitlines()[1:]] == [
        ["294247-01-10T04:00:54.775807Z", "294247-01-10T04:00:54.775807", "5881580-07-11", "i"],
        ["-290308-12-21T19:59:05.224192Z", None, "-5877641-06-23", "i"],
    ]


def test_csv_writes_every_time(target: Path) -> None:
    read_back(target, "csv", TIMES)
    (file,) = target.glob("*.csv")
    assert file.read_text().splitlines() == [
        '"at","local","day","_gs_op"',
        '"1970-01-01 00:00:00.000000Z","1970-01-01 00:00:00.000000","1970-01-01","i"',
        '"294247-01-10 04:00:54.775807Z","294247-01-10 04:00:54.775807","5881580-07-11","i"',
        '"-290308-12-21 19:59:05.224192Z",,"-5877641-06-23","i"',
    ]


FLOATS = pa.struct([("x", pa.list_(pa.float32()))])
NON_FINITE = {
    "NaN": (pa.array([1.0, None, float("nan")]), "nan"),
    "infinity": (pa.array([1.0, None, float("-inf")], pa.float32()), "-inf"),
    "nested": (pa.array([{"x": [1.0]}, None, {"x": [2.0, None, float("inf")]}], FLOATS), "{'x': [2.0, None, inf]}"),
    "in a map": (pa.array([[("k", 1.0)], None, [("k", float("nan"))]], pa.map_(pa.string(), pa.float64())), "nan"),
}


@pytest.mark.parametrize("case", NON_FINITE)
def test_json_refuses_numbers_that_it_does_not_have(target: Path, case: str) -> None:
    column, value = NON_FINITE[case]
    columns = {"id": pa.array([1, 2, 3]), "price": column, "_gs_op": pa.array(["i"] * 3)}
    out = file_sink(target)
    with pytest.raises(PermanentError, match="column 'price' is") as caught:
        out.writer().write(epoch(1, 0, 3), Task(0, 0), [pa.RecordBatch.from_pydict(columns).slice(1)])
    assert (caught.value.code, caught.value.node) == ("DATA_ERROR", "out")
    assert value in caught.value.message
    assert '{"id":3,' in caught.value.message
    written(out, epoch(1, 0, 3), "finite")


def test_csv_and_parquet_keep_numbers_that_are_not_finite(target: Path) -> None:
    columns = {"x": pa.array([float("nan"), float("inf"), -0.0]), "_gs_op": pa.array(["i"] * 3)}
    assert str(read_back(target / "parquet", "parquet", columns).column("x").to_pylist()) == "[nan, inf, -0.0]"
    read_back(target / "csv", "csv", columns)
    (file,) = (target / "csv").glob("*.csv")
    assert [line.split(",")[0] for line in file.read_text().splitlines()[1:]] == ["nan", "inf", "-0"]


def test_several_batches_make_one_file(target: Path) -> None:
    for format_ in ("parquet", "csv", "json"):
        out, first = file_sink(target / format_, format_), epoch(1, 0, 3)
        batches = iter([rows([]), rows(["a", "b"]), rows([]), rows(["c"])])
        assert out.commit(first, [out.writer().write(first, Task(0, 0), batches)]) == 3
        (file,) = (path for path in (target / format_).iterdir() if path.is_file())
        assert read_rows(file, format_).column("name").to_pylist() == ["a", "b", "c"]


NESTED = (list_of(INT64), map_of(INT64), DataType("struct", fields=(Field("a", INT64),)))


@pytest.mark.parametrize("type_", NESTED, ids=str)
def test_csv_refuses_nested_columns(target: Path, type_: DataType) -> None:
    schema = Schema((Field("id", INT64), Field("deep", type_), OPERATION_FIELD))
    csv, json_ = (sink_node(f"type: file, path: '{target}', format: {format_}") for format_ in ("csv", "json"))
    (finding,) = csv.options.check_columns(csv, schema, ())
    assert (finding.code, finding.node) == ("INVALID_VALUE", "out")
    assert "deep" in finding.message
    assert finding.where is not None
    assert list(json_.options.check_columns(json_, schema, ())) == []


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_path_that_cannot_be_a_directory_is_permanent(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PermanentError) as caught:
        file_sink(tmp_path / path)
    assert (caught.value.code, caught.value.node) == ("SINK_FAILED", "out")
    assert str(tmp_path / path) in caught.value.message
    assert caught.value.where is not None


def test_a_disk_that_fails_is_an_error_of_ours(target: Path) -> None:
    out, first = file_sink(target), epoch(1, 0, 1)
    staging = Path(out.writer().staging)
    shutil.rmtree(staging)
    staging.write_text("no directory any more")
    with pytest.raises(PermanentError, match="out"):
        written(out, first, "a")


def test_csv_writes_binary_as_hex(target: Path) -> None:
    columns = {"raw": pa.array([b"\xff\x00"]), "_gs_op": pa.array(["i"])}
    assert read_back(target, "csv", columns).column("raw").to_pylist() == ["ff00"]

"""print, memory and blackhole: sinks for looking, testing and measuring."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from streamling.connector import Applied, Guarantee, Placement, Report, Sink, Task
from streamling.errors import PermanentError, TransientError
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import PrintSinkSettings
from support.connector_samples import epoch, opened, rows

FIRST, SECOND = epoch(1, 0, 2), epoch(2, 2, 4)
TASK = Task(0, 0)


def delivered(to: Sink, epoch_, *batches) -> int:
    return to.commit(epoch_, [to.writer().write(epoch_, TASK, batches)])


# print


def test_a_printed_line_has_the_number_the_operation_and_the_row(capsys: pytest.CaptureFixture[str]) -> None:
    out = opened("type: print")
    assert delivered(out, FIRST, rows(["a"], "i"), rows(['b"'], "u"), rows([None], "d")) == 3
    assert capsys.readouterr().out.splitlines() == [
        '1 -> (sample_every=1) [Insert] {"name":"a","_gs_op":"i"}',
        '2 -> (sample_every=1) [Update] {"name":"b\\"","_gs_op":"u"}',
        '3 -> (sample_every=1) [Delete] {"name":null,"_gs_op":"d"}',
    ]


def test_numbers_go_on_from_epoch_to_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    out = opened("type: print")
    delivered(out, FIRST, rows(["a", "b"]))
    delivered(out, SECOND, rows(["c"]))
    assert [line.split(" ->")[0] for line in capsys.readouterr().out.splitlines()] == ["1", "2", "3"]


def test_of_a_sample_every_nth_row_over_all_epochs_is_printed_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    out = opened("type: print, sample_every: 3")
    assert delivered(out, FIRST, rows(["a", "b"]), rows(["c", "d"])) == 1
    assert delivered(out, SECOND, rows(["e", "f"])) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" {")[0] for line in lines] == [
        "3 -> (sample_every=3) [Insert]",
        "6 -> (sample_every=3) [Insert]",
    ]


def test_the_sample_of_the_settings_holds_where_the_node_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(print_sink=PrintSinkSettings(sample_every=2))
    assert delivered(opened("type: print", settings=settings), FIRST, rows(["a", "b"])) == 1
    assert delivered(opened("type: print, sample_every: 1", settings=settings), FIRST, rows(["a", "b"])) == 2


@pytest.mark.parametrize("operation", ["x", "", None, "I"])
def test_an_odd_operation_is_an_error_with_node_value_and_row(
    operation: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PermanentError) as caught:
        opened("type: print", name="Shown").writer().write(FIRST, TASK, [rows(["a"], operation)])
    assert (caught.value.code, caught.value.node) == ("DATA_ERROR", "Shown")
    assert f"_gs_op is {operation!r}" in caught.value.message
    assert '"name":"a"' in caught.value.message
    assert capsys.readouterr().out == ""


def test_standard_output_that_nobody_reads_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:  # noqa: PTH123 - a file by its number
        monkeypatch.setattr("sys.stdout", stream)
        with pytest.raises(PermanentError, match="print sink 'out': standard output is closed") as caught:
            opened("type: print").writer().write(FIRST, TASK, [rows(["a"])])
        assert caught.value.code == "SINK_FAILED"
        stream.flush()  # nothing is left that would fail once more


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_standard_output_on_a_full_disk_may_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, later = opened("type: print").writer(), sys.stdout
    with Path("/dev/full").open("w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        with pytest.raises(TransientError, match=r"print sink 'out': .*No space left on device"):
            out.write(FIRST, TASK, [rows(["a"])])
        stream.flush()
        monkeypatch.setattr("sys.stdout", later)
    out.write(FIRST, TASK, [rows(["a"])])
    assert capsys.readouterr().out.startswith("1 -> ")


def test_print_says_that_it_cannot_tell() -> None:
    out = opened("type: print")
    assert out.applied(FIRST.slices) is Applied.UNKNOWN
    assert out.capabilities.guarantee is Guarantee.AT_LEAST_ONCE
    assert out.capabilities.placement is Placement.DRIVER


def test_a_sample_does_not_hide_how_many_rows_arrived(capsys: pytest.CaptureFixture[str]) -> None:
    report: Report = opened("type: print, sample_every: 10").writer().write(FIRST, TASK, [rows(["a"] * 10)])
    assert report.rows == 10


# memory


def test_memory_gives_committed_rows_in_order() -> None:
    out = opened("type: memory", name="Kept")
    report = out.writer().write(FIRST, TASK, [rows(["a"]), rows(["b"], "d")])
    assert out.result() == []
    assert out.commit(FIRST, [report]) == 2
    delivered(out, SECOND, rows(["c"]))
    assert out.result() == [
        {"name": "a", "_gs_op": "i"},
        {"name": "b", "_gs_op": "d"},
        {"name": "c", "_gs_op": "i"},
    ]


def test_memory_can_leave_the_operation_out() -> None:
    out = opened("type: memory, exclude_gs_op: true")
    delivered(out, FIRST, rows(["a"]))
    assert out.result() == [{"name": "a"}]


def test_memory_forgets_an_aborted_epoch() -> None:
    out = opened("type: memory")
    out.writer().write(FIRST, TASK, [rows(["a"])])
    out.abort(FIRST)
    delivered(out, SECOND, rows(["b"]))
    assert [row["name"] for row in out.result() or ()] == ["b"]


def test_an_epoch_written_again_before_its_commit_is_kept_once() -> None:
    out = opened("type: memory")
    out.writer().write(FIRST, TASK, [rows(["a"])])
    delivered(out, FIRST, rows(["a"]))
    assert [row["name"] for row in out.result() or ()] == ["a"]


def test_a_new_run_starts_with_an_empty_memory() -> None:
    delivered(opened("type: memory"), FIRST, rows(["a"]))
    assert opened("type: memory").result() == []


def test_other_sinks_have_no_rows_to_give() -> None:
    assert opened("type: blackhole").result() is None


# blackhole


def test_blackhole_counts() -> None:
    out = opened("type: blackhole")
    reports = [out.writer().write(FIRST, Task(part, 0), [rows(["a"]), rows([None, "c"])]) for part in range(2)]
    assert out.commit(FIRST, reports) == 6


def test_blackhole_writes_nowhere_and_claims_nothing() -> None:
    out = opened("type: blackhole")
    assert out.capabilities.discards
    assert out.applied(FIRST.slices) is Applied.NO

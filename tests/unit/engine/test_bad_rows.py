"""A bad row ends the run, is skipped, or becomes a dead letter, as its node says; none is lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamling.connector import BadRow, Epoch, Json, Report, Slice, Task
from streamling.engine.protocol import bad_rows as module
from streamling.engine.protocol.bad_rows import BadRows, Rejects, rejection
from streamling.engine.protocol.progress import Progress
from streamling.errors import PermanentError, UserError
from streamling.letters.letter import RejectStage
from streamling.letters.store import letter_stores
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics
from support.doubles import Crash, LedgerSink, NumberSource, Rig, plan_of
from support.log_lines import log_lines

EPOCH = Epoch("e1", 7, "app", "g", 1_700_000_000_123_456, 0, (Slice("numbers", "k", None, 4, (), 4),))


def bad(row: int, **fields: Any) -> BadRow:
    return BadRow("decode_error", "no number", {"file": "a.csv", "row": row}, **fields)


def dealing(more: str, metrics: Metrics | None = None) -> tuple[BadRows, Progress]:
    plan, progress = plan_of(["numbers"], ["out"], more=more), Progress()
    progress.set_plan(plan, metrics)
    stores = letter_stores(plan, Settings())
    for store in stores.values():
        store.open()
    return BadRows(plan, "app", progress, stores), progress


def kept(path: Path) -> BadRows:
    return dealing(f", on_error: dead_letter, dead_letter: {{type: file, path: '{path}'}}")[0]


def letters(path: Path) -> list[dict[str, Any]]:
    files = sorted(path.glob("numbers-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def reject(rows: BadRows, *rejected: BadRow, epoch: Epoch = EPOCH) -> None:
    rows.reject(epoch, "numbers", RejectStage.DECODE, Rejects(Report(rejected=len(rejected), bad_rows=rejected)))


@pytest.mark.parametrize("below", ["", "deep/er"])
def test_a_file_where_letters_are_to_go_is_refused_before_any_row(tmp_path: Path, below: str) -> None:
    file = tmp_path / "letters"
    file.write_text("")
    with pytest.raises(UserError, match=f"'dead_letter.path' must be a directory, '{file}' is a file") as caught:
        kept(file / below)
    assert caught.value.where is not None


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_metrics_count_the_bad_rows_of_finalized_epochs_by_node_stage_and_reason(tmp_path: Path, policy: str) -> None:
    metrics = Metrics()
    place = f", dead_letter: {{type: file, path: '{tmp_path}'}}" if policy == "dead_letter" else ""
    rows, _ = dealing(f", on_error: {policy}{place}", metrics)
    rows.begin()
    reject(rows, bad(1), bad(2))
    rows.begin()  # the epoch was not finalized, and is delivered again
    reject(rows, bad(1), bad(2), BadRow("tombstone", "empty", {"file": "a.csv", "row": 3}))
    rows.finalized()
    rows.begin()
    reject(rows, bad(4), epoch=replace(EPOCH, id="e2", number=8))
    rows.finalized()
    rows.finalized()
    found = {dict(m.labels)["reason"]: (m.name, m.value, dict(m.labels)) for m in metrics.snapshot()}
    name = "streamling_rows_skipped" if policy == "skip" else "streamling_rows_dead_lettered"
    assert {reason: one[:2] for reason, one in found.items()} == {"decode_error": (name, 3), "tombstone": (name, 1)}
    labels = found["tombstone"][2]
    assert (labels["id"], labels["topology_node_type"], labels["stage"]) == ("numbers", "source", "decode")


def test_the_error_of_a_bad_row_names_node_and_place() -> None:
    error = rejection("orders", bad(3))
    assert error.node == "orders"
    assert error.message == "file 'a.csv', row 3: no number"


def test_skipped_rows_are_counted_and_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    rows, progress = dealing(", on_error: skip")
    reject(rows, bad(1), bad(2))
    reject(rows, bad(3))
    assert [r.getMessage() for r in caplog.records] == [
        "node 'numbers' skipped 1 row (decode_error), the last at file 'a.csv', row 1: no number"
    ]
    now += 61
    reject(rows, bad(9))
    assert "skipped 3 rows" in caplog.records[-1].getMessage()
    rows.finalized()
    assert progress.snapshot().nodes[0].rejected == 4


def test_a_letter_can_hold_what_is_no_text(tmp_path: Path) -> None:
    """Half of a surrogate pair: JSON can write it, UTF-8 cannot."""
    half = json.loads('"\\ud83d"')
    rejected = BadRow("schema_mismatch", f"{half}ü", {"key": half}, row={"text": half})
    reject(kept(tmp_path / "letters"), rejected)
    (found,) = letters(tmp_path / "letters")
    assert (found["reason_text"], found["source"]["key"], found["row"]) == (f"{half}ü", half, {"text": half})


def test_a_letter_tells_where_the_row_stood_and_what_it_was(tmp_path: Path) -> None:
    reject(kept(tmp_path / "letters"), bad(3, raw=b"1,x\xff"))
    (letter,) = letters(tmp_path / "letters")
    assert letter.pop("id").isalnum()
    assert letter == {
        "application_id": "app",
        "node": "numbers",
        "node_type": "source",
        "stage": "decode",
        "reason_code": "decode_error",
        "reason_text": "no number",
        "raw": "MSx4/w==",
        "raw_key": None,
        "headers": None,
        "row": None,
        "source": {"node": "numbers", "file": "a.csv", "row": 3},
        "epoch": 7,
        "timestamp": "2023-11-14T22:13:20.123Z",
        "now_us": 1_700_000_000_123_456,
        "status": "open",
    }


def test_the_same_epoch_repeated_leaves_the_same_letters(tmp_path: Path) -> None:
    reject(kept(tmp_path), bad(1), bad(2))
    first = letters(tmp_path)
    again = Epoch("e2", 7, "app", "g", EPOCH.now_us, 0, EPOCH.slices)
    reject(kept(tmp_path), bad(1), bad(2), epoch=again)
    assert letters(tmp_path) == first


def test_different_rows_have_different_ids_whatever_they_hold(tmp_path: Path) -> None:
    nowhere = BadRow("plugin_error", "no", {})
    reject(kept(tmp_path), bad(1), bad(2), bad(1, version="rewritten"), nowhere, nowhere)
    ids = [letter["id"] for letter in letters(tmp_path)]
    assert len(set(ids)) == 5


@pytest.mark.parametrize(
    "other",
    [
        replace(EPOCH, generation="after a reset"),
        replace(EPOCH, slices=(Slice("numbers", "k", 4, 9, (), 5),)),
        replace(EPOCH, id="e2", slices=()),
    ],
)
def test_rows_of_another_epoch_have_other_ids_though_it_has_the_same_number(tmp_path: Path, other: Epoch) -> None:
    nowhere = BadRow("plugin_error", "no", {})
    reject(kept(tmp_path), nowhere)
    reject(kept(tmp_path), nowhere, epoch=other)
    ids = [letter["id"] for letter in letters(tmp_path)]
    assert len(set(ids)) == 2
    reject(kept(tmp_path), nowhere, epoch=replace(EPOCH, id="repeated"))
    assert [letter["id"] for letter in letters(tmp_path)] == ids


def test_more_bad_rows_than_were_sent_along_are_fetched(tmp_path: Path) -> None:
    everything = [bad(n) for n in range(5)]
    rejects = Rejects(Report(rejected=5, bad_rows=tuple(everything[:2])), lambda: iter(everything))
    kept(tmp_path).reject(EPOCH, "numbers", RejectStage.DECODE, rejects)
    assert [letter["source"]["row"] for letter in letters(tmp_path)] == [0, 1, 2, 3, 4]


def test_no_bad_rows_leave_no_file(tmp_path: Path) -> None:
    reject(kept(tmp_path / "letters"))
    assert not (tmp_path / "letters").exists()


def test_letters_of_an_attempt_that_failed_go_if_the_next_one_has_no_bad_rows(tmp_path: Path) -> None:
    rows = kept(tmp_path)
    reject(rows, bad(1))
    reject(rows, epoch=replace(EPOCH, id="e2"))
    assert len(letters(tmp_path)) == 1
    reject(rows, bad(1))
    reject(rows)
    assert letters(tmp_path) == []


def test_letters_of_another_process_stay(tmp_path: Path) -> None:
    reject(kept(tmp_path), bad(1))
    reject(kept(tmp_path))
    assert len(letters(tmp_path)) == 1


def test_letters_that_cannot_be_written_end_the_run_and_name_the_node(tmp_path: Path) -> None:
    rows = kept(tmp_path / "letters")
    (tmp_path / "letters").write_text("a file, not a directory")  # since the start
    with pytest.raises(PermanentError, match="numbers"):
        reject(rows, bad(1))


class Odd(NumberSource):
    def reader(self) -> OddReader:
        return OddReader()


class OddReader:
    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow]:
        assert isinstance(part, list)
        for n in range(part[0], part[1]):
            yield bad(n) if n % 2 else pa.RecordBatch.from_pydict({"n": [n]})


def rig(path: Path, **sinks: LedgerSink) -> Rig:
    more = f", on_error: dead_letter, dead_letter: {{type: file, path: '{path}'}}"
    return Rig({"numbers": Odd(there=20)}, sinks, more=more, driver_rows=100)


def test_good_rows_are_delivered_and_bad_ones_kept(tmp_path: Path) -> None:
    sink = LedgerSink()
    rig(tmp_path, out=sink).run()
    assert sink.rows == list(range(0, 20, 2))
    assert [letter["source"]["row"] for letter in letters(tmp_path)] == list(range(1, 20, 2))


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_what_the_log_says_of_bad_rows_has_their_node_and_epoch(tmp_path: Path, policy: str) -> None:
    r = rig(tmp_path, out=LedgerSink())
    if policy == "skip":
        r.more = ", on_error: skip"
    with log_lines() as lines:
        r.run()
    found = [(node, epoch) for message, node, epoch in lines if "skipped" in message or "dead letters" in message]
    assert ("numbers", 1) in found
    assert {node for node, _ in found} == {"numbers"}


def test_a_lost_row_is_logged_with_its_node_and_epoch() -> None:
    class Losing(LedgerSink):
        def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
            report = super().write(epoch, task, batches)
            return replace(report, rows=report.rows - 1)

    with log_lines() as lines:
        Rig({"numbers": NumberSource(there=5)}, {"out": Losing()}).run()
    (line,) = [one for one in lines if "a bug in streamling" in one[0]]
    assert line[1:] == ("out", 1)
    assert "rows of 'out' in epoch 1" in line[0]


def test_a_crash_between_the_last_commit_and_the_letters_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = LedgerSink()
    running = rig(tmp_path, out=sink)

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(BadRows, "reject", crash)
        running.crash()
    assert sink.rows == list(range(0, 20, 2)) and letters(tmp_path) == []
    running.run()
    assert sink.rows == list(range(0, 20, 2))
    assert [letter["source"]["row"] for letter in letters(tmp_path)] == list(range(1, 20, 2))
    assert running.left() == []

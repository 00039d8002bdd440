"""What is stored of files, and what follows from it: nothing twice, nothing skipped, nothing mixed up."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from file_source_samples import PLENTY, everything, file_source, opened, read, rows_in

from streamling.errors import PermanentError
from streamling.plugin.contract import Json, Room
from streamling.sources.file import source as source_module
from streamling.sources.file.listing import FoundFile
from streamling.sources.file.progress import BoundedProgress, ContinuousProgress, ReadFiles
from streamling.sources.file.source import FileSource

BOUNDED, WATERMARK = "events:bounded_progress", "events:watermark"
LONG_AGO = 1_700_000_000


def put(path: Path, *ids: int, at: float = LONG_AGO) -> Path:
    """A CSV file of these ids, last written at a time."""
    path.write_text("id\n" + "".join(f"{i}\n" for i in ids))
    os.utime(path, (at, at))
    return path


def ids(source: FileSource, room: Room = PLENTY) -> list[int]:
    return [row["id"] for row in rows_in(everything(source, room))]


def end_of(source: FileSource) -> Json:
    """The position behind all there is, as the store gives it back."""
    end: Json = None
    while (offer := source.offer(PLENTY)) is not None:
        end = offer.slices[-1].end
    return json.loads(json.dumps(end))


def bounded(path: Path, stored: Json = None) -> FileSource:
    return opened(path, "csv", {BOUNDED: stored} if stored is not None else {})


def continuous(path: Path, stored: Json = None, more: str = "") -> FileSource:
    return opened(path, "csv", {WATERMARK: stored} if stored is not None else {}, mode="continuous", more=more)


# Bounded


def test_a_bounded_source_stores_ranges_of_the_sorted_listing(tmp_path: Path) -> None:
    for name in "abc":
        put(tmp_path / f"{name}.csv", 1)
    stored = end_of(bounded(tmp_path))
    assert stored["completed"] == [{"first": str(tmp_path / "a.csv"), "last": str(tmp_path / "c.csv")}]
    assert "reading" not in stored


def test_a_file_in_the_middle_is_stored_with_its_place(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    file = put(tmp_path / "b.csv", 2, 3, 4)
    stored = bounded(tmp_path).offer(Room(3, 1, 1)).slices[0].end
    assert stored["completed"] == [{"first": str(tmp_path / "a.csv"), "last": str(tmp_path / "a.csv")}]
    assert stored["reading"] == {
        "path": str(file),
        "size": 9,
        "modified_ns": LONG_AGO * 10**9,
        "at": 7,
        "row": 3,
    }


def test_ranges_of_a_state_that_remembers_no_files_are_taken_as_they_are(tmp_path: Path) -> None:
    for number, name in enumerate("abcde"):
        put(tmp_path / f"{name}.csv", number)
    stored: Json = {
        "completed": [
            {"first": str(tmp_path / "a.csv"), "last": str(tmp_path / "b.csv")},
            {"first": str(tmp_path / "d.csv"), "last": str(tmp_path / "d.csv")},
        ]
    }
    source = bounded(tmp_path, stored)
    offer = source.offer(PLENTY)
    assert offer.slices[0].start == stored
    assert [row["id"] for row in rows_in(read(source, offer))] == [2, 4]
    assert offer.slices[0].end["completed"] == [{"first": str(tmp_path / "a.csv"), "last": str(tmp_path / "e.csv")}]


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_paths_of_other_spellings_are_understood(tmp_path: Path, form: str) -> None:
    file = str(put(tmp_path / "a.csv", 1))
    for path in (form.format(file), file.lstrip("/")):
        assert bounded(tmp_path, {"completed": [{"first": path, "last": path}]}).offer(PLENTY) is None


def test_object_paths_may_lack_their_bucket() -> None:
    files = [FoundFile("bucket/in/a.csv", 1, 1), FoundFile("bucket/in/b.csv", 1, 1)]
    for first in ("in/a.csv", "bucket/in/a.csv", "s3://bucket/in/a.csv"):
        progress = BoundedProgress({"completed": [{"first": first, "last": first}]}, "bucket")
        assert progress.look(files) == files[1:]


def test_a_file_that_comes_late_is_read_though_its_name_lies_in_a_finished_range(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    put(tmp_path / "c.csv", 3)
    stored = end_of(bounded(tmp_path))
    put(tmp_path / "b.csv", 2)
    source = bounded(tmp_path, stored)
    assert ids(source) == [2]


def test_a_late_file_breaks_the_range_until_it_is_read(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    put(tmp_path / "c.csv", 3)
    stored = end_of(bounded(tmp_path))
    put(tmp_path / "b.csv", 2, 22)
    middle = bounded(tmp_path, stored).offer(Room(1, 1, 1)).slices[0].end
    assert [r["first"] for r in middle["completed"]] == [str(tmp_path / "a.csv"), str(tmp_path / "c.csv")]


def test_a_bounded_source_reads_a_file_once_and_says_if_it_has_changed_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "a.csv", 1)
    stored = end_of(bounded(tmp_path))
    put(tmp_path / "a.csv", 1, 2, at=LONG_AGO + 5)
    assert bounded(tmp_path, stored).offer(PLENTY) is None
    assert "a.csv' has changed since it was read" in caplog.text


# A file that changes while it is read


def change_content(file: Path) -> None:
    put(file, 7, 8, 9, 10, at=LONG_AGO)


def change_time(file: Path) -> None:
    os.utime(file, (LONG_AGO, LONG_AGO + 1))


def remove(file: Path) -> None:
    file.unlink()


CHANGES = pytest.mark.parametrize(
    ("change", "part"),
    [(change_content, "its size was 9 bytes and is 12"), (change_time, "written again"), (remove, "is gone")],
)


@CHANGES
@pytest.mark.parametrize("mode", ["bounded", "continuous"])
def test_a_file_that_changes_between_two_epochs_is_an_error(
    tmp_path: Path, change: object, part: str, mode: str
) -> None:
    file = put(tmp_path / "a.csv", 1, 2, 3)
    put(tmp_path / "b.csv", 4)
    source = opened(tmp_path, "csv", mode=mode)
    (slice_,) = source.offer(Room(2, 1, 1)).slices
    change(file)  # type: ignore[operator]
    again = file_source(tmp_path, "csv", mode)
    again.open({slice_.key: slice_.end})
    with pytest.raises(PermanentError, match=part) as caught:
        again.offer(PLENTY)
    assert caught.value.code == "FILE_CHANGED"
    assert str(file) in caught.value.message
    assert caught.value.node == "Events"
    assert caught.value.hint


@CHANGES
def test_a_file_that_changes_between_record_and_replay_is_an_error(tmp_path: Path, change: object, part: str) -> None:
    file = put(tmp_path / "a.csv", 1, 2, 3)
    source = bounded(tmp_path)
    offer = source.offer(PLENTY)
    change(file)  # type: ignore[operator]
    with pytest.raises(PermanentError, match=part) as caught:
        read(source, offer)
    assert caught.value.code == "FILE_CHANGED"


def test_a_file_that_changes_while_it_is_being_read_is_an_error(tmp_path: Path) -> None:
    file = put(tmp_path / "a.csv", *range(1000))
    source = bounded(tmp_path)
    (part,) = source.offer(PLENTY).slices[0].parts
    rows = source.reader().read(part)
    next(rows)
    with file.open("a") as growing:
        growing.write("5\n")
    with pytest.raises(PermanentError, match="its size was"):
        list(rows)


# Continuous


def test_a_continuous_source_reads_in_order_of_time_then_path(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 3, at=LONG_AGO + 2)
    put(tmp_path / "b.csv", 2, at=LONG_AGO + 1)
    put(tmp_path / "c.csv", 1, at=LONG_AGO)
    put(tmp_path / "d.csv", 4, at=LONG_AGO + 2)
    source = continuous(tmp_path)
    assert ids(source) == [1, 2, 3, 4]
    assert not source.bounded and not source.ended


def test_the_watermark_covers_what_is_finished(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1, at=LONG_AGO)
    put(tmp_path / "b.csv", 2, at=LONG_AGO + 1)
    put(tmp_path / "c.csv", 3, at=LONG_AGO + 1)
    source = continuous(tmp_path)
    first = source.offer(Room(2, 1, 1)).slices[0].end
    assert (first["last_modified_ms"], first["boundary_paths"]) == ((LONG_AGO + 1) * 1000, [str(tmp_path / "b.csv")])
    last = source.offer(PLENTY).slices[0].end
    assert last["boundary_paths"] == [str(tmp_path / "b.csv"), str(tmp_path / "c.csv")]
    assert last["committed_ahead"] == []


def test_a_watermark_without_remembered_files_is_taken_as_it_is(tmp_path: Path) -> None:
    for number, name in enumerate("abcdef"):
        put(tmp_path / f"{name}.csv", number, at=LONG_AGO + number // 2)
    # a, b older; c at the boundary and listed, d not; e committed ahead, f not.
    stored: Json = {
        "last_modified_ms": (LONG_AGO + 1) * 1000,
        "boundary_paths": [str(tmp_path / "c.csv")],
        "committed_ahead": [{"last_modified_ms": (LONG_AGO + 2) * 1000, "path": str(tmp_path / "e.csv")}],
    }
    source = continuous(tmp_path, stored)
    first = source.offer(Room(1, 1, 1))
    assert [row["id"] for row in rows_in(read(source, first))] == [3]
    assert first.slices[0].end["committed_ahead"] == stored["committed_ahead"]
    assert ids(source) == [5]
    del stored["committed_ahead"]
    assert ids(continuous(tmp_path, stored)) == [3, 4, 5]


def test_the_watermark_takes_in_what_was_committed_ahead(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1, at=LONG_AGO)
    put(tmp_path / "b.csv", 2, at=LONG_AGO + 1)
    put(tmp_path / "c.csv", 3, at=LONG_AGO + 1)
    ahead: Json = [{"last_modified_ms": (LONG_AGO + 1) * 1000, "path": str(tmp_path / "c.csv")}]
    stored = end_of(continuous(tmp_path, {"last_modified_ms": 0, "boundary_paths": [], "committed_ahead": ahead}))
    assert sorted(stored["boundary_paths"]) == [str(tmp_path / "b.csv"), str(tmp_path / "c.csv")]
    assert stored["committed_ahead"] == []


def test_a_file_with_an_old_time_that_comes_late_is_read(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1, at=LONG_AGO + 100)
    stored = end_of(continuous(tmp_path))
    put(tmp_path / "b.csv", 2, at=LONG_AGO)
    source = continuous(tmp_path, stored)
    offer = source.offer(PLENTY)
    assert [row["id"] for row in rows_in(read(source, offer))] == [2]
    assert offer.slices[0].end["last_modified_ms"] == (LONG_AGO + 100) * 1000


@pytest.mark.parametrize(("content", "at"), [((5, 6), LONG_AGO + 9), ((5, 6), LONG_AGO), ((7, 8, 9), LONG_AGO - 9)])
def test_a_file_changed_later_is_read_again_in_full(tmp_path: Path, content: tuple[int, ...], at: int) -> None:
    put(tmp_path / "a.csv", 1)
    stored = end_of(continuous(tmp_path))
    put(tmp_path / "a.csv", *content, at=at)
    assert ids(continuous(tmp_path, stored)) == list(content)


def test_files_that_are_gone_are_forgotten_and_others_are_not(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    put(tmp_path / "b.csv", 2)
    stored = end_of(continuous(tmp_path))
    (tmp_path / "a.csv").unlink()
    put(tmp_path / "c.csv", 3)
    later = end_of(continuous(tmp_path, stored))
    assert len(later["files"]) == len(stored["files"])
    assert continuous(tmp_path, later).offer(PLENTY) is None


def test_a_look_that_finds_nothing_is_not_repeated_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.csv", 1)
    clock = [1000.0]
    monkeypatch.setattr(source_module.time, "monotonic", lambda: clock[0])
    looks = []
    found_files = source_module.found_files
    monkeypatch.setattr(source_module, "found_files", lambda *a: looks.append(1) or found_files(*a))
    source = continuous(tmp_path)
    assert ids(source) == [1]
    assert len(looks) == 2  # again at once, because the first one found something
    put(tmp_path / "b.csv", 2)
    clock[0] += 4.9
    assert source.offer(PLENTY) is None
    clock[0] += 0.2
    assert ids(source) == [2]


def test_a_file_that_is_still_being_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(source_module.time, "monotonic", lambda: clock[0])
    put(tmp_path / "a.csv", 1)
    source = continuous(tmp_path)
    assert ids(source) == [1]
    put(tmp_path / "b.csv", 2, at=time.time() + 3600)  # a clock that is ahead of ours must not stop it
    clock[0] += 6
    assert source.offer(PLENTY) is None
    clock[0] += 1.1
    assert ids(source) == [2]


def test_a_file_that_goes_before_it_is_read_is_only_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "a.csv", 1)
    put(tmp_path / "b.csv", 2)
    put(tmp_path / "c.csv", 3)
    source = continuous(tmp_path)
    source.offer(Room(1, 1, 1))
    (tmp_path / "b.csv").unlink()
    assert ids(source) == [3]
    assert "b.csv" in caplog.text


def test_a_bounded_source_does_not_lose_a_file_in_silence(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    put(tmp_path / "b.csv", 2)
    source = bounded(tmp_path)
    source.offer(Room(1, 1, 1))
    (tmp_path / "b.csv").unlink()
    with pytest.raises(PermanentError, match=r"b\.csv.* is gone"):
        source.offer(PLENTY)


def test_a_bounded_source_reads_a_listed_file_as_it_is_by_then(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    put(tmp_path / "b.csv", 2)
    source = bounded(tmp_path)
    source.offer(Room(1, 1, 1))
    put(tmp_path / "b.csv", 3, 4, 5)
    assert ids(source) == [3, 4, 5]


def test_opened_again_a_source_starts_from_what_it_is_given(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", *range(10))
    source = bounded(tmp_path)
    first = source.offer(Room(4, 1, 1)).slices[0].end
    source.offer(Room(4, 1, 1))
    source.open({BOUNDED: first})
    assert ids(source) == list(range(4, 10))


# Size


def test_a_hundred_thousand_files_take_less_than_two_megabytes() -> None:
    files = [FoundFile(f"/data/in/{i:08d}.csv", i, i) for i in range(100_000)]
    known = ReadFiles()
    for file in files:
        known.add(file)
    assert len(known.text) < 2_000_000
    again = ReadFiles.from_text(known.text)
    assert all(again.has(file) for file in files)
    assert not again.has_path(FoundFile("/data/in/late.csv", 1, 1))


@pytest.mark.parametrize("stored", [{}, {"completed": "no"}, {"files": "not base64!"}, "text", 5, {"reading": 3}])
def test_a_stored_value_without_sense_is_a_beginning(stored: Json) -> None:
    files = [FoundFile("/a.csv", 1, 1)]
    assert BoundedProgress(stored).look(files) == files
    assert ContinuousProgress(stored).look(files) == files

"""What is stored of files, and what follows from it: nothing twice, nothing skipped, nothing mixed up."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamling.connector import Json, Room
from streamling.errors import PermanentError
from streamling.sources.file import progress as progress_module
from streamling.sources.file import records
from streamling.sources.file import source as source_module
from streamling.sources.file.listing import SourceFile, list_files
from streamling.sources.file.progress import BoundedProgress, ContinuousProgress, ReadFiles
from streamling.sources.file.source import FileSource
from support.file_source_samples import PLENTY, everything, file_source, opened, read, rows_in

BOUNDED, WATERMARK = "events:bounded_progress", "events:watermark"
LONG_AGO = 1_700_000_000


def put(path: Path, *ids: int, at: float = LONG_AGO) -> Path:
    """A CSV file of these ids, last written at a time."""
    path.parent.mkdir(exist_ok=True, parents=True)
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


def looking(path: Path) -> FileSource:
    """A source that looks for files whenever it is asked."""
    return opened(path, "csv", mode="continuous, poll_interval: 0s")


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
    files = [SourceFile("bucket/in/a.csv", 1, 1), SourceFile("bucket/in/b.csv", 1, 1)]
    for first in ("in/a.csv", "bucket/in/a.csv", "s3://bucket/in/a.csv"):
        progress = BoundedProgress({"completed": [{"first": first, "last": first}]}, "bucket")
        assert progress.note_listing(files) == files[1:]


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


def test_a_file_that_is_cut_off_behind_what_was_read_is_not_taken_for_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_CHUNK", 3)
    file = put(tmp_path / "a.csv", *range(10, 30))
    source = bounded(tmp_path)
    assert [row["id"] for row in rows_in(read(source, source.offer(Room(4, 1, 1))))] == [10, 11, 12, 13]
    os.truncate(file, len("id\n10\n11\n12\n13\n"))
    with pytest.raises(PermanentError, match="its size was 63 bytes and is 15"):
        source.offer(PLENTY)


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


@pytest.mark.parametrize("mode", [bounded, continuous])
def test_a_state_without_gone_files_is_understood(tmp_path: Path, mode: Callable[..., FileSource]) -> None:
    """As versions before this one wrote it."""
    put(tmp_path / "a.csv", 1)
    put(tmp_path / "b.csv", 2)
    stored = end_of(mode(tmp_path))
    assert "gone" not in stored
    put(tmp_path / "c.csv", 3, 4)
    source = mode(tmp_path, stored)
    middle = source.offer(Room(1, 1, 1)).slices[0].end
    assert set(middle) >= {"files", "reading"}
    assert ids(mode(tmp_path, middle)) == [4]


@pytest.mark.parametrize(
    ("mode", "fields"),
    [(bounded, {"completed"}), (continuous, {"last_modified_ms", "boundary_paths", "committed_ahead"})],
)
def test_the_original_would_go_on_from_what_is_stored(
    tmp_path: Path, mode: Callable[..., FileSource], fields: set[str]
) -> None:
    put(tmp_path / "a.csv", 1, at=LONG_AGO)
    put(tmp_path / "b.csv", 2, at=LONG_AGO + 1)
    stored = end_of(mode(tmp_path))
    assert set(stored) == fields | {"files", "inodes"}
    put(tmp_path / "c.csv", 3, at=LONG_AGO + 1)
    assert ids(mode(tmp_path, {name: stored[name] for name in fields})) == [3]


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


@pytest.mark.parametrize("mode", [bounded, continuous])
def test_a_file_that_was_away_and_comes_back_as_it_was_is_not_read_again(
    tmp_path: Path, mode: Callable[..., FileSource]
) -> None:
    away = tmp_path.parent / f"{tmp_path.name}-away.csv"
    file = put(tmp_path / "a.csv", 1)
    put(tmp_path / "b.csv", 2)
    stored = end_of(mode(tmp_path))
    file.rename(away)
    put(tmp_path / "c.csv", 3)
    stored = end_of(mode(tmp_path, stored))
    put(tmp_path / "d.csv", 4)
    stored = end_of(mode(tmp_path, stored))
    away.rename(file)
    put(tmp_path / "e.csv", 5)
    assert ids(mode(tmp_path, stored)) == [5]
    assert "gone" not in end_of(mode(tmp_path, stored))


@pytest.mark.parametrize("mode", [bounded, continuous])
def test_a_name_that_comes_back_with_other_content_is_another_file(
    tmp_path: Path, mode: Callable[..., FileSource]
) -> None:
    file = put(tmp_path / "a.csv", 1)
    put(tmp_path / "b.csv", 2)
    stored = end_of(mode(tmp_path))
    file.unlink()
    put(tmp_path / "c.csv", 3)
    stored = end_of(mode(tmp_path, stored))
    put(tmp_path / "a.csv", 7, 8)
    assert ids(mode(tmp_path, stored)) == [7, 8]


@pytest.mark.parametrize("mode", [bounded, continuous])
def test_a_path_that_is_changed_and_changed_back_reads_nothing_twice(
    tmp_path: Path, mode: Callable[..., FileSource]
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    put(one / "a.csv", 1)
    put(other / "a.csv", 2)
    stored = end_of(mode(one))
    stored = end_of(mode(other, stored))
    assert mode(one, stored).offer(PLENTY) is None


def test_of_files_that_are_gone_the_oldest_are_forgotten_beyond_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "MOST_GONE", 2)
    known, files = ReadFiles(), [SourceFile(f"{n}.csv", 1, n) for n in range(4)]
    for file in files:
        known.add(file)
    for there in (files[1:], files[2:], files[3:]):  # 0 goes first, then 1, then 2
        known.note_existing(there)
    known.note_existing(files)
    assert [known.has(file) for file in files] == [False, True, True, True]


def test_files_that_are_gone_take_no_place_among_those_that_are_there(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    put(tmp_path / "b.csv", 2)
    stored = end_of(continuous(tmp_path))
    (tmp_path / "a.csv").unlink()
    put(tmp_path / "c.csv", 3)
    later = end_of(continuous(tmp_path, stored))
    assert len(later["files"]) == len(stored["files"])
    assert continuous(tmp_path, later).offer(PLENTY) is None


def test_a_directory_that_is_away_for_a_while_brings_no_file_twice(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.csv", 1, 2)
    source = looking(tmp_path / "in")
    assert ids(source) == [1, 2]
    (tmp_path / "in").rename(tmp_path / "away")
    assert ids(source) == []
    (tmp_path / "away").rename(tmp_path / "in")
    put(tmp_path / "in" / "b.csv", 3)
    assert ids(source) == [3]


def test_the_layout_of_the_start_stays_whatever_comes_later(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    source = looking(tmp_path)
    assert ids(source) == [1]
    put(tmp_path / "day=1" / "b.csv", 2)
    put(tmp_path / "c.csv", 3)
    assert ids(source) == [3]


def test_files_outside_the_layout_are_not_forgotten(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    stored = end_of(continuous(tmp_path))
    late = put(tmp_path / "day=1" / "b.csv", 2)
    stored = end_of(continuous(tmp_path, stored))
    late.unlink()
    late.parent.rmdir()
    assert ids(continuous(tmp_path, stored)) == []


def test_a_look_that_finds_nothing_is_not_repeated_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.csv", 1)
    clock = [1000.0]
    monkeypatch.setattr(source_module.time, "monotonic", lambda: clock[0])
    looks = []
    list_files = source_module.list_files
    monkeypatch.setattr(source_module, "list_files", lambda *a: looks.append(1) or list_files(*a))
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


def test_a_name_that_cannot_be_read_is_told_and_not_a_crash(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    source = looking(tmp_path)
    assert ids(source) == [1]
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.csv")).write_text("id\n2\n")
    with pytest.raises(PermanentError, match=r"a name in it is not UTF-8: .*b.xff\.csv"):
        source.offer(PLENTY)


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


# Other names


@pytest.mark.parametrize("mode", [bounded, continuous])
def test_a_renamed_file_is_not_read_again(tmp_path: Path, mode: Callable[..., FileSource]) -> None:
    put(tmp_path / "app.1.csv", 1)
    stored = end_of(mode(tmp_path))
    (tmp_path / "app.1.csv").rename(tmp_path / "app.2.csv")
    put(tmp_path / "app.1.csv", 2, at=LONG_AGO + 1)
    source = mode(tmp_path, stored)
    offer = source.offer(PLENTY)
    assert [row["id"] for row in rows_in(read(source, offer))] == [2]
    assert offer is not None
    stored = json.loads(json.dumps(offer.slices[0].end))
    for old, new in ((2, 3), (1, 2)):  # as a log is rotated
        (tmp_path / f"app.{old}.csv").rename(tmp_path / f"app.{new}.csv")
    assert ids(mode(tmp_path, stored)) == []
    put(tmp_path / "app.1.csv", 3, at=LONG_AGO + 2)
    assert ids(mode(tmp_path, stored)) == [3]


@pytest.mark.parametrize("mode", [bounded, continuous])
def test_a_file_that_was_away_and_comes_back_under_another_name_is_not_read_again(
    tmp_path: Path, mode: Callable[..., FileSource]
) -> None:
    put(tmp_path / "in" / "a.csv", 1)
    stored = end_of(mode(tmp_path / "in"))
    (tmp_path / "in" / "a.csv").rename(tmp_path / "elsewhere.csv")
    put(tmp_path / "in" / "b.csv", 2)
    stored = end_of(mode(tmp_path / "in", stored))
    (tmp_path / "elsewhere.csv").rename(tmp_path / "in" / "c.csv")
    assert ids(mode(tmp_path / "in", stored)) == []


def test_a_copy_with_the_time_of_the_original_is_another_file(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 1)
    stored = end_of(bounded(tmp_path))
    (tmp_path / "a.csv").unlink()  # its inode may be used again
    put(tmp_path / "b.csv", 2)
    assert ids(bounded(tmp_path, stored)) == [2]


def test_linked_files_and_directories_are_read_once_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    day = tmp_path / "in" / "2026-11-17"
    put(day / "a.csv", 1)
    put(tmp_path / "outside" / "b.csv", 2)
    (tmp_path / "in" / "latest").symlink_to("2026-11-17")
    (tmp_path / "in" / "loop").symlink_to(".")
    (tmp_path / "in" / "0.csv").symlink_to("2026-11-17/a.csv")
    (tmp_path / "in" / "archive").symlink_to("../outside")
    (tmp_path / "in" / "nowhere").symlink_to("missing")
    os.link(day / "a.csv", day / "hard.csv")
    source = looking(tmp_path / "in")
    assert ids(source) == [1, 2]
    assert source.offer(PLENTY) is None
    (warning,) = [record.getMessage() for record in caplog.records if "links" in record.getMessage()]
    assert "every file is read once" in warning
    assert [Path(f.path).name for f in list_files(str(tmp_path / "in"), "csv").files] == ["a.csv", "b.csv"]
    # A pattern that only a link matches is followed.
    assert ids(bounded(tmp_path / "in" / "lat*" / "a*.csv")) == [1]


def test_a_link_to_a_file_that_is_partly_read_does_not_take_its_place(tmp_path: Path) -> None:
    put(tmp_path / "b.csv", 1, 2, 3)
    offer = bounded(tmp_path).offer(Room(1, 1, 1))
    assert offer is not None
    os.link(tmp_path / "b.csv", tmp_path / "a.csv")
    assert ids(bounded(tmp_path, offer.slices[0].end)) == [2, 3]


# Size


def test_a_hundred_thousand_files_take_less_than_two_megabytes() -> None:
    files = [SourceFile(f"/data/in/{i:08d}.csv", i, i) for i in range(100_000)]
    known = ReadFiles()
    for file in files:
        known.add(file)
    assert len(str(known.value)) < 2_000_000
    again = ReadFiles.from_value(known.value["files"], "")
    assert all(again.has(file) for file in files)
    assert not again.has_path(SourceFile("/data/in/late.csv", 1, 1))


def test_files_from_before_1970_are_read_like_any_other() -> None:
    """Copies without a time of their own have odd ones; a state that is empty has finished nothing."""
    old, young = SourceFile("/data/old.csv", 10, -(10**12)), SourceFile("/data/young.csv", 10, LONG_AGO * 10**9)
    assert sorted(file.path for file in ContinuousProgress(None).note_listing([old, young])) == [old.path, young.path]


@pytest.mark.parametrize("make", [BoundedProgress, ContinuousProgress])
def test_the_value_of_many_small_offers_costs_little_more_than_their_files(
    make: type[BoundedProgress] | type[ContinuousProgress],
) -> None:
    progress = make(None)
    todo = progress.note_listing([SourceFile(f"/data/{i:05d}.csv", 10, LONG_AGO * 10**9) for i in range(20_000)])
    began = time.monotonic()
    for number, file in enumerate(todo):
        progress.finish(file)
        if number % 20 == 0:
            progress.value()
    assert (
        time.monotonic() - began < 5
    )  # it takes half a second; if every offer went through all files, it would take a minute
    stored = json.loads(json.dumps(progress.value()))
    assert make(stored).note_listing(todo) == []


def test_ranges_grow_together_in_whatever_order_files_are_finished() -> None:
    files = [SourceFile(name, 1, 1) for name in "abcdefg"]
    done = BoundedProgress(None)
    done.note_listing(files)
    ranges = []
    for name in "bdacgef":
        done.finish(files["abcdefg".index(name)])
        ranges.append([(r["first"], r["last"]) for r in done.value()["completed"]])
    assert ranges == [
        [("b", "b")],
        [("b", "b"), ("d", "d")],
        [("a", "b"), ("d", "d")],
        [("a", "d")],
        [("a", "d"), ("g", "g")],
        [("a", "e"), ("g", "g")],
        [("a", "g")],
    ]
    again = BoundedProgress(done.value())
    assert again.note_listing([*files, SourceFile("h", 1, 1)]) == [SourceFile("h", 1, 1)]
    assert again.value()["completed"] == [{"first": "a", "last": "g"}]


@pytest.mark.parametrize("make", [BoundedProgress, ContinuousProgress])
def test_what_is_taken_back_leaves_no_trace(make: type[BoundedProgress] | type[ContinuousProgress]) -> None:
    times = (1, 2, 2, 3, 3, 1)
    progress = make({"last_modified_ms": 1, "committed_ahead": [{"last_modified_ms": 3, "path": "x"}]})
    todo = progress.note_listing([SourceFile(name, 1, ms * 10**6) for name, ms in zip("abcdef", times, strict=True)])
    values, undos = [], []
    for file in todo:
        values.append(json.dumps(progress.value()))
        undos.append(progress.finish(file))
    for value, undo in zip(reversed(values), reversed(undos), strict=True):
        undo()
        assert json.dumps(progress.value()) == value


@pytest.mark.parametrize("stored", [{}, {"completed": "no"}, {"files": "not base64!"}, "text", 5, {"reading": 3}])
def test_a_stored_value_without_sense_is_a_beginning(stored: Json) -> None:
    files = [SourceFile("/a.csv", 1, 1)]
    assert BoundedProgress(stored).note_listing(files) == files
    assert ContinuousProgress(stored).note_listing(files) == files

"""The commit log of a file sink: whatever two owners do, what counts is one unbroken run of commits."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.connector import Epoch, Report
from streamling.errors import Fenced
from streamling.sinks.file import FileSink
from streamling.sinks.file.commit_log import CommitEntry, CommitLog, Move
from support.connector_samples import epoch, opened, written


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    return CommitLog(tmp_path / "log")


def entry(number: int, epoch_: str, previous: str = "") -> CommitEntry:
    return CommitEntry(number, epoch_, previous, {"k": number}, (Move(f"{epoch_}/0", f"final{number}"),))


def test_a_log_that_is_not_there_is_empty(log: CommitLog) -> None:
    assert log.entries() == []


def test_entries_are_read_as_they_were_written_oldest_first(log: CommitLog) -> None:
    chain = [entry(1, "a"), entry(2, "b", "a"), entry(3, "c", "b")]
    assert [log.append(e) for e in chain] == [True, True, True]
    assert log.entries() == chain


def test_a_number_that_is_taken_stays_with_who_has_it(log: CommitLog) -> None:
    log.append(entry(1, "a"))
    assert not log.append(entry(1, "b"))
    assert log.entries() == [entry(1, "a")]


def test_an_entry_that_cannot_be_written_leaves_nothing(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        log.append(entry(1, "a"))
    assert list((tmp_path / "log").iterdir()) == []


def test_of_the_old_only_some_are_kept(log: CommitLog) -> None:
    for n in range(1, 21):
        log.append(entry(n, f"e{n}", f"e{n - 1}"))
        log.prune()
    assert [e.number for e in log.entries()] == list(range(13, 21))


def test_an_entry_whose_number_has_come_and_gone_does_not_count(log: CommitLog, tmp_path: Path) -> None:
    for n in range(1, 21):
        log.append(entry(n, f"e{n}", f"e{n - 1}"))
    log.prune()
    before = log.entries()
    assert not log.append(entry(12, "late", "e11"))
    assert not log.append(entry(3, "later", "e2"))
    assert log.entries() == before
    assert len(list((tmp_path / "log").iterdir())) == len(before)


def test_what_a_late_owner_left_behind_does_not_count_either(log: CommitLog, tmp_path: Path) -> None:
    for n in range(1, 21):
        log.append(entry(n, f"e{n}", f"e{n - 1}"))
    log.prune()
    (tmp_path / "log" / f"{12:012d}.json").write_bytes(entry(12, "late", "e11").encode())
    assert [e.number for e in log.entries()] == list(range(13, 21))


# Two owners step by step


class Died(Exception):
    pass


class Owner:
    """Delivers the numbers from where it believes the target stands, one step at a time."""

    def __init__(self, name: str, target: Path) -> None:
        self._name, self._target, self._made = name, target, 0
        self.restart()

    def restart(self) -> None:
        self.sink: FileSink = opened(f"type: file, path: '{self._target}', format: csv")
        entries = self.sink._directory.log.entries()
        self._at = int(str(entries[-1].positions.get("k", 0))) if entries else 0
        self._epoch: tuple[Epoch, Report] | None = None

    def write(self, count: int) -> None:
        self._made += 1
        end = self._at + count
        made = epoch(self._made, self._at, end, id_=f"{self._name}{self._made:04d}".ljust(32, "0"))
        self._epoch = made, written(self.sink, made, *(str(n) for n in range(self._at, end)))

    def abandon(self, other: Owner) -> None:
        """Take over from the other one: what it has written can then not be committed, so its rows are free."""
        if other._epoch is not None:
            self.sink.abandon(other._epoch[0])
        self.restart()

    def commit(self, *, dies: bool) -> None:
        if self._epoch is None:
            return
        made, report = self._epoch
        if dies:
            self.sink._move_files = _die  # type: ignore[method-assign]
        try:
            self.sink.commit(made, [report])
        except (Fenced, Died):
            self.sink.abort(made) if not dies else None
            self.restart()
        else:
            self._at, self._epoch = made.slices[0].end, None  # type: ignore[assignment]


def _die(entries: object) -> None:
    raise Died


def numbers(target: Path) -> list[int]:
    """All rows that can be seen, sorted."""
    found: Iterator[str] = (line for path in target.glob("*.csv") for line in path.read_text().splitlines()[1:])
    return sorted(int(line.split(",")[0].strip('"')) for line in found)


# Of its twenty seconds on a disk nineteen are syncs.
MEMORY = Path("/dev/shm")
STEP = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["write", "write", "commit", "commit", "commit", "die", "restart", "abandon"]),
    st.integers(1, 3),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_however_two_owners_interleave_the_visible_rows_are_a_prefix_without_duplicates(
    steps: list[tuple[int, str, int]],
) -> None:
    target = Path(tempfile.mkdtemp(prefix="two-owners-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        owners = [Owner("a", target), Owner("b", target)]
        for who, step, count in steps:
            match step:
                case "write":
                    owners[who].write(count)
                case "abandon":
                    owners[who].abandon(owners[1 - who])
                case "restart":
                    owners[who].restart()
                case _:
                    owners[who].commit(dies=step == "die")
            seen = numbers(target)
            assert seen == list(range(len(seen)))
        last = Owner("c", target)  # opening finishes what a dead owner has logged
        assert numbers(target) == list(range(last._at))
    finally:
        shutil.rmtree(target)

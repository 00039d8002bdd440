"""The ledger of a file sink: an append-only log of commits beside the files, one entry per epoch.

Entry n+1 is created only if no other process has created it (a hard link never replaces a file). So if two owners
append after entry n, one wins and the other sees it: there is no lock that a suspended process could keep. An entry
has the positions after it, the epoch that wrote it, and the files to be moved into place. Once it exists the epoch is
committed, and any process can finish moving the files. An entry without files may instead name abandoned epochs, which
must not be committed any more: the next owner writes it before it reads their rows again.

Old entries are removed, oldest first. A process that was suspended until its n+1 had been written and removed could
create it again. Therefore every entry names its predecessor, and only the unbroken run up to the highest number counts.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamling.connector import Applied, Epoch, Json, compare_positions
from streamling.disk import sync_directory

_MAX_ENTRIES = 8


@dataclass(frozen=True, slots=True)
class Move:
    """A staged file and its final name; both relative to the sink's directory."""

    staged: str
    final: str


@dataclass(frozen=True, slots=True)
class CommitEntry:
    number: int
    epoch: str
    previous: str
    positions: Mapping[str, Json]
    moves: tuple[Move, ...] = ()
    abandoned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Epochs that must not be committed any more, with their state keys; dropped when one of these keys has moved."""

    def excludes(self, epoch: Epoch) -> bool:
        """Whether the epoch can never be committed after this entry: another process has its rows, or takes them."""
        return epoch.id in self.abandoned or compare_positions(self.positions, epoch.slices) is Applied.UNKNOWN

    def encode(self) -> bytes:
        return json.dumps(
            {
                "epoch": self.epoch,
                "previous": self.previous,
                "positions": dict(self.positions),
                "files": [[m.staged, m.final] for m in self.moves],
                "abandoned": {epoch: list(keys) for epoch, keys in self.abandoned.items()},
            }
        ).encode()


NO_ENTRY = CommitEntry(0, "", "", {})


class CommitLog:
    def __init__(self, directory: Path, drafts: Path | None = None) -> None:
        """`drafts`: a directory of this process in the same file system, for entries that do not count yet."""
        self.directory = directory
        self._drafts = drafts or directory

    def head(self) -> CommitEntry:
        """The last entry that counts."""
        entries = self.entries()
        return entries[-1] if entries else NO_ENTRY

    def entries(self) -> list[CommitEntry]:
        """The entries that count, oldest first; empty before the first commit."""
        run: list[CommitEntry] = []
        for number in sorted(self._numbers(), reverse=True):
            entry = self._read(number)
            if entry is None:  # removed after the listing: it was old
                break
            if run and (run[-1].number != number + 1 or run[-1].previous != entry.epoch):
                break
            run.append(entry)
        return run[::-1]

    def append(self, entry: CommitEntry) -> bool:
        """Create the entry; False if its number exists, or if its predecessors have been removed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        # A name of its own: another process may write an entry of the same epoch at the same time.
        draft = self._drafts / f".draft-{entry.epoch}-{secrets.token_hex(4)}"
        try:
            with draft.open("xb") as file:
                file.write(entry.encode())
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, self._path(entry.number))
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(self.directory)
        if entry not in self.entries():
            self._path(entry.number).unlink(missing_ok=True)
            return False
        return True

    def prune(self) -> None:
        """Remove old entries, oldest first. The files of all entries up to the last must be in place."""
        numbers = sorted(self._numbers())
        for number in numbers[:-_MAX_ENTRIES]:
            self._path(number).unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        if not self.directory.is_dir():
            return []
        return [int(path.stem) for path in self.directory.glob("*.json") if path.stem.isdigit()]

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:012d}.json"

    def _read(self, number: int) -> CommitEntry | None:
        try:
            data = json.loads(self._path(number).read_bytes())
        except FileNotFoundError:
            return None
        moves = tuple(Move(staged, final) for staged, final in data["files"])
        return CommitEntry(number, data["epoch"], data["previous"], data["positions"], moves, data["abandoned"])

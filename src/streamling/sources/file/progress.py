"""Which files are read, as the state backend stores it.

    <source>:bounded_progress   {"files": ..., "gone": ..., "reading": ..., "completed": ...}
    <source>:watermark          {"files": ..., "gone": ..., "reading": ..., "last_modified_ms": ..., ...}

`files` decides: it has twelve bytes for every file that was read and is still there, so a hundred thousand files take
less than two megabytes.
`gone` has the same for files that were read and no longer exist: a file that comes back unchanged is not read again.
They are in the order in which they disappeared; beyond a limit the oldest are forgotten. The field is absent if empty.
`reading` is the place inside the file that is partly read.
The other fields are those of the original. A state that has only them is read once (`original_positions.py`).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamling.connector import Json
from streamling.sources.file.listing import SourceFile
from streamling.sources.file.original_positions import PathRanges, Undo, Watermark

_PATH_BYTES, _VERSION_BYTES = 8, 4
_ENTRY_BYTES = _PATH_BYTES + _VERSION_BYTES
# More files than most users move away and back; less than two megabytes of state.
MOST_GONE = 100_000


@dataclass(frozen=True, slots=True)
class PartialFile:
    """A file that is read in several epochs, and the position at which it is resumed."""

    path: str
    size: int
    modified_ns: int
    at: int
    row: int

    def to_json(self) -> Json:
        return {
            "path": self.path,
            "size": self.size,
            "modified_ns": self.modified_ns,
            "at": self.at,
            "row": self.row,
        }

    @classmethod
    def from_json(cls, data: Any) -> PartialFile | None:
        try:
            return cls(str(data["path"]), *(int(data[name]) for name in ("size", "modified_ns", "at", "row")))
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(slots=True)
class ReadFiles:
    """Files that were read, remembered by a hash of their path and one of their size and time."""

    versions: dict[bytes, bytes] = field(default_factory=dict)
    gone: dict[bytes, bytes] = field(default_factory=dict)
    """Those that were not in the last listing, in the order in which they disappeared."""
    _packed: bytearray | None = None

    @classmethod
    def from_value(cls, files: str, gone: str) -> ReadFiles:
        return cls(_entries(files), _entries(gone))

    @property
    def value(self) -> dict[str, Json]:
        """As the state backend stores it."""
        if self._packed is None:
            self._packed = bytearray().join(p + v for p, v in self.versions.items())
        files: dict[str, Json] = {"files": b64encode(self._packed).decode()}
        gone = b"".join(p + v for p, v in self.gone.items())
        return files | ({"gone": b64encode(gone).decode()} if gone else {})

    def has_path(self, file: SourceFile) -> bool:
        return _path_hash(file) in self.versions

    def has(self, file: SourceFile) -> bool:
        return self.versions.get(_path_hash(file)) == _version_hash(file)

    def add(self, file: SourceFile) -> Undo:
        path, version = _path_hash(file), _version_hash(file)
        before = self.versions.get(path)
        # Packed one by one: packing all of them for every offer would take longer than reading small files.
        if self._packed is not None and path not in self.versions:
            self._packed += path + version
        else:
            self._packed = None
        self.versions[path] = version

        def undo() -> None:
            if before is not None:
                self.versions[path] = before
                self._packed = None
                return
            del self.versions[path]
            if self._packed is not None:
                del self._packed[-_ENTRY_BYTES:]

        return undo

    def note_existing(self, files: Iterable[SourceFile]) -> None:
        """Note which of the files are there.

        A file that comes back unchanged counts as read; if it has changed, it counts as another file. If there are
        no files at all, their directory is missing, and it may come back with them.
        """
        there = {_path_hash(file): file for file in files}
        back = self.gone.keys() & there.keys()
        missing = sorted(self.versions.keys() - there.keys())
        if not there or not (back or missing):
            return
        for path in back:
            version = self.gone.pop(path)
            if version == _version_hash(there[path]):
                self.versions[path] = version
        for path in missing:
            self.gone[path] = self.versions.pop(path)
        for path in list(self.gone)[: max(0, len(self.gone) - MOST_GONE)]:
            del self.gone[path]
        self._packed = None


def _entries(text: str) -> dict[bytes, bytes]:
    data = b64decode(text, validate=True)
    entries = (data[i : i + _ENTRY_BYTES] for i in range(0, len(data) - _ENTRY_BYTES + 1, _ENTRY_BYTES))
    return {entry[:_PATH_BYTES]: entry[_PATH_BYTES:] for entry in entries}


def _path_hash(file: SourceFile) -> bytes:
    return hashlib.blake2b(file.path.encode(errors="surrogateescape"), digest_size=_PATH_BYTES).digest()


def _version_hash(file: SourceFile) -> bytes:
    text = f"{file.size} {file.modified_ns}"
    return hashlib.blake2b(text.encode(), digest_size=_VERSION_BYTES).digest()


class FileProgress(ABC):
    """What was read of the files of a source. `original`: the same in the form of the original."""

    def __init__(self, stored: Mapping[str, Json], original: PathRanges | Watermark) -> None:
        files = _read_files(stored)
        self.partial = PartialFile.from_json(stored.get("reading"))
        self._original = original
        self._files = files if files is not None else ReadFiles()
        self._is_of_original = files is None

    def note_listing(self, files: Sequence[SourceFile], others: Sequence[SourceFile] = ()) -> list[SourceFile]:
        """A new listing: which of its files are still to be read, in the order in which they are read.

        `others` are there too, and are not to be read.
        """
        if self._is_of_original:
            for file in self._original.covered(files):
                self._files.add(file)
        self._is_of_original = False
        self._files.note_existing((*files, *others))
        return self._unread(files)

    @abstractmethod
    def _unread(self, files: Sequence[SourceFile]) -> list[SourceFile]: ...

    def finish(self, file: SourceFile) -> Undo:
        """All rows of a file of the last listing are offered."""
        steps = self._files.add(file), self._original.finish(file)

        def undo() -> None:
            for step in steps:
                step()

        return undo

    def value(self) -> dict[str, Json]:
        """What the state backend stores."""
        stored = {**self._original.value(), **self._files.value}
        return stored | ({"reading": self.partial.to_json()} if self.partial else {})


class BoundedProgress(FileProgress):
    """Every path is read once, in the order of the paths."""

    def __init__(self, stored: Json, bucket: str = "") -> None:
        value = stored if isinstance(stored, dict) else {}
        self._ranges = PathRanges(value, bucket)
        super().__init__(value, self._ranges)
        self.changed: list[SourceFile] = []
        """Files of the last listing that were read before and have changed since; they are not read again."""

    def _unread(self, files: Sequence[SourceFile]) -> list[SourceFile]:
        self.changed = [file for file in files if self._files.has_path(file) and not self._files.has(file)]
        unread = [file for file in files if not self._files.has_path(file)]
        self._ranges.note_listing(files, unread)
        return unread


class ContinuousProgress(FileProgress):
    """Every version of every file is read, the oldest first."""

    def __init__(self, stored: Json, bucket: str = "") -> None:
        value = stored if isinstance(stored, dict) else {}
        super().__init__(value, Watermark(value, bucket))

    def _unread(self, files: Sequence[SourceFile]) -> list[SourceFile]:
        unread = [file for file in files if not self._files.has(file)]
        return sorted(unread, key=lambda file: (file.modified_ns, file.path))


def _read_files(value: Mapping[str, Json]) -> ReadFiles | None:
    """None for a state of the original."""
    files, gone = value.get("files"), value.get("gone")
    try:
        return ReadFiles.from_value(files, gone if isinstance(gone, str) else "") if isinstance(files, str) else None
    except Base64Error:
        return None

"""Which files are done, as the state backend keeps it.

    <source>:bounded_progress   {"completed": [{"first": path, "last": path}], "files": ..., "gone": ...,
                                 "reading": ...}
    <source>:watermark          {"last_modified_ms": n, "boundary_paths": [path], "committed_ahead": [...],
                                 "files": ..., "gone": ..., "reading": ...}

`completed` are inclusive ranges of paths in order; a watermark covers what is older than it. Neither can tell a file
that came late from one that was read. `files` can: it has twelve bytes for every file that was read and is still there,
so a hundred thousand files take less than two megabytes. States without it are judged by ranges and watermark.
`gone`, if there are such, has as much for files that were read and are away now: one that comes back as it was is not
read again. They stand in the order in which they were missed, and the oldest are forgotten beyond a number.
`reading` is the place inside the file that is being read.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from streamling.connector import Json
from streamling.sources.file.listing import FoundFile

_PATH_BYTES, _VERSION_BYTES = 8, 4
_ENTRY_BYTES = _PATH_BYTES + _VERSION_BYTES
_MS = 1_000_000
# More than most people move away and back; less than two megabytes of state.
MOST_GONE = 100_000

Undo = Callable[[], None]
"""Takes back a step. Steps are taken back in reverse order, and none from before the last listing."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that is read in several epochs, and where it goes on."""

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
    def from_json(cls, data: Any) -> Reading | None:
        try:
            return cls(str(data["path"]), *(int(data[name]) for name in ("size", "modified_ns", "at", "row")))
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(slots=True)
class ReadFiles:
    """Files that were read, remembered by a hash of their path and one of their size and time."""

    versions: dict[bytes, bytes] = field(default_factory=dict)
    gone: dict[bytes, bytes] = field(default_factory=dict)
    """Those that were not in the last listing, the longest missed first."""
    _packed: bytearray | None = None

    @classmethod
    def from_value(cls, files: str, gone: str) -> ReadFiles:
        return cls(_entries(files), _entries(gone))

    @property
    def value(self) -> dict[str, Json]:
        """As the state backend keeps it."""
        if self._packed is None:
            self._packed = bytearray().join(p + v for p, v in self.versions.items())
        files: dict[str, Json] = {"files": b64encode(self._packed).decode()}
        gone = b"".join(p + v for p, v in self.gone.items())
        return files | ({"gone": b64encode(gone).decode()} if gone else {})

    def has_path(self, file: FoundFile) -> bool:
        return _path_hash(file) in self.versions

    def has(self, file: FoundFile) -> bool:
        return self.versions.get(_path_hash(file)) == _version_hash(file)

    def add(self, file: FoundFile) -> Undo:
        path, version = _path_hash(file), _version_hash(file)
        before = self.versions.get(path)
        # Packed as they come: packing all of them for every offer would take longer than reading small files.
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

    def see(self, files: Iterable[FoundFile]) -> None:
        """Note which of the files are there.

        One that comes back as it was is known again; one that comes back otherwise is another file, not read yet. If
        there are none at all, it is their directory that is away, and it may come back with them.
        """
        there = {_path_hash(file): file for file in files}
        back = self.gone.keys() & there.keys()
        missed = sorted(self.versions.keys() - there.keys())
        if not there or not (back or missed):
            return
        for path in back:
            version = self.gone.pop(path)
            if version == _version_hash(there[path]):
                self.versions[path] = version
        for path in missed:
            self.gone[path] = self.versions.pop(path)
        for path in list(self.gone)[: max(0, len(self.gone) - MOST_GONE)]:
            del self.gone[path]
        self._packed = None


def _entries(text: str) -> dict[bytes, bytes]:
    data = b64decode(text, validate=True)
    entries = (data[i : i + _ENTRY_BYTES] for i in range(0, len(data) - _ENTRY_BYTES + 1, _ENTRY_BYTES))
    return {entry[:_PATH_BYTES]: entry[_PATH_BYTES:] for entry in entries}


def _path_hash(file: FoundFile) -> bytes:
    return hashlib.blake2b(file.path.encode(errors="surrogateescape"), digest_size=_PATH_BYTES).digest()


def _version_hash(file: FoundFile) -> bytes:
    text = f"{file.size} {file.modified_ns}"
    return hashlib.blake2b(text.encode(), digest_size=_VERSION_BYTES).digest()


class Progress(Protocol):
    """What was read of the files that a source has, in one of the two modes."""

    reading: Reading | None

    def look(self, files: Sequence[FoundFile], others: Sequence[FoundFile] = ()) -> list[FoundFile]:
        """A new listing: which of its files are still to be read, in the order in which they are read.

        `others` are there too, and are not to be read.
        """

    def finish(self, file: FoundFile) -> Undo:
        """All rows of a file of the last listing are offered."""

    def value(self) -> dict[str, Json]:
        """What the state backend stores."""


class BoundedProgress:
    """Every path is read once, in the order of the paths."""

    def __init__(self, stored: Json, bucket: str = "") -> None:
        value = stored if isinstance(stored, dict) else {}
        self.reading = Reading.from_json(value.get("reading"))
        self._done = _read_files(value)
        ranges = value.get("completed")
        self._old = [
            (_comparable(r.get("first"), bucket), _comparable(r.get("last"), bucket))
            for r in (ranges if isinstance(ranges, list) else [])
            if isinstance(r, dict)
        ]
        self._files: tuple[FoundFile, ...] = ()
        self._places: dict[str, int] = {}
        self._runs: list[tuple[int, int]] = []  # first and last of files that are done, by their place in the listing
        self.changed: list[FoundFile] = []
        """Files of the last listing that were read before and have changed since; they are not read again."""

    def look(self, files: Sequence[FoundFile], others: Sequence[FoundFile] = ()) -> list[FoundFile]:
        self._files, self._places = tuple(files), {file.path: place for place, file in enumerate(files)}
        if self._done is None:
            self._done = ReadFiles()
            for file in files:
                if any(first <= _plain(file.path) <= last for first, last in self._old):
                    self._done.add(file)
        self._done.see((*files, *others))
        done = self._done
        self.changed = [file for file in files if done.has_path(file) and not done.has(file)]
        unread = [file for file in files if not done.has_path(file)]
        edges = [-1, *(self._places[file.path] for file in unread), len(files)]
        self._runs = [(before + 1, after - 1) for before, after in pairwise(edges) if after - before > 1]
        return unread

    def finish(self, file: FoundFile) -> Undo:
        forget = self._known.add(file)
        first = last = self._places[file.path]
        next_ = bisect(self._runs, (first, first))
        begin = end = next_
        if begin > 0 and self._runs[begin - 1][1] >= first - 1:
            begin -= 1
            first, last = self._runs[begin][0], max(last, self._runs[begin][1])
        if end < len(self._runs) and self._runs[end][0] <= last + 1:
            last = max(last, self._runs[end][1])
            end += 1
        before = self._runs[begin:end]
        self._runs[begin:end] = [(first, last)]

        def undo() -> None:
            forget()
            self._runs[begin : begin + 1] = before

        return undo

    @property
    def _known(self) -> ReadFiles:
        if self._done is None:
            self._done = ReadFiles()
        return self._done

    def value(self) -> dict[str, Json]:
        completed: list[Json] = [
            {"first": self._files[first].path, "last": self._files[last].path} for first, last in self._runs
        ]
        stored: dict[str, Json] = {"completed": completed, **self._known.value}
        return stored | ({"reading": self.reading.to_json()} if self.reading else {})


class ContinuousProgress:
    """Every version of every file is read, the oldest first."""

    def __init__(self, stored: Json, bucket: str = "") -> None:
        value = stored if isinstance(stored, dict) else {}
        self.reading = Reading.from_json(value.get("reading"))
        self._bucket = bucket
        self._done = _read_files(value)
        mark = value.get("last_modified_ms")
        self._watermark: int | None = mark if isinstance(mark, int) else None
        self._boundary = dict.fromkeys(_texts(value.get("boundary_paths")))
        ahead = value.get("committed_ahead")
        self._ahead = (
            [(_ahead_ms(a), str(a["path"])) for a in ahead or () if isinstance(a, dict) and "path" in a]
            if (isinstance(ahead, list))
            else []
        )

    def look(self, files: Sequence[FoundFile], others: Sequence[FoundFile] = ()) -> list[FoundFile]:
        if self._done is None:
            self._done = ReadFiles()
            for file in self._covered(files):
                self._done.add(file)
        self._done.see((*files, *others))
        unread = [file for file in files if not self._done.has(file)]
        return sorted(unread, key=lambda file: (file.modified_ns, file.path))

    def _covered(self, files: Iterable[FoundFile]) -> Iterator[FoundFile]:
        """By the rules of a state that does not remember files."""
        boundary = {_comparable(path, self._bucket) for path in self._boundary}
        ahead = {(ms, _comparable(path, self._bucket)) for ms, path in self._ahead}
        for file in files:
            modified, path = file.modified_ns // _MS, _plain(file.path)
            older = self._watermark is not None and modified < self._watermark
            if older or (modified == self._watermark and path in boundary) or (modified, path) in ahead:
                yield file

    def finish(self, file: FoundFile) -> Undo:
        if self._done is None:
            self._done = ReadFiles()
        forget = self._done.add(file)
        before = self._watermark, self._boundary, self._ahead
        joins = file.modified_ns // _MS == self._watermark and file.path not in self._boundary
        # Files are finished in order: whatever the listing has before this one is done, so the watermark may move here.
        modified = file.modified_ns // _MS
        if self._watermark is None or modified > self._watermark:
            caught_up = [path for ms, path in self._ahead if ms == modified]
            self._watermark, self._boundary = modified, dict.fromkeys((file.path, *caught_up))
            self._ahead = [(ms, path) for ms, path in self._ahead if ms > modified]
        elif modified == self._watermark:
            self._boundary[file.path] = None

        def undo() -> None:
            forget()
            self._watermark, self._boundary, self._ahead = before
            if joins:
                del self._boundary[file.path]

        return undo

    def value(self) -> dict[str, Json]:
        stored: dict[str, Json] = {
            "last_modified_ms": self._watermark if self._watermark is not None else 0,
            "boundary_paths": list(self._boundary),
            "committed_ahead": [{"last_modified_ms": ms, "path": path} for ms, path in self._ahead],
            **(self._done or ReadFiles()).value,
        }
        return stored | ({"reading": self.reading.to_json()} if self.reading else {})


def _read_files(value: Mapping[str, Json]) -> ReadFiles | None:
    files, gone = value.get("files"), value.get("gone")
    try:
        return ReadFiles.from_value(files, gone if isinstance(gone, str) else "") if isinstance(files, str) else None
    except Base64Error:
        return None


def _texts(value: Json) -> list[str]:
    return [str(text) for text in value] if isinstance(value, list) else []


def _ahead_ms(entry: Mapping[str, Any]) -> int:
    found = entry.get("last_modified_ms")
    return found if isinstance(found, int) else 0


def _plain(path: str) -> str:
    return path.lstrip("/")


def _comparable(stored: Json, bucket: str) -> str:
    """A path of any state in the form of `_plain`: it may have a scheme, or lack a slash or the bucket."""
    path = _plain(str(stored).partition("://")[2] or str(stored))
    return path if not bucket or path.startswith(f"{bucket}/") else f"{bucket}/{path}"

"""Which files are done, as the state backend keeps it.

    <source>:bounded_progress   {"completed": [{"first": path, "last": path}], "files": ..., "reading": ...}
    <source>:watermark          {"last_modified_ms": n, "boundary_paths": [path], "committed_ahead": [...],
                                 "files": ..., "reading": ...}

`completed` are inclusive ranges of paths in order; a watermark covers what is older than it. Neither can tell a file
that came late from one that was read. `files` can: it has twelve bytes for every file that was read and is still there,
so a hundred thousand files take less than two megabytes. States without it are judged by ranges and watermark.
`reading` is the place inside the file that is being read.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamling.plugin import Json
from streamling.sources.file.listing import FoundFile

_PATH_BYTES, _VERSION_BYTES = 8, 4
_ENTRY_BYTES = _PATH_BYTES + _VERSION_BYTES
_MS = 1_000_000


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
    _text: str | None = None

    @classmethod
    def from_text(cls, text: str) -> ReadFiles:
        data = b64decode(text, validate=True)
        entries = (data[i : i + _ENTRY_BYTES] for i in range(0, len(data) - _ENTRY_BYTES + 1, _ENTRY_BYTES))
        return cls({entry[:_PATH_BYTES]: entry[_PATH_BYTES:] for entry in entries})

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = b64encode(b"".join(sorted(p + v for p, v in self.versions.items()))).decode()
        return self._text

    def has_path(self, file: FoundFile) -> bool:
        return _path_hash(file) in self.versions

    def has(self, file: FoundFile) -> bool:
        return self.versions.get(_path_hash(file)) == _version_hash(file)

    def add(self, file: FoundFile) -> None:
        self.versions[_path_hash(file)] = _version_hash(file)
        self._text = None

    def keep(self, files: Iterable[FoundFile]) -> None:
        """Forget all but these: a file that is gone cannot be met again as it was."""
        there = {_path_hash(file) for file in files}
        if not self.versions.keys() <= there:
            self.versions = {path: version for path, version in self.versions.items() if path in there}
            self._text = None


def _path_hash(file: FoundFile) -> bytes:
    return hashlib.blake2b(file.path.encode(errors="surrogateescape"), digest_size=_PATH_BYTES).digest()


def _version_hash(file: FoundFile) -> bytes:
    text = f"{file.size} {file.modified_ns}"
    return hashlib.blake2b(text.encode(), digest_size=_VERSION_BYTES).digest()


class Progress(Protocol):
    """What was read of the files that a source has, in one of the two modes."""

    reading: Reading | None

    def look(self, files: Sequence[FoundFile]) -> list[FoundFile]:
        """A new listing: which of its files are still to be read, in the order in which they are read."""

    def finish(self, file: FoundFile) -> None:
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
        self._completed: list[Json] | None = None
        self.changed: list[FoundFile] = []
        """Files of the last listing that were read before and have changed since; they are not read again."""

    def look(self, files: Sequence[FoundFile]) -> list[FoundFile]:
        self._files, self._completed = tuple(files), None
        if self._done is None:
            self._done = ReadFiles()
            for file in files:
                if any(first <= _plain(file.path) <= last for first, last in self._old):
                    self._done.add(file)
        self._done.keep(files)
        done = self._done
        self.changed = [file for file in files if done.has_path(file) and not done.has(file)]
        return [file for file in files if not done.has_path(file)]

    def finish(self, file: FoundFile) -> None:
        self._known.add(file)
        self._completed = None

    @property
    def _known(self) -> ReadFiles:
        if self._done is None:
            self._done = ReadFiles()
        return self._done

    def value(self) -> dict[str, Json]:
        if self._completed is None:
            self._completed = self._ranges()
        stored: dict[str, Json] = {"completed": self._completed, "files": self._known.text}
        return stored | ({"reading": self.reading.to_json()} if self.reading else {})

    def _ranges(self) -> list[Json]:
        ranges: list[Json] = []
        first = last = None
        for file in (*self._files, None):
            if file is not None and self._known.has_path(file):
                first, last = first or file.path, file.path
            elif first is not None:
                ranges.append({"first": first, "last": last})
                first = last = None
        return ranges


class ContinuousProgress:
    """Every version of every file is read, the oldest first."""

    def __init__(self, stored: Json, bucket: str = "") -> None:
        value = stored if isinstance(stored, dict) else {}
        self.reading = Reading.from_json(value.get("reading"))
        self._bucket = bucket
        self._done = _read_files(value)
        mark = value.get("last_modified_ms")
        self._watermark: int | None = mark if isinstance(mark, int) else None
        self._boundary = _texts(value.get("boundary_paths"))
        ahead = value.get("committed_ahead")
        self._ahead = (
            [(_ahead_ms(a), str(a["path"])) for a in ahead or () if isinstance(a, dict) and "path" in a]
            if (isinstance(ahead, list))
            else []
        )

    def look(self, files: Sequence[FoundFile]) -> list[FoundFile]:
        if self._done is None:
            self._done = ReadFiles()
            for file in files:
                if self._covered(file):
                    self._done.add(file)
        self._done.keep(files)
        unread = [file for file in files if not self._done.has(file)]
        return sorted(unread, key=lambda file: (file.modified_ns, file.path))

    def _covered(self, file: FoundFile) -> bool:
        """By the rules of a state that does not remember files."""
        modified, path = file.modified_ns // _MS, _plain(file.path)
        if self._watermark is not None and modified < self._watermark:
            return True
        if modified == self._watermark and path in {_comparable(p, self._bucket) for p in self._boundary}:
            return True
        return (modified, path) in {(ms, _comparable(p, self._bucket)) for ms, p in self._ahead}

    def finish(self, file: FoundFile) -> None:
        if self._done is None:
            self._done = ReadFiles()
        self._done.add(file)
        # Files are finished in order: whatever the listing has before this one is done, so the watermark may move here.
        modified = file.modified_ns // _MS
        if self._watermark is None or modified > self._watermark:
            self._watermark, self._boundary = modified, [file.path]
            caught_up = [path for ms, path in self._ahead if ms == modified and path != file.path]
            self._boundary += caught_up
            self._ahead = [(ms, path) for ms, path in self._ahead if ms > modified]
        elif modified == self._watermark and file.path not in self._boundary:
            self._boundary.append(file.path)

    def value(self) -> dict[str, Json]:
        stored: dict[str, Json] = {
            "last_modified_ms": self._watermark if self._watermark is not None else 0,
            "boundary_paths": list(self._boundary),
            "committed_ahead": [{"last_modified_ms": ms, "path": path} for ms, path in self._ahead],
            "files": self._done.text if self._done is not None else "",
        }
        return stored | ({"reading": self.reading.to_json()} if self.reading else {})


def _read_files(value: Mapping[str, Json]) -> ReadFiles | None:
    text = value.get("files")
    try:
        return ReadFiles.from_text(text) if isinstance(text, str) else None
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

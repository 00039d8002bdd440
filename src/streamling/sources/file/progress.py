"""Which files are read, as the state backend stores it.

    <source>:bounded_progress   {"files": ..., "gone": ..., "inodes": ..., "reading": ..., "completed": ...}
    <source>:watermark          {"files": ..., "gone": ..., "inodes": ..., "reading": ..., "last_modified_ms": ..., ...}

`files` decides: it has twelve bytes for every file that was read and is still there, so a hundred thousand files take
about two megabytes.
`gone` has the same for files that were read and no longer exist: a file that comes back unchanged is not read again.
They are in the order in which they disappeared; beyond a limit the oldest are forgotten. The field is absent if empty.
`inodes` has three bytes for each of these files in the same order, first those of `files`, then those of `gone`, from
inode and time of creation: a local file that was renamed is not read again. The field is absent if none is known.
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
from streamling.sources.file.birth import inode_and_birth
from streamling.sources.file.listing import SourceFile
from streamling.sources.file.original_positions import PathRanges, Undo, Watermark

_PATH_BYTES, _VERSION_BYTES = 8, 4
_ENTRY_BYTES = _PATH_BYTES + _VERSION_BYTES
_INODE_BYTES = 3
_NO_INODE = bytes(_INODE_BYTES)
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
    """Files that were read, remembered by hashes of their path, of size and time, and of the inode."""

    versions: dict[bytes, bytes] = field(default_factory=dict)
    gone: dict[bytes, bytes] = field(default_factory=dict)
    """Those that were not in the last listing, in the order in which they disappeared."""
    inodes: dict[bytes, bytes] = field(default_factory=dict)
    """Of both, as far as they are known."""
    _packed: bytearray | None = None
    _packed_inodes: bytearray = field(default_factory=bytearray)

    @classmethod
    def from_value(cls, files: str, gone: str, inodes: str = "") -> ReadFiles:
        versions, absent = _entries(files), _entries(gone)
        data, paths = b64decode(inodes, validate=True), [*versions, *absent]
        known: dict[bytes, bytes] = {}
        if len(data) == len(paths) * _INODE_BYTES:
            hashes = (data[i : i + _INODE_BYTES] for i in range(0, len(data), _INODE_BYTES))
            known = {path: inode for path, inode in zip(paths, hashes, strict=True) if inode != _NO_INODE}
        return cls(versions, absent, known)

    @property
    def value(self) -> dict[str, Json]:
        """As the state backend stores it."""
        if self._packed is None:
            self._packed = bytearray().join(p + v for p, v in self.versions.items())
            self._packed_inodes = bytearray().join(self.inodes.get(p, _NO_INODE) for p in self.versions)
        stored: dict[str, Json] = {"files": b64encode(self._packed).decode()}
        if gone := b"".join(p + v for p, v in self.gone.items()):
            stored["gone"] = b64encode(gone).decode()
        if self.inodes:
            inodes = self._packed_inodes + b"".join(self.inodes.get(p, _NO_INODE) for p in self.gone)
            stored["inodes"] = b64encode(inodes).decode()
        return stored

    def has_path(self, file: SourceFile) -> bool:
        return _path_hash(file) in self.versions

    def has(self, file: SourceFile) -> bool:
        return self.versions.get(_path_hash(file)) == _version_hash(file)

    def add(self, file: SourceFile) -> Undo:
        path, version = _path_hash(file), _version_hash(file)
        before, inode_before = self.versions.get(path), self.inodes.get(path)
        self._set_inode(path, _inode_hash(file))
        # Packed one by one: packing all of them for every offer would take longer than reading small files.
        if self._packed is not None and path not in self.versions:
            self._packed += path + version
            self._packed_inodes += self.inodes.get(path, _NO_INODE)
        else:
            self._packed = None
        self.versions[path] = version

        def undo() -> None:
            self._set_inode(path, inode_before)
            if before is not None:
                self.versions[path] = before
                self._packed = None
                return
            del self.versions[path]
            if self._packed is not None:
                del self._packed[-_ENTRY_BYTES:]
                del self._packed_inodes[-_INODE_BYTES:]

        return undo

    def _set_inode(self, path: bytes, inode: bytes | None) -> None:
        if inode is not None:
            self.inodes[path] = inode
        else:
            self.inodes.pop(path, None)

    def note_existing(self, files: Iterable[SourceFile]) -> list[SourceFile]:
        """Note which of the files are there; returns those that were read under another name.

        A file that comes back unchanged counts as read; if it has changed, it counts as another file. If there are
        no files at all, their directory is missing, and it may come back with them.
        """
        there = {_path_hash(file): file for file in files}
        if not there:
            return []
        renamed = self._follow_renamed(there)
        back = self.gone.keys() & there.keys()
        missing = sorted(self.versions.keys() - there.keys())
        if not back and not missing:
            return renamed
        for path in back:
            version = self.gone.pop(path)
            if version == _version_hash(there[path]):
                self.versions[path] = version
            elif path not in self.versions:
                self.inodes.pop(path, None)
        for path in missing:
            self.gone[path] = self.versions.pop(path)
        for path in list(self.gone)[: max(0, len(self.gone) - MOST_GONE)]:
            del self.gone[path]
            self.inodes.pop(path, None)
        self._packed = None
        return renamed

    def _follow_renamed(self, there: Mapping[bytes, SourceFile]) -> list[SourceFile]:
        """The files that were read under a path which no longer leads to them. They count as read from now on."""
        old = self._moved_away(there)
        if not old:
            return []
        moves: dict[bytes, bytes] = {}
        for path, file in there.items():
            version = _version_hash(file)
            if self.versions.get(path) != version and (inode := _inode_hash(file)) is not None:
                origin = old.pop((version, inode), None)
                if origin is not None and origin != path:
                    moves[path] = origin
        entries = {path: ({**self.gone, **self.versions}[o], self.inodes[o]) for path, o in moves.items()}
        # All old names go before the new ones come: a new name may be the old one of another file.
        for path in (*moves.values(), *moves):
            self.versions.pop(path, None)
            self.gone.pop(path, None)
            self.inodes.pop(path, None)
        for path, (version, inode) in entries.items():
            self.versions[path] = version
            self.inodes[path] = inode
        self._packed = None if moves else self._packed
        return [there[path] for path in moves]

    def _moved_away(self, there: Mapping[bytes, SourceFile]) -> dict[tuple[bytes, bytes], bytes]:
        """The paths of files that were read and are no longer there, by size and time, and inode."""
        read = {path: self.gone[path] for path in self.gone if path in self.inodes}
        for path, version in self.versions.items():
            if path in self.inodes and (path not in there or version != _version_hash(there[path])):
                read[path] = version
        return {(version, self.inodes[path]): path for path, version in read.items()}


def _entries(text: str) -> dict[bytes, bytes]:
    data = b64decode(text, validate=True)
    entries = (data[i : i + _ENTRY_BYTES] for i in range(0, len(data) - _ENTRY_BYTES + 1, _ENTRY_BYTES))
    return {entry[:_PATH_BYTES]: entry[_PATH_BYTES:] for entry in entries}


def _path_hash(file: SourceFile) -> bytes:
    return hashlib.blake2b(file.path.encode(errors="surrogateescape"), digest_size=_PATH_BYTES).digest()


def _version_hash(file: SourceFile) -> bytes:
    text = f"{file.size} {file.modified_ns}"
    return hashlib.blake2b(text.encode(), digest_size=_VERSION_BYTES).digest()


def _inode_hash(file: SourceFile) -> bytes | None:
    """Of the inode and the time of creation; None if they are not known. Only for few files: it asks the system."""
    known = inode_and_birth(file.path) if file.inode else None
    if known is None:
        return None
    return hashlib.blake2b(f"{known[0]} {known[1]}".encode(), digest_size=_INODE_BYTES).digest()


class FileProgress(ABC):
    """What was read of the files of a source. `original`: the same in the form of the original."""

    def __init__(self, stored: Mapping[str, Json], original: PathRanges | Watermark) -> None:
        files = _read_files(stored)
        self.partial = PartialFile.from_json(stored.get("reading"))
        self._original = original
        self._files = files if files is not None else ReadFiles()
        self._is_of_original = files is None
        self.renamed: list[SourceFile] = []
        """Files of the last listing that were read under another name."""

    def note_listing(self, files: Sequence[SourceFile], others: Sequence[SourceFile] = ()) -> list[SourceFile]:
        """A new listing: which of its files are still to be read, in the order in which they are read.

        `others` are there too, and are not to be read.
        """
        if self._is_of_original:
            for file in self._original.covered(files):
                self._files.add(file)
        self._is_of_original = False
        self.renamed = self._files.note_existing((*files, *others))
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
    files, gone, inodes = (value.get(name) for name in ("files", "gone", "inodes"))
    if not isinstance(files, str):
        return None
    try:
        return ReadFiles.from_value(
            files, gone if isinstance(gone, str) else "", inodes if isinstance(inodes, str) else ""
        )
    except Base64Error:
        return None

"""The control side of a file source: which files there are, what was offered of them, what comes next."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamling.connector import Extent, Json, Offer, Room, Slice, Source, SourceCapabilities
from streamling.errors import FILE_CHANGED, PermanentError
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sources.file.decoder import TEXT_FORMATS, FileDecoder
from streamling.sources.file.listing import Listing, SourceFile, file_system, list_files
from streamling.sources.file.original_positions import Undo
from streamling.sources.file.parts import Cutter, FilePart, Position, file_parts, parts_up_to, slice_parts
from streamling.sources.file.progress import BoundedProgress, ContinuousProgress, FileProgress, PartialFile
from streamling.sources.file.reader import FileReader, format_module, place_of
from streamling.sources.file.storage import (
    check_same,
    current_version,
    file_gone,
    naming_node,
    open_unchanged,
    storage_errors,
)
from streamling.spec.mask import mask_url

if TYPE_CHECKING:
    from streamling.sources.file.rows import RowShape

log = logging.getLogger(__name__)

# Every file of an offer is in the record of its epoch.
_MOST_FILES = 1000
# The parts of a slice are made of file parts: the smaller these are, the more equal the parts.
_FILE_PARTS_PER_PART = 4
_FILE_PART_BYTES = 64 << 20
# A process that writes a file in place does so without longer pauses; a file of an object store appears whole.
_STABLE_S = 1.0


@dataclass(slots=True)
class _Steps:
    """What an offer changed, to take it back: the file that was partly read before, and the files it finished."""

    partial: PartialFile | None
    finished: list[tuple[SourceFile, Undo]] = field(default_factory=list)


class FileSource(Source):
    """Offers the files of a path one after the other; large ones in several offers, small ones together."""

    capabilities = SourceCapabilities(takes_back=True)

    def __init__(
        self,
        *,
        node: str,
        name: str,
        path: str,
        format_: str,
        poll_s: float | None,
        parallelism: int | None,
        declared: frozenset[str] | None = frozenset(),
        cursor: str | None = None,
    ) -> None:
        """`declared`: the columns whose types are not inferred, None for all of them. `cursor`: the name in the state
        key, by default that of the node."""
        self._node = node
        self._name = name
        self._path = path
        self._format = format_
        self._poll_s = poll_s
        self._declared = declared
        self._parallelism = parallelism if parallelism or self.bounded else 1
        self._key = f"{cursor or node}:{'bounded_progress' if self.bounded else 'watermark'}"
        self._planned = Schema(())
        self._shape: RowShape | None = None
        self._stored: Json = None
        """The position after the last offer."""
        self._progress: FileProgress = self._make_progress("")
        self._unread: deque[SourceFile] | None = None
        """Files of the last listing; None before the first one."""
        self._cutter: Cutter | None = None
        """Of the first unread file, if it is open."""
        self._parts: list[FilePart] = []
        """For the next offer."""
        self._steps = _Steps(None)
        """Of the next offer."""
        self._last_steps = self._steps
        """Of the last offer."""
        self._finished = 0
        """Files that are finished with the next offer."""
        self._next_listing = 0.0
        self._first_seen: dict[SourceFile, float] = {}
        self._bytes = (0, 0)
        """Of the files of the last listing: those that are finished, and all."""
        self._layout: tuple[str, ...] | None = None
        self._warnings: set[tuple[str, str]] = set()
        self._links_noted = False

    def _make_progress(self, bucket: str) -> FileProgress:
        return BoundedProgress(self._stored, bucket) if self.bounded else ContinuousProgress(self._stored, bucket)

    def prepare(self, columns: Schema, read: Collection[str]) -> None:
        from streamling.sources.file.rows import RowShape

        self._planned = columns
        # Parquet: columns that no node reads are skipped. Other formats decode whole rows: a bad value makes a row bad.
        self.columns = Schema(tuple(f for f in columns if f.name in read)) if self._format == "parquet" else columns
        self._shape = RowShape(self.columns)

    def open(self, positions: Mapping[str, Json]) -> None:
        self._stored = positions.get(self._key)
        self._progress = self._make_progress(
            file_system(self._path)[1].partition("/")[0] if "://" in self._path else ""
        )
        self._unread = None
        self._drop_cutter()
        self._parts = []
        self._finished = 0
        self._steps = _Steps(self._progress.partial)
        self._last_steps = self._steps
        self._next_listing = 0.0
        self._first_seen = {}

    @property
    def bounded(self) -> bool:
        return self._poll_s is None

    @property
    def ended(self) -> bool:
        return self.bounded and self._unread is not None and not self._unread

    def offer(self, room: Room) -> Offer | None:
        # If the store fails while the offer is filled, its parts are kept: the next attempt goes on after them.
        with naming_node(self._name):
            self._fill(room)
        parts, self._parts = self._parts, []
        self._last_steps, self._steps = self._steps, _Steps(self._progress.partial)
        finished, self._finished = self._finished, 0
        if not parts and not finished:
            return None
        end: Json = self._progress.value()
        groups = slice_parts(parts, self._parallelism or room.parts, room.part_rows) if parts else ()
        slice_ = Slice(self._node, self._key, self._stored, end, groups, sum(p.rows for p in parts))
        self._stored = end
        return Offer((slice_,))

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        """Called if the rows are larger than the bytes of their files suggest."""
        parts = [part for group in slice_.parts for part in file_parts(group)]
        if not parts or place == place_of(parts[-1].file, parts[-1].end_position):
            return slice_
        self._drop_cutter()
        if not isinstance(place, list):
            self._return_to(0, self._last_steps.partial)
            self._stored = slice_.start
            return None
        path, *numbers = place
        position = Position(*(int(str(number)) for number in numbers))
        of_file = [part for part in parts if part.file.path == path]
        finished = [file.path for file, _ in self._last_steps.finished]
        whole = path in finished and position == of_file[-1].end_position
        keep = finished.index(str(path)) + whole if path in finished else len(finished)
        self._return_to(keep, None if whole else _partial(of_file[0].file, position))
        self._stored = self._progress.value()
        shortened = parts_up_to(slice_.parts, str(path), position)
        rows = sum(part.rows for group in shortened for part in file_parts(group))
        return replace(slice_, end=self._stored, parts=shortened, rows=rows)

    def _return_to(self, keep: int, partial: PartialFile | None) -> None:
        """Takes back the files that the last offer finished, except for the first `keep`."""
        while len(self._last_steps.finished) > keep:
            file, undo = self._last_steps.finished.pop()
            undo()
            self._unread = self._unread if self._unread is not None else deque()
            self._unread.appendleft(file)
            done, total = self._bytes
            self._bytes = (done - file.size, total)
        self._progress.partial = partial
        self._steps = _Steps(partial)

    # Listing files

    def _list(self) -> None:
        with storage_errors(mask_url(self._path)):
            partial = self._progress.partial
            listing = list_files(self._path, self._format, self._layout, partial.path if partial else None)
        if listing.files:  # the plan was made with this layout; files that come later do not change it
            self._layout = listing.layout
        if listing.links and not self._links_noted:
            self._links_noted = True
            log.warning(
                "source %s: %d paths are links to files or directories that have another name in the source, for "
                "instance '%s'; every file is read once",
                self._name,
                len(listing.links),
                listing.links[0],
            )
        for file in listing.outside:
            self._warn_once(file.path, "is outside the directory layout of the other files and is not read")
        unread = self._progress.note_listing(listing.files, listing.outside)
        for file in self._progress.renamed:
            log.info("source %s: '%s' was read under another name; it is not read again", self._name, file.path)
        if isinstance(self._progress, BoundedProgress):
            for file in self._progress.changed:
                self._warn_once(file.path, "has changed since it was read; a bounded source reads a file once")
        else:
            stable = self._stable(unread)
            wait = self._poll_s or 0.0
            # List again at once while there are new files, and soon if a file is being written.
            wait = 0.0 if stable else min(wait, _STABLE_S) if unread else wait
            unread = stable
            self._next_listing = time.monotonic() + wait
        self._unread = deque(self._with_partial_first(listing, unread))
        # Files without rows may be finished already. They stay finished: steps before a listing cannot be taken back.
        self._steps = _Steps(self._progress.partial)
        total = sum(file.size for file in listing.files)
        self._bytes = (total - sum(file.size for file in self._unread), total)

    def _with_partial_first(self, listing: Listing, unread: list[SourceFile]) -> list[SourceFile]:
        """The file that is partly read comes first. It must not have changed."""
        partial = self._progress.partial
        if partial is None:
            return unread
        file = next((f for f in listing.files if f.path == partial.path), None)
        if file is None:
            raise file_gone(partial.path)
        check_same(SourceFile(partial.path, partial.size, partial.modified_ns), file.size, file.modified_ns)
        return [file, *(f for f in unread if f.path != file.path)]

    def _stable(self, files: list[SourceFile]) -> list[SourceFile]:
        """Files that no process seems to be writing. A file with a time in the future is watched instead."""
        if "://" in self._path:
            return files
        now, wall_ns = time.monotonic(), time.time_ns()
        self._first_seen = {file: self._first_seen.get(file, now) for file in files}
        return [
            f
            for f in files
            if 0 <= f.modified_ns <= wall_ns - _STABLE_S * 1e9 or now - self._first_seen[f] >= _STABLE_S
        ]

    # Filling an offer

    def _fill(self, room: Room) -> None:
        """Cuts parts of files, from the end of the last offer on, until the offer is large enough."""
        parts = self._parallelism or room.parts
        grain = max(room.part_rows, room.rows // (parts * _FILE_PARTS_PER_PART))
        while (rows := room.rows - sum(p.rows for p in self._parts)) > 0 and not self._is_full(room):
            if not self._unread and not self._find_unread():
                return
            part = self._cut(min(rows, grain))
            if part is not None:
                self._parts.append(part)

    def _is_full(self, room: Room) -> bool:
        return self._finished >= _MOST_FILES or sum(p.size for p in self._parts) >= room.bytes

    def _find_unread(self) -> bool:
        if self._unread is None or (not self.bounded and not self._parts and time.monotonic() >= self._next_listing):
            self._list()
        return bool(self._unread)

    def _cut(self, rows: int) -> FilePart | None:
        """The next part of the first unread file; None if it has no more rows, or no longer exists."""
        file = self._first_unread()
        with storage_errors(file.path):
            cutter = self._cutter or self._open_cutter(file)
            if cutter is None:
                return None
            file = self._first_unread()
            try:
                part = cutter.cut(rows, _FILE_PART_BYTES)
            except BaseException:
                # It may have advanced before it failed: the next attempt begins at the end of the last part.
                self._drop_cutter()
                raise
        if part is not None:
            self._progress.partial = _partial(file, Position(cutter.at, cutter.row))
        if part is None or cutter.bytes_done >= file.size:
            cutter.close()
            self._steps.finished.append((file, self._progress.finish(file)))
            self._finished += 1
            self._go_to_next(file)
        return part

    def _first_unread(self) -> SourceFile:
        if not self._unread:
            raise AssertionError("no file is left")
        return self._unread[0]

    def _go_to_next(self, file: SourceFile) -> None:
        self._cutter = None
        self._progress.partial = None
        if self._unread:
            self._unread.popleft()
        done, total = self._bytes
        self._bytes = (done + file.size, total)

    def _open_cutter(self, file: SourceFile) -> Cutter | None:
        """The cutter of a file; None for a file that disappeared or changed before any of its rows was read."""
        if self._shape is None:
            raise AssertionError("the source is not prepared")
        system, _ = file_system(self._path)
        partial = self._progress.partial
        try:
            stream = open_unchanged(system, file)
        except PermanentError as error:
            if partial is not None or error.condition is not FILE_CHANGED:
                raise
            if self.bounded and self._unread:  # there is only one listing, so the file is read as it is now
                self._unread[0] = current_version(system, file)
                return self._open_cutter(self._first_unread())
            log.warning("source %s: '%s' changed or disappeared before it was read", self._name, file.path)
            self._go_to_next(file)
            return None
        at, row = (partial.at, partial.row) if partial else (0, 1)
        module = format_module(self._format)
        try:
            self._cutter, names = module.open_cutter(file, stream, at, row, self._shape)
        except BaseException:
            stream.close()
            raise
        if names is not None:
            self._check_names(file, names)
        return self._cutter

    def _check_names(self, file: SourceFile, names: Sequence[str]) -> None:
        """Warns once per file about missing columns and about columns that are not read."""
        available = {OPERATION_COLUMN, *names, *(name for name, _ in file.partitions)}
        missing = [f.name for f in self._planned if f.name not in available]
        extra = [name for name in names if name not in self._planned]
        if missing and names:
            self._warn_once(file.path, f"lacks columns, which are null in its rows: {', '.join(missing)}")
        if extra:
            self._warn_once(
                file.path, f"has columns that did not exist at the start and are not read: {', '.join(extra)}"
            )

    def _warn_once(self, path: str, what: str) -> None:
        if (path, what) not in self._warnings:
            self._warnings.add((path, what))
            log.warning("source %s: '%s' %s", self._name, path, what)

    # The rest of the contract

    def extent(self) -> Extent | None:
        cutter, (done, total) = self._cutter, self._bytes
        return Extent(done + (cutter.bytes_done if cutter else 0), total, "bytes") if total else None

    def reader(self) -> FileReader:
        declared = frozenset(self.columns.names) if self._declared is None else self._declared
        return FileReader(self._name, self._path, self._format, self.columns, declared)

    def count(self, counts: Mapping[str, int]) -> None:
        from streamling.sources.file.text_rows import parse_unread_fields

        for what in counts:
            if unread := parse_unread_fields(what):
                path, fields = unread
                self._warn_once(
                    path,
                    "has fields that were not in the first megabyte of the first file and are not read; to read them, "
                    f"add them to 'schema' of the source: {', '.join(fields)}",
                )

    def decoder(self) -> FileDecoder | None:
        """Bad rows of Avro and Parquet files have no payload."""
        if self._format not in TEXT_FORMATS:
            return None
        return FileDecoder(self._name, self._path, self._format, self.columns)

    def close(self) -> None:
        self._drop_cutter()

    def _drop_cutter(self) -> None:
        cutter, self._cutter = self._cutter, None
        if cutter is not None:
            cutter.close()


def _partial(file: SourceFile, position: Position) -> PartialFile:
    return PartialFile(file.path, file.size, file.modified_ns, position.at, position.row)

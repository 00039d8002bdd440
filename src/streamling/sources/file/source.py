"""The control side: which files there are, what was offered of them, what comes next."""

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
from streamling.sources.file.listing import FoundFile, Listing, file_system, found_files
from streamling.sources.file.original_positions import Undo
from streamling.sources.file.progress import BoundedProgress, ContinuousProgress, PartialFile, Progress
from streamling.sources.file.reader import FileReader, format_module, place_of
from streamling.sources.file.storage import as_it_is, check_same, gone, naming, open_unchanged, storage_errors
from streamling.sources.file.stretches import Cutter, Position, Stretch, parts_of, parts_up_to, stretches_of
from streamling.spec.secret import mask_url

if TYPE_CHECKING:
    from streamling.sources.file.rows import Shape

log = logging.getLogger(__name__)

# Every file of an offer stands in the record of its epoch.
_MOST_FILES = 1000
# Parts are made of stretches: the finer these are, the more alike the parts.
_STRETCHES_PER_PART = 4
_STRETCH_BYTES = 64 << 20
# Who writes a file in place does so without longer pauses; a file of an object store appears whole.
_SETTLED_S = 1.0


@dataclass(slots=True)
class _Steps:
    """What an offer changed, so that it can be taken back: the file that was partly read before it, and the files that it
    finished."""

    partial: PartialFile | None
    finished: list[tuple[FoundFile, Undo]] = field(default_factory=list)


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
    ) -> None:
        self._node = node
        self._name = name
        self._path = path
        self._format = format_
        self._poll_s = poll_s
        self._parallelism = parallelism if parallelism or self.bounded else 1
        self._key = f"{node}:{'bounded_progress' if self.bounded else 'watermark'}"
        self._cutter: Cutter | None = None
        self._bytes = (0, 0)
        self._layout: tuple[str, ...] | None = None
        self._warned: set[tuple[str, str]] = set()

    def prepare(self, columns: Schema, read: Collection[str]) -> None:
        from streamling.sources.file.rows import Shape

        self._planned = columns
        # Parquet: columns that no node reads are skipped. Other formats decode whole rows: a bad value makes a row bad.
        self.columns = Schema(tuple(f for f in columns if f.name in read)) if self._format == "parquet" else columns
        self._shape: Shape = Shape(self.columns)

    def open(self, positions: Mapping[str, Json]) -> None:
        self._stored = positions.get(self._key)
        bucket = file_system(self._path)[1].partition("/")[0] if "://" in self._path else ""
        make = BoundedProgress if self.bounded else ContinuousProgress
        self._progress: Progress = make(self._stored, bucket)
        self._todo: deque[FoundFile] | None = None
        self._drop_cutter()
        self._gathered: list[Stretch] = []
        self._finished = 0
        self._steps = _Steps(self._progress.partial)
        self._last_steps = self._steps
        self._next_look = 0.0
        self._seen: dict[FoundFile, float] = {}

    @property
    def bounded(self) -> bool:
        return self._poll_s is None

    @property
    def ended(self) -> bool:
        return self.bounded and self._todo is not None and not self._todo

    def offer(self, room: Room) -> Offer | None:
        # What is gathered is kept when a store fails in the middle: the next attempt goes on behind it.
        with naming(self._name):
            self._gather(room)
        stretches, self._gathered = self._gathered, []
        self._last_steps, self._steps = self._steps, _Steps(self._progress.partial)
        finished, self._finished = self._finished, 0
        if not stretches and not finished:
            return None
        end: Json = self._progress.value()
        parts = parts_of(stretches, self._parallelism or room.parts, room.part_rows) if stretches else ()
        slice_ = Slice(self._node, self._key, self._stored, end, parts, sum(s.rows for s in stretches))
        self._stored = end
        return Offer((slice_,))

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        """Rows were longer than the bytes of their files let expect."""
        stretches = [stretch for part in slice_.parts for stretch in stretches_of(part)]
        if not stretches or place == place_of(stretches[-1].file, stretches[-1].behind):
            return slice_
        self._drop_cutter()
        if not isinstance(place, list):
            self._return_to(0, self._last_steps.partial)
            self._stored = slice_.start
            return None
        path, *numbers = place
        position = Position(*(int(str(number)) for number in numbers))
        of_file = [stretch for stretch in stretches if stretch.file.path == path]
        finished = [file.path for file, _ in self._last_steps.finished]
        whole = path in finished and position == of_file[-1].behind
        kept = finished.index(str(path)) + whole if path in finished else len(finished)
        self._return_to(kept, None if whole else _partial(of_file[0].file, position))
        self._stored = self._progress.value()
        parts = parts_up_to(slice_.parts, str(path), position)
        rows = sum(stretch.rows for part in parts for stretch in stretches_of(part))
        return replace(slice_, end=self._stored, parts=parts, rows=rows)

    def _return_to(self, kept: int, partial: PartialFile | None) -> None:
        """Of the files that the last offer finished, all but the first ones are to be read again."""
        while len(self._last_steps.finished) > kept:
            file, undo = self._last_steps.finished.pop()
            undo()
            self._todo = self._todo if self._todo is not None else deque()
            self._todo.appendleft(file)
            done, total = self._bytes
            self._bytes = (done - file.size, total)
        self._progress.partial = partial
        self._steps = _Steps(partial)

    # Looking for files

    def _look(self) -> None:
        with storage_errors(mask_url(self._path)):
            listing = found_files(self._path, self._format, self._layout)
        if listing.files:  # they were planned with; what comes later does not turn them out
            self._layout = listing.layout
        for file in listing.outside:
            self._warn_once(file.path, "lies outside the directory layout of the other files and is not read")
        todo = self._progress.look(listing.files, listing.outside)
        if isinstance(self._progress, BoundedProgress):
            for file in self._progress.changed:
                self._warn_once(file.path, "has changed since it was read; a bounded source reads a file once")
        else:
            unread, todo = todo, self._settled(todo)
            wait = self._poll_s or 0.0
            # Look again at once while something is found, and soon if something seems to be on its way.
            wait = 0.0 if todo else min(wait, _SETTLED_S) if unread else wait
            self._next_look = time.monotonic() + wait
        self._todo = deque(self._resumed(listing, todo))
        # Files that gave no rows may be finished already. They stay so: what was listed before cannot be undone.
        self._steps = _Steps(self._progress.partial)
        total = sum(file.size for file in listing.files)
        self._bytes = (total - sum(file.size for file in self._todo), total)

    def _resumed(self, listing: Listing, todo: list[FoundFile]) -> list[FoundFile]:
        """The file that is half read comes first. It must be what it was."""
        partial = self._progress.partial
        if partial is None:
            return todo
        file = next((f for f in listing.files if f.path == partial.path), None)
        if file is None:
            raise gone(partial.path)
        check_same(FoundFile(partial.path, partial.size, partial.modified_ns), file.size, file.modified_ns)
        return [file, *(f for f in todo if f.path != file.path)]

    def _settled(self, files: list[FoundFile]) -> list[FoundFile]:
        """Files that nobody seems to be writing to. One with a time in the future is watched instead."""
        if "://" in self._path:
            return files
        now, wall_ns = time.monotonic(), time.time_ns()
        self._seen = {file: self._seen.get(file, now) for file in files}
        return [
            f for f in files if 0 <= f.modified_ns <= wall_ns - _SETTLED_S * 1e9 or now - self._seen[f] >= _SETTLED_S
        ]

    # Taking rows

    def _gather(self, room: Room) -> None:
        """Fill the offer: from where the last one ended, file after file, until it is large enough."""
        parts = self._parallelism or room.parts
        grain = max(room.part_rows, room.rows // (parts * _STRETCHES_PER_PART))
        while (rows := room.rows - sum(s.rows for s in self._gathered)) > 0 and not self._enough(room):
            if not self._todo and not self._found_more():
                return
            stretch = self._cut(min(rows, grain))
            if stretch is not None:
                self._gathered.append(stretch)

    def _enough(self, room: Room) -> bool:
        return self._finished >= _MOST_FILES or sum(s.size for s in self._gathered) >= room.bytes

    def _found_more(self) -> bool:
        if self._todo is None or (not self.bounded and not self._gathered and time.monotonic() >= self._next_look):
            self._look()
        return bool(self._todo)

    def _cut(self, rows: int) -> Stretch | None:
        """The next rows of the file in front; None if it has none, or is not there any more."""
        file = self._front()
        with storage_errors(file.path):
            cutter = self._cutter or self._opened(file)
            if cutter is None:
                return None
            file = self._front()
            try:
                stretch = cutter.cut(rows, _STRETCH_BYTES)
            except BaseException:
                # It may have gone on without saying so: the next attempt begins where the last stretch ended.
                self._drop_cutter()
                raise
        if stretch is not None:
            self._progress.partial = _partial(file, Position(cutter.at, cutter.row))
        if stretch is None or cutter.bytes_done >= file.size:
            cutter.close()
            self._steps.finished.append((file, self._progress.finish(file)))
            self._finished += 1
            self._leave(file)
        return stretch

    def _front(self) -> FoundFile:
        if not self._todo:
            raise AssertionError("no file is left")
        return self._todo[0]

    def _replace_front(self, file: FoundFile) -> None:
        if self._todo:
            self._todo[0] = file

    def _leave(self, file: FoundFile) -> None:
        """Go on to the next file."""
        self._cutter, self._progress.partial = None, None
        if self._todo:
            self._todo.popleft()
        done, total = self._bytes
        self._bytes = (done + file.size, total)

    def _opened(self, file: FoundFile) -> Cutter | None:
        """The cutter of a file; None for one that went or changed before anything of it was read."""
        system, _ = file_system(self._path)
        partial = self._progress.partial
        try:
            stream = open_unchanged(system, file)
        except PermanentError as error:
            if partial is not None or error.condition is not FILE_CHANGED:
                raise
            if self.bounded:  # it is listed once, so it is read as it is by now
                self._replace_front(as_it_is(system, file))
                return self._opened(self._front())
            log.warning("source %s: '%s' changed or went before it was read", self._name, file.path)
            self._leave(file)
            return None
        at, row = (partial.at, partial.row) if partial else (0, 1)
        module = format_module(self._format)
        try:
            self._cutter, names = module.open_cutter(file, stream, at, row, self._shape)
        except BaseException:
            stream.close()
            raise
        if names is not None:
            self._compare(file, names)
        return self._cutter

    def _compare(self, file: FoundFile, names: Sequence[str]) -> None:
        """Say once per file which columns it lacks, and which it has for nothing."""
        made = {OPERATION_COLUMN, *(name for name, _ in file.partitions)}
        missing = [f.name for f in self._planned if f.name not in names and f.name not in made]
        extra = [name for name in names if name not in self._planned]
        if missing and names:
            self._warn_once(file.path, f"lacks columns, which are null in its rows: {', '.join(missing)}")
        if extra:
            self._warn_once(
                file.path, f"has columns that were not there at the start and are left out: {', '.join(extra)}"
            )

    def _warn_once(self, path: str, what: str) -> None:
        if (path, what) not in self._warned:
            self._warned.add((path, what))
            log.warning("source %s: '%s' %s", self._name, path, what)

    # The rest of the contract

    def extent(self) -> Extent | None:
        cutter, (done, total) = self._cutter, self._bytes
        return Extent(done + (cutter.bytes_done if cutter else 0), total, "bytes") if total else None

    def reader(self) -> FileReader:
        return FileReader(self._name, self._path, self._format, self.columns)

    def close(self) -> None:
        self._drop_cutter()

    def _drop_cutter(self) -> None:
        cutter, self._cutter = self._cutter, None
        if cutter is not None:
            cutter.close()


def _partial(file: FoundFile, position: Position) -> PartialFile:
    return PartialFile(file.path, file.size, file.modified_ns, position.at, position.row)

"""Finished files in the two forms of the original: ranges of paths (bounded), a watermark of times (continuous).

They decide nothing here, because neither form can tell a file that came late from one that was read; `files` can
(`progress.py`). They are read once, from a state that has no `files`. They are written with every position, because a
stored value must stay usable where the original is: fields may be added to its values, none removed.
"""

from __future__ import annotations

from bisect import bisect, bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from streamling.connector import Json
from streamling.sources.file.listing import SourceFile

Undo = Callable[[], None]
"""Takes back a step. Steps are taken back in reverse order, and none from before the last listing."""

_MS = 1_000_000


class PathRanges:
    """`completed`: inclusive ranges of paths, in the order of the listing."""

    def __init__(self, stored: Mapping[str, Json], bucket: str) -> None:
        ranges = stored.get("completed")
        self._stored = [
            (_comparable(r.get("first"), bucket), _comparable(r.get("last"), bucket))
            for r in (ranges if isinstance(ranges, list) else ())
            if isinstance(r, dict)
        ]
        self._files: Sequence[SourceFile] = ()
        self._places: dict[str, int] = {}
        self._unread: list[int] = []
        """Places in the listing, ascending."""

    def covered(self, files: Iterable[SourceFile]) -> Iterator[SourceFile]:
        """Those files that are finished by the rules of the original."""
        return (f for f in files if any(first <= _plain(f.path) <= last for first, last in self._stored))

    def note_listing(self, files: Sequence[SourceFile], unread: Iterable[SourceFile]) -> None:
        """A new listing in the order of its paths, and which of its files are not read yet."""
        self._files = files
        self._places = {file.path: place for place, file in enumerate(files)}
        self._unread = sorted(self._places[file.path] for file in unread)

    def finish(self, file: SourceFile) -> Undo:
        place = self._places[file.path]
        del self._unread[bisect_left(self._unread, place)]
        return lambda: insort(self._unread, place)

    def value(self) -> dict[str, Json]:
        completed: list[Json] = [
            {"first": self._files[first].path, "last": self._files[end - 1].path} for first, end in self._ranges()
        ]
        return {"completed": completed}

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """The places between unread files. Files that follow each other are skipped at once: there may be many."""
        first, index, unread = 0, 0, self._unread
        while first < len(self._files):
            end = unread[index] if index < len(unread) else len(self._files)
            if end > first:
                yield first, end
            after = bisect(range(len(unread)), end - index, lo=index, key=lambda n: unread[n] - n)
            first, index = end + after - index, after


class Watermark:
    """Files older than `last_modified_ms` are finished, those of that time if they are in `boundary_paths`, later ones
    if they are in `committed_ahead`. The last are never made here: files are finished in the order of their times."""

    def __init__(self, stored: Mapping[str, Json], bucket: str) -> None:
        time, boundary, ahead = (stored.get(key) for key in ("last_modified_ms", "boundary_paths", "committed_ahead"))
        self._bucket = bucket
        # None: nothing is finished. Files may be older than 1970, where times are negative.
        self._time: int | None = time if isinstance(time, int) else None
        self._boundary = [str(path) for path in boundary] if isinstance(boundary, list) else []
        entries = [entry for entry in ahead if isinstance(entry, dict)] if isinstance(ahead, list) else []
        self._ahead = [(_time(entry), str(entry["path"])) for entry in entries if "path" in entry]

    def covered(self, files: Iterable[SourceFile]) -> Iterator[SourceFile]:
        boundary = {_comparable(path, self._bucket) for path in self._boundary}
        ahead = {(time, _comparable(path, self._bucket)) for time, path in self._ahead}
        for file in files:
            modified, path = file.modified_ns // _MS, _plain(file.path)
            at_boundary = modified == self._time and path in boundary
            is_older = self._time is not None and modified < self._time
            if is_older or at_boundary or (modified, path) in ahead:
                yield file

    def finish(self, file: SourceFile) -> Undo:
        modified, time, boundary = file.modified_ns // _MS, self._time, self._boundary
        if time is None or modified > time:
            self._time, self._boundary = modified, [file.path]
        elif modified == time:
            boundary.append(file.path)

        def undo() -> None:
            self._time, self._boundary = time, boundary
            if modified == time:
                boundary.pop()

        return undo

    def value(self) -> dict[str, Json]:
        watermark = self._time or 0
        reached = [path for time, path in self._ahead if time == watermark]
        ahead: list[Json] = [{"last_modified_ms": time, "path": path} for time, path in self._ahead if time > watermark]
        return {
            "last_modified_ms": watermark,
            "boundary_paths": [*self._boundary, *reached],
            "committed_ahead": ahead,
        }


def _time(entry: Mapping[str, Json]) -> int:
    time = entry.get("last_modified_ms")
    return time if isinstance(time, int) else 0


def _plain(path: str) -> str:
    return path.lstrip("/")


def _comparable(stored: Json, bucket: str) -> str:
    """A path of any state in the form of `_plain`: it may have a scheme, or lack a slash or the bucket."""
    path = _plain(str(stored).partition("://")[2] or str(stored))
    return path if not bucket or path.startswith(f"{bucket}/") else f"{bucket}/{path}"

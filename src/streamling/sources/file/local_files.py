"""Local files below a directory, each of them once: links lead to files under other names, or back to a directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_Place = tuple[int, int]
"""Device and inode: what the names of one file or directory have in common."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    path: str
    size: int
    modified_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Files, and the paths that lead to one of them or to a directory above themselves."""

    files: tuple[LocalFile, ...]
    links: tuple[str, ...] = ()


def local_file(path: str) -> LocalFile:
    return _file(path, Path(path).stat())


def walk(base: str, is_match: Callable[[str], bool], keep: str | None = None) -> LocalFiles:
    """All matching files below a directory; names that begin with `.` or `_` are left out. Raises OSError.

    Of several names of a file, one without a symbolic link wins, then the first one; but always the path `keep`.
    """
    try:
        start = Path(base).stat()
    except (FileNotFoundError, NotADirectoryError):
        return LocalFiles(())
    loops: list[str] = []
    found = sorted(_walk(base, is_match, False, ((start.st_dev, start.st_ino),), loops), key=_Found.sort_key(keep))
    names: dict[_Place, str] = {}
    files = tuple(_file(one.path, one.status) for one in found if names.setdefault(one.place, one.path) == one.path)
    return LocalFiles(files, (*loops, *(one.path for one in found if names[one.place] != one.path)))


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    status: os.stat_result
    linked: bool
    """Whether a symbolic link leads to it."""

    @property
    def place(self) -> _Place:
        return self.status.st_dev, self.status.st_ino

    @staticmethod
    def sort_key(keep: str | None) -> Callable[[_Found], tuple[bool, bool, str]]:
        return lambda one: (one.path != keep, one.linked, one.path)


def _walk(
    directory: str, is_match: Callable[[str], bool], linked: bool, above: tuple[_Place, ...], loops: list[str]
) -> Iterator[_Found]:
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:  # removed after its own directory was listed
        return
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        through_link = linked or entry.is_symlink()
        try:
            if entry.is_dir():
                status = entry.stat()
                place = (status.st_dev, status.st_ino)
                if place in above:
                    loops.append(entry.path)
                else:
                    yield from _walk(entry.path, is_match, through_link, (*above, place), loops)
            elif is_match(entry.path) and entry.is_file():
                yield _Found(_text(entry.path), entry.stat(), through_link)
        except FileNotFoundError:  # removed meanwhile, or a link that leads nowhere
            continue


def _file(path: str, status: os.stat_result) -> LocalFile:
    # Arrow, which reads the files, has no time of -1 and gives 0.
    modified_ns = status.st_mtime_ns if status.st_mtime_ns != -1 else 0
    return LocalFile(path, status.st_size, modified_ns, status.st_ino)


def _text(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, f"a name in it is not UTF-8: {os.fsencode(path)!r}") from error
    return path

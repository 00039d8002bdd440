"""The files that a path matches: one file, all files below a directory, or those of a pattern."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from streamling.disk import local_path
from streamling.sources.file.local_files import LocalFiles, local_file, walk
from streamling.spec.mask import remember_url

if TYPE_CHECKING:
    import pyarrow.fs as pafs

EXTENSIONS = {
    "parquet": (".parquet",),
    "csv": (".csv",),
    "json": (".json", ".ndjson", ".jsonl"),
    "ndjson": (".json", ".ndjson", ".jsonl"),
    "jsonl": (".json", ".ndjson", ".jsonl"),
    "avro": (".avro",),
}
_WILD = re.compile(r"[*?\[]")
_PARTITION = re.compile(r"([^=/]+)=([^/]*)")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One version of a file. `partitions` are the leading `key=value` directories between it and the path."""

    path: str
    size: int
    modified_ns: int
    partitions: tuple[tuple[str, str], ...] = ()
    inode: int = field(default=0, compare=False)
    """Of a local file; 0 in an object store."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Files sorted by their paths, and those outside of the directory layout of the others.

    `layout` are the names of the partitions that all files have. `links` are the paths that lead to files or
    directories which the listing has under another name.
    """

    files: tuple[SourceFile, ...]
    outside: tuple[SourceFile, ...] = ()
    layout: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


def file_system(path: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path, and the path within it."""
    import pyarrow.fs as pafs

    if "://" not in path:
        return pafs.LocalFileSystem(), str(local_path(path))
    remember_url(path)  # Arrow quotes it
    scheme, _, rest = path.partition("://")
    # A wildcard is not allowed in a URI: Arrow gets only the bucket and its options.
    bucket, slash, inner = rest.partition("/")
    if ":" in bucket and "@" not in bucket and "@" in inner:
        raise OSError(errno.EINVAL, "a '/' in the password before the '@' must be written as %2F")
    scheme = "s3" if scheme == "s3a" else scheme
    system, root = pafs.FileSystem.from_uri(f"{scheme}://{bucket}")
    return system, f"{root}{slash}{inner}"


def list_files(path: str, format_: str, layout: tuple[str, ...] | None = None, keep: str | None = None) -> Listing:
    """All files that match the path and have an extension of the format, without hidden ones. Raises OSError.

    `layout` is that of an earlier listing; None: the first file with partitions decides. A local file with several
    names is listed once, under the name `keep` if it is one of them.
    """
    if "://" in path:
        return _in_layout(_list_store(path, format_), layout)
    base, pattern = split_pattern(str(local_path(path)))
    if os.path.isfile(base):  # noqa: PTH113 - a listing of many files has no Path objects
        directory = str(PurePosixPath(base).parent)
        found = LocalFiles((local_file(base),) if _is_match(base, directory, None, EXTENSIONS[format_]) else ())
        base = directory
    else:
        found = walk(base, lambda file: _is_match(file, base, pattern, EXTENSIONS[format_]), keep)
    files = [SourceFile(f.path, f.size, f.modified_ns, tuple(_partitions(f.path, base)), f.inode) for f in found.files]
    return replace(_in_layout(sorted(files, key=lambda file: file.path), layout), links=found.links)


def _list_store(path: str, format_: str) -> list[SourceFile]:
    """The files in an object store."""
    import pyarrow.fs as pafs

    system, inner = file_system(path)
    base, pattern = split_pattern(inner)
    start = system.get_file_info(base)
    if start.type == pafs.FileType.File:
        base, infos = str(PurePosixPath(base).parent), [start]
    else:
        infos = system.get_file_info(pafs.FileSelector(base, allow_not_found=True, recursive=True))
    infos = [info for info in infos if info.type == pafs.FileType.File]
    infos = [info for info in infos if _is_match(info.path, base, pattern, EXTENSIONS[format_])]
    files = [
        SourceFile(info.path, info.size or 0, info.mtime_ns or 0, tuple(_partitions(info.path, base))) for info in infos
    ]
    return sorted(files, key=lambda file: file.path)


def matches(path: str, format_: str, file: str) -> bool:
    """Whether the listing of `path` would have a local file with the path `file`. Compares only names."""
    if "://" in path:
        return False
    base, pattern = split_pattern(os.path.normpath(local_path(path)))
    inside = file.startswith(f"{base.rstrip('/')}/")
    return inside and _is_match(file, base, pattern, EXTENSIONS[format_])


def split_pattern(path: str) -> tuple[str, re.Pattern[str] | None]:
    """The directory to list, and the pattern of paths below it; None for a path without wildcards."""
    parts = path.split("/")
    wild = next((i for i, part in enumerate(parts) if _WILD.search(part)), None)
    if wild is None:
        return path.rstrip("/") or "/", None
    return "/".join(parts[:wild]) or "/", re.compile(_translate("/".join(parts[wild:])))


def _translate(pattern: str) -> str:
    """A pattern as a regular expression: `*` and `?` stay within a name, `**` crosses directories."""
    text, position = "", 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**/"):
            text, position = text + "(?:.*/)?", position + 3
        elif rest.startswith("**"):
            text, position = text + ".*", position + 2
        elif rest[0] == "*":
            text, position = text + "[^/]*", position + 1
        elif rest[0] == "?":
            text, position = text + "[^/]", position + 1
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2)
            inside = rest[1:end].replace("\\", "\\\\")
            text += f"[^{inside[1:]}]" if inside[0] == "!" else f"[{inside}]"
            position += end + 1
        else:
            text, position = text + re.escape(rest[0]), position + 1
    return text


def _is_match(path: str, base: str, pattern: re.Pattern[str] | None, extensions: tuple[str, ...]) -> bool:
    inner = relative_path(path, base)
    if not is_visible(inner) or not inner.lower().endswith(extensions):
        return False
    return pattern is None or pattern.fullmatch(inner) is not None


def is_visible(inner: str) -> bool:
    """Whether no directory or file name in the path marks the file as hidden."""
    return not any(part.startswith((".", "_")) for part in inner.split("/"))


def relative_path(path: str, base: str) -> str:
    return path[len(base.rstrip("/")) + 1 :]


def partitions_of(path: str, file: str) -> tuple[tuple[str, str], ...]:
    """The partitions of a file that a listing of `path` has given."""
    base, _ = split_pattern(file_system(path)[1])
    return tuple(_partitions(file, str(PurePosixPath(file).parent) if base == file else base))


def _partitions(path: str, base: str) -> Iterator[tuple[str, str]]:
    for name in relative_path(path, base).split("/")[:-1]:
        partition = _PARTITION.fullmatch(name)
        if partition is None:
            return
        yield partition[1], unquote(partition[2])


def _in_layout(files: list[SourceFile], layout: tuple[str, ...] | None) -> Listing:
    """Without a layout, the first file with partitions decides; files of another layout have other columns."""
    if layout is None:
        layout = next((_names(f) for f in files if f.partitions), ())
    inside = tuple(f for f in files if _names(f) == layout)
    return Listing(inside, tuple(f for f in files if _names(f) != layout), layout)


def _names(file: SourceFile) -> tuple[str, ...]:
    return tuple(name for name, _ in file.partitions)

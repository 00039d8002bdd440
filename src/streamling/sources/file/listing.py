"""Which files a path means: one file, a directory and everything below it, or a pattern."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from streamling.disk import local_path
from streamling.errors import SCHEMA_NOT_FOUND, PermanentError
from streamling.spec.secret import mask_url

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
class FoundFile:
    """A file of a source. `partitions` are the leading `key=value` directories between it and the path."""

    path: str
    size: int
    modified_ns: int
    partitions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """The files in the order of their paths, and those that lie outside the directory layout of the others.

    `layout` are the names of the partitions that all files have.
    """

    files: tuple[FoundFile, ...]
    outside: tuple[FoundFile, ...] = ()
    layout: tuple[str, ...] = ()


def file_system(path: str) -> tuple[pafs.FileSystem, str]:
    """The file system a path stands in, and the path within it."""
    import pyarrow.fs as pafs

    if "://" not in path:
        return pafs.LocalFileSystem(), str(local_path(path))
    scheme, _, rest = path.partition("://")
    # A wildcard is no part of a URI: only bucket and options are handed to Arrow.
    bucket, slash, inner = rest.partition("/")
    scheme = "s3" if scheme == "s3a" else scheme
    found, root = pafs.FileSystem.from_uri(f"{scheme}://{bucket}")
    return found, f"{root}{slash}{inner}"


def list_files(path: str, format_: str) -> Listing:
    """As `found_files`, for who only wants to know the columns. Raises PermanentError."""
    try:
        return found_files(path, format_)
    except (OSError, ValueError) as error:
        raise PermanentError(SCHEMA_NOT_FOUND, f"'{mask_url(path)}' cannot be listed: {error}", cause=error) from error


def found_files(path: str, format_: str, layout: tuple[str, ...] | None = None) -> Listing:
    """All files the path means that have an extension of the format, hidden ones left out. Raises OSError.

    `layout` is that of an earlier listing; None = what is there decides.
    """
    import pyarrow.fs as pafs

    system, inner = file_system(path)
    base, pattern = split(inner)
    start = system.get_file_info(base)
    if start.type == pafs.FileType.File:
        base, infos = str(PurePosixPath(base).parent), [start]
    else:
        infos = system.get_file_info(pafs.FileSelector(base, allow_not_found=True, recursive=True))
    found = [info for info in infos if info.type == pafs.FileType.File]
    try:
        wanted = [info for info in found if _wanted(info.path, base, pattern, EXTENSIONS[format_])]
    except UnicodeDecodeError as error:  # of Arrow, which has only paths that are text
        raise OSError(errno.EILSEQ, f"a name in it is not UTF-8: {error.object!r}") from error
    files = [
        FoundFile(info.path, info.size or 0, info.mtime_ns or 0, tuple(_partitions(info.path, base))) for info in wanted
    ]
    return _in_layout(sorted(files, key=lambda file: file.path), layout)


def means(path: str, format_: str, file: str) -> bool:
    """Whether a local file of this path would be found, if it were there. Looks at names only."""
    if "://" in path:
        return False
    base, pattern = split(os.path.normpath(local_path(path)))
    inside = file.startswith(f"{base.rstrip('/')}/")
    return inside and _wanted(file, base, pattern, EXTENSIONS[format_])


def split(path: str) -> tuple[str, re.Pattern[str] | None]:
    """The directory to list, and what paths below it must look like."""
    parts = path.split("/")
    wild = next((i for i, part in enumerate(parts) if _WILD.search(part)), None)
    if wild is None:
        return path.rstrip("/") or "/", None
    return "/".join(parts[:wild]) or "/", re.compile(_translated("/".join(parts[wild:])))


def _translated(pattern: str) -> str:
    """`*` and `?` stay within a name, `**` crosses directories."""
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


def _wanted(path: str, base: str, pattern: re.Pattern[str] | None, extensions: tuple[str, ...]) -> bool:
    inner = below(path, base)
    if not is_visible(inner) or not inner.lower().endswith(extensions):
        return False
    return pattern is None or pattern.fullmatch(inner) is not None


def is_visible(inner: str) -> bool:
    """Whether no name on the way to a file says that it is not for readers."""
    return not any(part.startswith((".", "_")) for part in inner.split("/"))


def below(path: str, base: str) -> str:
    return path[len(base.rstrip("/")) + 1 :]


def _partitions(path: str, base: str) -> Iterator[tuple[str, str]]:
    for part in below(path, base).split("/")[:-1]:
        found = _PARTITION.fullmatch(part)
        if found is None:
            return
        yield found[1], unquote(found[2])


def _in_layout(files: list[FoundFile], layout: tuple[str, ...] | None) -> Listing:
    """The layout is that of the first file with partitions; files of another layout have other columns."""
    if layout is None:
        layout = next((_names(f) for f in files if f.partitions), ())
    inside = tuple(f for f in files if _names(f) == layout)
    return Listing(inside, tuple(f for f in files if _names(f) != layout), layout)


def _names(file: FoundFile) -> tuple[str, ...]:
    return tuple(name for name, _ in file.partitions)

"""Why a path matches no files: what exists there instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamling.sources.file.listing import EXTENSIONS, file_system, is_visible, relative_path, split_pattern

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".zip")


def reason(path: str, format_: str) -> str:
    """One sentence about a path for which the listing is empty. Raises OSError."""
    import pyarrow.fs as pafs

    system, inner = file_system(path)
    base, pattern = split_pattern(inner)
    start = system.get_file_info(base)
    if start.type == pafs.FileType.NotFound:
        return f"there is no directory '{base}'" if pattern else "there is no file or directory with this name"
    if start.type == pafs.FileType.File:
        return _file_reason(base, format_)
    names = _names(system, base)
    if not names:
        return f"there are no files; at least one {format_} file must exist, because the columns are taken from it"
    visible = [name for name in names if is_visible(name)]
    if not visible:
        return f"names that begin with '.' or '_' are ignored, and there are no others; for example {names[0]}"
    matching = [name for name in visible if pattern is None or pattern.fullmatch(name)]
    if not matching:
        return f"there {_count(visible)} in '{base}', none matches; for example {visible[0]}"
    return _ending_reason(matching, format_)


def _file_reason(path: str, format_: str) -> str:
    if _is_compressed(path, format_):
        return "compressed files are not supported"
    if path.lower().endswith(EXTENSIONS[format_]):
        return "the file exists, but names that begin with '.' or '_' are ignored"
    return f"the file exists, but its name does not end in {' or '.join(EXTENSIONS[format_])}"


def _ending_reason(names: list[str], format_: str) -> str:
    compressed = next((name for name in names if _is_compressed(name, format_)), None)
    if compressed is not None:
        return f"compressed files are not supported; for example {compressed}"
    endings = " or ".join(EXTENSIONS[format_])
    return f"there {_count(names)}, none ends in {endings}; for example {names[0]}"


def _count(names: list[str]) -> str:
    return "is 1 file" if len(names) == 1 else f"are {len(names)} files"


def _is_compressed(name: str, format_: str) -> bool:
    return name.lower().endswith(tuple(e + c for e in EXTENSIONS[format_] for c in _COMPRESSED))


def _names(system: pafs.FileSystem, base: str) -> list[str]:
    """The paths of all files below a directory, relative to it and sorted."""
    import pyarrow.fs as pafs

    infos = system.get_file_info(pafs.FileSelector(base, allow_not_found=True, recursive=True))
    return sorted(relative_path(info.path, base) for info in infos if info.type == pafs.FileType.File)

"""Why a path means no files: what is there instead of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamling.sources.file.listing import EXTENSIONS, below, file_system, is_visible, split

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".zip")


def reason(path: str, format_: str) -> str:
    """One sentence for who has just found nothing. Raises OSError."""
    import pyarrow.fs as pafs

    system, inner = file_system(path)
    base, pattern = split(inner)
    start = system.get_file_info(base)
    if start.type == pafs.FileType.NotFound:
        return f"there is no directory '{base}'" if pattern else "there is neither a file nor a directory of this name"
    if start.type == pafs.FileType.File:
        return _of_one(base, format_)
    names = _names(system, base)
    if not names:
        return f"at least one {format_} file must be there, its columns are taken from it; there are no files"
    seen = [name for name in names if is_visible(name)]
    if not seen:
        return f"names that begin with '.' or '_' are left out, and there are no others; for example {names[0]}"
    matched = [name for name in seen if pattern is None or pattern.fullmatch(name)]
    if not matched:
        return f"there {_counted(seen)} in '{base}', none matches; for example {seen[0]}"
    return _of_endings(matched, format_)


def _of_one(path: str, format_: str) -> str:
    if _is_compressed(path, format_):
        return "compressed files cannot be read yet"
    if path.lower().endswith(EXTENSIONS[format_]):
        return "the file is there, but names that begin with '.' or '_' are left out"
    return f"the file is there, but its name does not end in {' or '.join(EXTENSIONS[format_])}"


def _of_endings(names: list[str], format_: str) -> str:
    packed = next((name for name in names if _is_compressed(name, format_)), None)
    if packed is not None:
        return f"compressed files cannot be read yet; for example {packed}"
    endings = " or ".join(EXTENSIONS[format_])
    return f"there {_counted(names)}, none ends in {endings}; for example {names[0]}"


def _counted(names: list[str]) -> str:
    return "is 1 file" if len(names) == 1 else f"are {len(names)} files"


def _is_compressed(name: str, format_: str) -> bool:
    return name.lower().endswith(tuple(e + c for e in EXTENSIONS[format_] for c in _COMPRESSED))


def _names(system: pafs.FileSystem, base: str) -> list[str]:
    """All files below a directory, by their path within it, in order."""
    import pyarrow.fs as pafs

    infos = system.get_file_info(pafs.FileSelector(base, allow_not_found=True, recursive=True))
    return sorted(below(info.path, base) for info in infos if info.type == pafs.FileType.File)

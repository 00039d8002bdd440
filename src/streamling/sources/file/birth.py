"""When a local file was made. With its inode, that tells a renamed file from a new one on the same inode."""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from typing import Any

# From linux/stat.h.
_AT_FDCWD, _STATX_INO, _STATX_BTIME = -100, 0x100, 0x800
_STATX_BYTES, _INO_OFFSET, _BTIME_OFFSET = 256, 32, 80


def inode_and_birth(path: str) -> tuple[int, int] | None:
    """The inode and the time of creation in nanoseconds; None if the system or the file system does not know it."""
    statx = _statx()
    if statx is None:
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_INO | _STATX_BTIME, buffer) != 0:
        return None
    (mask,) = struct.unpack_from("=I", buffer, 0)
    (inode,) = struct.unpack_from("=Q", buffer, _INO_OFFSET)
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _BTIME_OFFSET)
    return (inode, seconds * 1_000_000_000 + nanoseconds) if mask & _STATX_BTIME else None


@cache
def _statx() -> Any | None:
    """The call of the C library; Python has none of its own. None outside of Linux."""
    try:
        return ctypes.CDLL(None).statx
    except (AttributeError, OSError):
        return None

"""How a process that reads many rows treats its memory: what Python and the C library do by default takes time."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Readers make hundreds of thousands of objects at a time, none of which is part of a cycle. With Python's default of
# 700 the collector would scan them repeatedly, for a third of the time that reading takes.
YOUNG_OBJECTS = 200_000
# The memory of a chunk of rows is freed and allocated again for the next chunk. The C library would return it to the
# kernel in between, which clears every page again: a tenth of the time that reading takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _LARGE_BYTES = 64 << 20, 32 << 20


@contextmanager
def rare_collections() -> Iterator[None]:
    """Objects that exist now are never looked at again, and new ones rarely: for a caller that collects by itself."""
    gc.freeze()
    young, *older = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)


def keep_memory() -> None:
    """Keep some of the memory that is freed, for the rest of the process."""
    with suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)

"""The parent process of the Python workers: it imports once what every worker needs, then forks workers on demand.

Spark starts it because of `spark.python.daemon.module`.
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

import pyarrow
from pyspark.daemon import manager

import streamling.engine.data.dataflow  # readers and writers arrive as pickles that name these modules
from streamling.engine.process.jvm import UMASK_VARIABLE
from streamling.plugin.loading import SHIPPED_PLUGINS

__all__ = ["pyarrow", "streamling"]

# Readers make hundreds of thousands of objects at a time, none of which is part of a cycle. With Python's default of
# 700 the collector would scan them repeatedly, for a third of the time that reading takes.
_YOUNG_OBJECTS = 200_000
# The memory of a chunk of rows is freed and allocated again for the next chunk. The C library would return it to the
# kernel in between, which clears every page again: a tenth of the time that reading takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _LARGE_BYTES = 64 << 20, 32 << 20


def _keep_memory() -> None:
    with suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


def _make_paths_absolute() -> None:
    """A worker may change its working directory; the shipped files stay where they are."""
    if shipped := os.environ.get(SHIPPED_PLUGINS):
        os.environ[SHIPPED_PLUGINS] = str(Path(shipped).absolute())


def _restore_umask() -> None:
    """Java is started with a mask of its own; what workers write has the mode that the user expects."""
    if mask := os.environ.get(UMASK_VARIABLE):
        os.umask(int(mask, 8))


if __name__ == "__main__":
    _restore_umask()
    _make_paths_absolute()
    gc.freeze()  # imported modules never become garbage; workers share their pages as long as nothing writes to them
    gc.set_threshold(_YOUNG_OBJECTS)
    _keep_memory()
    manager()

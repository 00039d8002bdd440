"""The parent of the Python workers: imports once what every worker needs, then forks them on demand.

Spark starts it by `spark.python.daemon.module`.
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
from streamling.plugin.loading import SHIPPED_PLUGINS

__all__ = ["pyarrow", "streamling"]

# Readers make some hundred thousand objects at a time, none of which is ever part of a cycle: with Python's own 700 the
# collector would look at them again and again, for a third of the time that reading takes.
_YOUNG_OBJECTS = 200_000
# What a chunk of rows takes is given back and taken again with the next one. The C library would hand it to the kernel
# in between, which clears every page anew: a tenth of the time that reading takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _LARGE_BYTES = 64 << 20, 32 << 20


def _keep_memory() -> None:
    with suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


def _settle_paths() -> None:
    """A worker may change its working directory; what was shipped stays where it is."""
    if shipped := os.environ.get(SHIPPED_PLUGINS):
        os.environ[SHIPPED_PLUGINS] = str(Path(shipped).absolute())


if __name__ == "__main__":
    _settle_paths()
    gc.freeze()  # what is imported never becomes garbage; workers share its pages as long as nobody touches them
    gc.set_threshold(_YOUNG_OBJECTS)
    _keep_memory()
    manager()

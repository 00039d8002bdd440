"""The parent process of the Python workers: it imports once what every worker needs, then forks workers on demand.

Spark starts it because of `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pyarrow
from pyspark.daemon import manager

import streamling.engine.data.dataflow  # readers and writers arrive as pickles that name these modules
from streamling.engine.process.jvm import UMASK_VARIABLE
from streamling.engine.process.memory import YOUNG_OBJECTS, keep_memory
from streamling.plugin.loading import SHIPPED_PLUGINS

__all__ = ["pyarrow", "streamling"]


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
    gc.set_threshold(YOUNG_OBJECTS)
    keep_memory()
    manager()

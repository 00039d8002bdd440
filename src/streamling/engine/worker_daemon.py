"""The parent of the Python workers: imports once what every worker needs, then forks them on demand.

Spark starts it by `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc

import pyarrow
from pyspark.daemon import manager

import streamling.engine.dataflow  # readers and writers arrive as pickles that name these modules

__all__ = ["pyarrow", "streamling"]

# Readers make some hundred thousand objects at a time, none of which is ever part of a cycle: with Python's own 700 the
# collector would look at them again and again, for a third of the time that reading takes.
_YOUNG_OBJECTS = 200_000

if __name__ == "__main__":
    gc.freeze()  # what is imported never becomes garbage; workers share its pages as long as nobody touches them
    gc.set_threshold(_YOUNG_OBJECTS)
    manager()

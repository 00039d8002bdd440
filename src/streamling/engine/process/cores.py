"""How many tasks can run at once: the cores of this process, or those of the cluster."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from streamling.engine.process.master import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(session: SparkSession) -> int:
    """The cores available now. In a cluster the number changes while executors come and go."""
    context = session.sparkContext
    return local_cores() if is_local(context.master) else max(int(context.defaultParallelism), 1)


def local_cores() -> int:
    """The cores this process may use: limited by the machine, its CPU affinity and its container."""
    counts = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    with suppress(OSError, ValueError):  # no limit is set ("max"), or the system has no cgroups
        quota, period = (int(word) for word in _QUOTA.read_text().split())
        counts.append(max(quota // period, 1))
    return min(counts)

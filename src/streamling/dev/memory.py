"""Checks that servers fit into the memory of this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from streamling.dev.server import DevServer
from streamling.errors import SERVER_FAILED, UserError

_GROUP = Path("/sys/fs/cgroup")


def check_memory(servers: Sequence[DevServer]) -> None:
    """Raises UserError if these servers need more memory than is free: better now than when Java dies half-way."""
    needed, free = sum(server.memory for server in servers), available()
    if needed > free:
        names = " and ".join(server.name for server in servers) + (" needs" if len(servers) == 1 else " need")
        raise UserError(
            SERVER_FAILED,
            f"{names} about {needed / 1e6:,.0f} MB of memory; {free / 1e6:,.0f} MB are available",
            hint="end other programs, or start fewer servers at once",
        )


def available() -> int:
    """Bytes that can be used without swapping, of the machine and of the container."""
    sizes: list[int] = [psutil.virtual_memory().available]
    with suppress(OSError, ValueError):  # the container has no limit, or there is no container
        limit, used = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        # The cgroup counts cached files as used, although the kernel can drop them.
        cached = re.search(r"^inactive_file (\d+)", (_GROUP / "memory.stat").read_text(), re.MULTILINE)
        sizes.append(limit - used + (int(cached[1]) if cached else 0))
    return min(sizes)

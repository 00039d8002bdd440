"""Whether there is room for servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from streamling.dev.server import Server
from streamling.errors import SERVER_FAILED, UserError

_MEMORY, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def check_memory(servers: Sequence[Server]) -> None:
    """Raises UserError if these servers do not fit beside what runs: better now than when Java dies half-way."""
    needed, free = sum(server.memory for server in servers), available()
    if free is not None and needed > free:
        names = " and ".join(server.name for server in servers)
        raise UserError(
            SERVER_FAILED,
            f"{names} need about {needed / 1e6:,.0f} MB of memory; {free / 1e6:,.0f} MB are available",
            hint="end other programs, or start fewer servers at once",
        )


def available() -> int | None:
    """Bytes that can be had without swapping, of the machine and of the container; None where nobody knows."""
    sizes = []
    with suppress(OSError):
        if found := re.search(r"^MemAvailable:\s+(\d+) kB", _MEMORY.read_text(), re.MULTILINE):
            sizes.append(int(found[1]) * 1024)
    with suppress(OSError, ValueError):  # there is no limit, or no such thing as one
        most, used = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        # Files that were read and may be forgotten count as used there.
        found = re.search(r"^inactive_file (\d+)", (_GROUP / "memory.stat").read_text(), re.MULTILINE)
        sizes.append(most - used + (int(found[1]) if found else 0))
    return min(sizes, default=None)

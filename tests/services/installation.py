"""Where servers of other projects are kept between test runs, and where they listen."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx


def installed(name: str, fetch: Callable[[Path], Path]) -> Path:
    """A server's home, once per user. `fetch` gets an empty directory and gives what is to be kept of it.

    A half-made installation is never found under its final name.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamling" / "servers"
    home = cache / name
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            shutil.move(fetch(Path(temporary)), home)
    return home


def check_hash(file: Path, sha256: str) -> None:
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != sha256:
        raise RuntimeError(f"{file.name} has the hash {found}, not {sha256}")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def wait_for_answer(url: str, server: subprocess.Popen[bytes], *, seconds: float, said: Callable[[], str]) -> None:
    """Until a GET succeeds. `said` gives what the server wrote, for the error when it ends or stays silent."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server of {url} ended with {server.returncode}: {said()}")
        try:
            if httpx.get(url, timeout=5).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer within {seconds} s: {said()}")

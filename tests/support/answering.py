"""Waiting for servers that tests start by themselves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import httpx


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

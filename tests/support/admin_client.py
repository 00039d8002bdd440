"""The admin API of a pipeline that a test runs."""

from __future__ import annotations

import re
from typing import Any

import httpx

from support.harness import Running

INSPECT: dict[str, object] = {"LIVE_DATA_INSPECT_ENABLED": "true", "ADMIN_API_PORT": 0}
"""Settings with which a pipeline has an admin API on a free port, and samples its rows."""


def client_of(run: Running, **more: Any) -> httpx.Client:
    """A client of its admin API, whose address is in the log."""
    found: list[str] = []

    def listens() -> bool:
        found[:] = re.findall(r"admin API listens on (http://\S+)", run.stderr)
        return bool(found)

    run.until(listens, "the address of the admin API")
    return httpx.Client(base_url=found[0], timeout=30, trust_env=False, **more)

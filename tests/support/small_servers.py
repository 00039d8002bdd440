"""Servers that start in a moment, for tests of the stack. As a program: `small_servers.py DIRECTORY SECONDS`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx

from streamling.dev.observer import Observer
from streamling.dev.server import HOST, DevServer, Site
from streamling.dev.stack import Stack

_SERVE = """
import http.server, sys, time
time.sleep(float(sys.argv[2]))
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""


class Web(DevServer):
    """Answers after `seconds`."""

    name, version, port = "web", "1", 48_123
    inner_ports = ("inner",)
    memory = 1_000_000
    start_seconds = 20.0
    stop_seconds = 5.0

    def __init__(self, seconds: float = 0.0, command: list[str] | None = None, **facts: Any) -> None:
        self._seconds = seconds
        self._command = command
        self._lacking = facts.pop("lacking", None)
        self.fetched = False
        for name, value in facts.items():
            setattr(self, name, value)

    def check(self) -> None:
        if self._lacking:
            raise self._lacking

    def home(self, observer: Observer) -> Path:
        self.fetched = True
        return Path(sys.prefix)

    def command(self, home: Path, site: Site) -> list[str]:
        return self._command or [sys.executable, "-c", _SERVE, str(site.ports["web"]), str(self._seconds)]

    def ping(self, site: Site) -> None:
        httpx.get(self.address(site), timeout=1).raise_for_status()

    def address(self, site: Site) -> str:
        return f"http://{HOST}:{site.ports['web']}/"

    def variables(self, site: Site) -> dict[str, str]:
        return {"WEB": self.address(site)}


def web_stack(directory: Path, observer: Observer | None = None, **facts: Any) -> Stack:
    return Stack(directory, observer, {"web": Web(**facts)})


if __name__ == "__main__":
    web_stack(Path(sys.argv[1]), seconds=float(sys.argv[2])).up(["web"])

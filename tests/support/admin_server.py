"""The admin API of a run without an engine, and clients that read its events."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from streamling.engine.execution import Execution
from streamling.engine.protocol.health import Health
from streamling.engine.protocol.pending import Journal
from streamling.engine.protocol.progress import Progress
from streamling.engine.protocol.state.memory import MemoryState
from streamling.spec.settings import Settings
from streamling.spec.settings.environment_only import RuntimeLimits
from streamling.telemetry.inspection import Samples, samples_for
from streamling.web.server import AdminServer, admin_api
from streamling.web.view import RunView
from support.doubles import plan_of


@dataclass
class Served:
    server: AdminServer
    progress: Progress
    samples: Samples | None
    client: httpx.Client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def connect(self, text: str, receive_buffer: int | None = None) -> socket.socket:
        """A connection on which this was sent."""
        client = socket.socket()
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(20)
        client.connect(("127.0.0.1", self.server.port))
        client.sendall(text.encode())
        return client


@contextmanager
def served(*, host: str = "127.0.0.1", token: str | None = None, running: bool = True, **more: Any) -> Iterator[Served]:
    """The admin API of a pipeline with the source `numbers` and the sink `out`; `more` are settings."""
    limits = RuntimeLimits.model_validate({"admin_api_host": host, "admin_api_token": token})
    chosen = {"live_data_inspect_enabled": True, "admin_api_port": 0, "runtime": limits, **more}
    settings = Settings.model_validate(chosen)
    progress, samples = Progress(), samples_for(settings)
    plan = plan_of(["numbers"], ["out"])
    if running:
        progress.set_plan(plan)
        progress.set_running({}, {}, bounded=False)
    if samples is not None:
        samples.set_nodes(["numbers"])
    execution = Execution(Path("p.yaml"), settings, progress, samples)
    execution.journal = Journal(MemoryState(), recording=False)
    view = RunView("p.yaml", settings, execution, progress, Health(progress, 300), samples)
    with admin_api(view, settings) as server:
        assert server is not None
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=20, trust_env=False) as client:
            yield Served(server, progress, samples, client)


def events(lines: Iterator[str], count: int) -> list[Any]:
    """The next so many events of a stream, without comments; fewer if it ends."""
    return list(islice(stream_events(lines), count))


def stream_events(lines: Iterator[str]) -> Iterator[Any]:
    for line in lines:
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
        else:
            assert line == "" or line.startswith(":"), line


def request(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"


def read_all(client: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    found = b""
    try:
        while data := client.recv(65536):
            found += data
    except ConnectionError:
        pass
    return found

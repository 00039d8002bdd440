"""A real Prometheus, from the PATH or from Debian's package: it scrapes a text, and answers questions about it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from streamling.dev.processes import free_ports
from support.debian_package import fetch_package

_START_SECONDS = 60
# Ends with its standard input, also when the tests are killed.
_WHILE_INPUT_LASTS = '"$@" & cat > /dev/null; kill -9 $!'


def program(name: str) -> Path:
    """`prometheus` or `promtool`. Raises NotToBeHad."""
    found = shutil.which(name)
    return Path(found) if found else fetch_package("prometheus") / "usr" / "bin" / name


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now. Raises AssertionError for one that is not valid."""
        answer = httpx.get(f"{self._url}/api/v1/query", params={"query": expression}, timeout=30).json()
        assert answer["status"] == "success", (expression, answer)
        return answer["data"]["result"]

    def rules(self) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self._url}/api/v1/rules", timeout=30).json()
        return [rule for group in answer["data"]["groups"] for rule in group["rules"]]


@contextmanager
def text_page(text: Callable[[], str], content_type: str) -> Iterator[str]:
    """A server that answers every GET with a new text; its `host:port`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextmanager
def prometheus(target: str, rules: Path) -> Iterator[Prometheus]:
    """Scrapes `host:port` every second. Series that have `job` and `instance` keep them. Raises NotToBeHad."""
    path = program("prometheus")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="streamling-tests-") as temporary:
        directory = Path(temporary)
        (directory / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: ['{rules.absolute()}']\n"
            "scrape_configs:\n"
            f"  - {{job_name: streamling, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}\n"
        )
        command = [
            str(path),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WHILE_INPUT_LASTS, "sh", *command],
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait(f"http://127.0.0.1:{port}", directory / "log")
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            process.communicate()


def _wait(url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            if httpx.get(f"{url}/-/ready", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        if time.monotonic() > deadline:
            raise AssertionError(log.read_text())
        time.sleep(0.1)

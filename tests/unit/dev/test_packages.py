"""Packages are downloaded once, and used only with the pinned content."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import IO

import pytest

from streamling.dev.observer import Observer
from streamling.dev.packages import Artifact, Download, fetch_artifacts, install, pinned_artifacts
from streamling.errors import PACKAGE_CHANGED, PACKAGE_NOT_FETCHED, StreamlingError

CONTENT = b"a program" * 1000
GOOD = hashlib.sha256(CONTENT).hexdigest()
_DESCRIPTION = """<ivy-module version="2.0">
  <info organisation="acme" module="tool" revision="1.0"/>
  <configurations><conf name="default" extends="master"/><conf name="master"/></configurations>
  <publications><artifact name="tool" type="jar" ext="jar" conf="master"/></publications>
</ivy-module>
"""


class Steps(Observer):
    def __init__(self) -> None:
        self.steps: list[tuple[str, int, int]] = []

    def progress(self, what: str, done: int, total: int) -> None:
        self.steps.append((what, done, total))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "streamling" / "servers"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in the home directory of Java, the only one it can reach; returns the file in it."""
    place = tmp_path / "home" / ".ivy2" / "local" / "acme" / "tool" / "1.0"
    (place / "ivys").mkdir(parents=True)
    (place / "ivys" / "ivy.xml").write_text(_DESCRIPTION)
    (place / "jars").mkdir()
    (place / "jars" / "tool.jar").write_bytes(CONTENT)
    no_way_out = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={tmp_path / 'home'} {no_way_out}")
    return place / "jars" / "tool.jar"


def tool(name: str = "tool") -> Artifact:
    return Artifact(GOOD, len(CONTENT), "acme", name, "1.0")


def fetch(artifact: Artifact, observer: Observer) -> Path:
    def one(directory: Path, lock: IO[bytes]) -> Path:
        (file,) = fetch_artifacts("tool 1.0", [artifact], directory, lock, observer)
        return file

    return install("tool-1.0", one, observer)


@pytest.mark.parametrize("name", ["kafka", "registry"])
def test_every_pinned_file_is_named_once_with_its_hash(name: str) -> None:
    artifacts = pinned_artifacts(name)
    assert len({artifact.file_name for artifact in artifacts}) == len(artifacts) > 0
    assert all(len(bytes.fromhex(artifact.sha256)) == 32 and artifact.size > 0 for artifact in artifacts)


def test_a_classifier_is_part_of_the_file_name() -> None:
    assert [artifact.file_name for artifact in pinned_artifacts("registry")] == [
        "apicurio-registry-app-3.3.3-all.tar.gz"
    ]


@pytest.mark.spark
def test_a_package_is_fetched_with_its_progress_and_then_found(repository: Path, cache: Path) -> None:
    observer = Steps()
    home = fetch(tool(), observer)
    assert home.read_bytes() == CONTENT
    assert observer.steps[-1] == ("tool 1.0", len(CONTENT), len(CONTENT))
    repository.unlink()
    assert fetch(tool(), Observer()) == home
    assert {entry.name for entry in cache.iterdir()} == {"tool-1.0", ".tool-1.0.lock"}


@pytest.mark.spark
def test_a_file_with_other_content_is_not_used_and_not_kept(repository: Path, cache: Path) -> None:
    repository.write_bytes(b"another program")
    with pytest.raises(StreamlingError) as caught:
        fetch(tool(), Observer())
    assert caught.value.condition is PACKAGE_CHANGED
    assert "tool-1.0.jar" in caught.value.message
    repository.write_bytes(CONTENT)
    assert fetch(tool(), Observer()).read_bytes() == CONTENT


@pytest.mark.spark
def test_without_a_network_the_reason_is_quoted(repository: Path, cache: Path) -> None:
    with pytest.raises(StreamlingError) as caught:
        fetch(tool("unheard-of"), Observer())
    assert caught.value.condition is PACKAGE_NOT_FETCHED
    assert "ConnectException" in (caught.value.quote or "")
    assert "proxy" in (caught.value.hint or "")
    assert not (cache / "tool-1.0").exists()


def test_a_fetch_that_fails_leaves_nothing_under_the_final_name(cache: Path) -> None:
    def half(directory: Path, _: IO[bytes]) -> Path:
        (directory / "half").write_text("")
        raise OSError("the connection was lost")

    with pytest.raises(OSError, match="lost"):
        install("thing", half, Observer())
    assert not (cache / "thing").exists()

    def rest(directory: Path, _: IO[bytes]) -> Path:
        assert (directory / "half").exists()
        (directory / "whole").mkdir()
        return directory / "whole"

    assert install("thing", rest, Observer()) == cache / "thing"


def test_two_that_want_a_package_at_once_fetch_it_once(cache: Path) -> None:
    calls: list[Path] = []
    both = threading.Barrier(2, timeout=10)

    def slowly(directory: Path, _: IO[bytes]) -> Path:
        calls.append(directory)
        threading.Event().wait(0.3)
        (directory / "whole").mkdir()
        return directory / "whole"

    def want() -> None:
        both.wait()
        install("thing", slowly, Observer())

    threads = [threading.Thread(target=want) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(calls) == 1
    assert (cache / "thing").exists()


def test_the_frame_around_a_reason_is_left_out(tmp_path: Path) -> None:
    command = ["printf", "\t::::::\n\t:: tool;1.0: not found\n\t::::::\n\n"]
    with (tmp_path / "lock").open("wb") as lock, pytest.raises(StreamlingError) as caught:
        Download("a tool", command, 1, tmp_path, lock, hint="", files=[tmp_path / "tool.jar"]).run(Observer())
    assert caught.value.quote == "tool;1.0: not found"

"""A class archive is used only for the Java and the jars it was made with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamling.engine.process import archive, training
from streamling.engine.process.archive import archive_path, find_archive
from streamling.engine.process.jvm import flags
from streamling.errors import PermanentError


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java installation and two jars that are files only."""
    home, jars = tmp_path / "jdk", tmp_path / "jars"
    for file in (home / "bin" / "java", home / "release", home / "lib" / "server" / "libjvm.so"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    jars.mkdir()
    for name in ("a.jar", "b.jar"):
        (jars / name).write_text(name)
    monkeypatch.setattr(archive, "spark_jars", lambda: sorted(jars.glob("*.jar")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home / "bin" / "java"


def touched(file: Path) -> None:
    os.utime(file, ns=(1, 1))


CHANGES = {
    "a jar is added": lambda root: (root / "jars" / "c.jar").write_text(""),
    "a jar is removed": lambda root: (root / "jars" / "a.jar").unlink(),
    "a jar is renamed": lambda root: (root / "jars" / "a.jar").rename(root / "jars" / "z.jar"),
    "a jar has another size": lambda root: (root / "jars" / "a.jar").write_text("longer than before"),
    "a jar has another time": lambda root: touched(root / "jars" / "a.jar"),
    "Java is upgraded in place": lambda root: touched(root / "jdk" / "lib" / "server" / "libjvm.so"),
    "Java has another release": lambda root: (root / "jdk" / "release").write_text("17.0.99"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_archive_is_another_one_when(change: str, java: Path, tmp_path: Path) -> None:
    before = archive_path(java)
    assert archive_path(java) == before
    CHANGES[change](tmp_path)
    assert archive_path(java) != before


def test_the_archive_is_another_one_when_a_flag_changes(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive_path(java)
    monkeypatch.setattr(archive, "flags", lambda version: (*flags(version), "-XX:+UseParallelGC"))
    assert archive_path(java) != before


def test_a_link_to_java_leads_to_the_same_archive(java: Path, tmp_path: Path) -> None:
    link = tmp_path / "java"
    link.symlink_to(java)
    assert archive_path(link) == archive_path(java)


def test_the_archive_lives_in_the_cache_of_the_user(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive_path(java).parent == tmp_path / "cache" / "streamling"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert archive_path(java).parent == tmp_path / "home" / ".cache" / "streamling"


def test_a_start_uses_the_archive_only_if_it_is_there(java: Path) -> None:
    assert find_archive(java) is None
    path = archive_path(java)
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert find_archive(java) == path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What was started in the background."""
    started: list[list[str]] = []
    monkeypatch.setattr(training.subprocess, "Popen", lambda command, **options: started.append(command))
    return started


def test_an_archive_that_is_missing_is_trained_in_the_background_once(java: Path, commands: list[list[str]]) -> None:
    path = archive_path(java)
    assert training.train_in_background(java, path)
    assert not training.train_in_background(java, path), "the first one is under way"
    assert [command[-2:] for command in commands] == [["setup", "--quiet"]]


def test_an_archive_that_exists_is_not_trained_again(java: Path, commands: list[list[str]]) -> None:
    path = archive_path(java)
    path.parent.mkdir(parents=True)
    path.touch()
    assert not training.train_in_background(java, path)
    assert commands == []


def test_where_no_process_can_be_started_the_run_ends_as_usual(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(command: list[str], **options: object) -> None:
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(training.subprocess, "Popen", refuse)
    assert not training.train_in_background(java, archive_path(java))


def test_a_training_that_hangs_is_an_error_and_leaves_no_file(
    java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hanging = tmp_path / "python"
    hanging.write_text('#!/bin/sh\ntouch "$STREAMLING_TRAIN_ARCHIVE"\nexec sleep 60\n')
    hanging.chmod(0o755)
    monkeypatch.setattr(training.sys, "executable", str(hanging))
    monkeypatch.setattr(training, "_make_base_archive", lambda java: None)
    monkeypatch.setattr(training, "_TIMEOUT_S", 0.5)
    path = archive_path(java)
    with pytest.raises(PermanentError, match="did not end within"):
        training.train(java, path)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(("version", "unsafe"), [(17, False), (21, False), (25, True), (None, False)])
def test_flags_are_those_the_java_knows(version: int | None, unsafe: bool) -> None:
    """An older Java refuses to start with an option of a newer one."""
    assert ("--sun-misc-unsafe-memory-access=allow" in flags(version)) is unsafe

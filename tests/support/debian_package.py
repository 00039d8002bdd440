"""Programs of Debian and its relatives, unpacked into the cache directory of the user: nothing is installed."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

from streamling.dev.observer import Observer
from streamling.dev.packages import install

_FETCH_SECONDS = 300


class NotToBeHad(Exception):
    """Why there is no such program on this machine."""


def fetch_package(name: str) -> Path:
    """The directory with the files of the package. Raises NotToBeHad."""
    if not all(shutil.which(program) for program in ("apt-get", "dpkg-deb", "dpkg-query")):
        raise NotToBeHad(f"there is no {name} on the PATH, and no apt-get to fetch it")
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "unknown")
    try:
        return install(f"{name}-{release}", partial(_unpacked, name), Observer())
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise NotToBeHad(f"{name} could not be fetched: {said.strip().splitlines()[-1]}") from error


def _unpacked(name: str, directory: Path, _: IO[bytes]) -> Path:
    """The package, and of the libraries it names those that this machine lacks."""
    home = directory / "home"
    package = _package(name, directory)
    _run(["dpkg-deb", "-x", str(package), str(home)])
    needed = _run(["dpkg-deb", "-f", str(package), "Depends"])
    for other in (alternative.split("|")[0].split("(")[0].strip() for alternative in needed.split(",")):
        if other.startswith("lib") and not other.startswith("libjs-") and not _is_installed(other):
            _run(["dpkg-deb", "-x", str(_package(other, directory)), str(home)])
    return home


def _package(name: str, directory: Path) -> Path:
    """As apt is set up here, with lists of our own if the machine has none."""
    place = directory / name
    place.mkdir(exist_ok=True)
    try:
        _run(["apt-get", "download", name], place)
    except subprocess.CalledProcessError:
        lists = directory / "lists"
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        private = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={directory / 'cache'}"]
        _run(["apt-get", *private, "update"])
        _run(["apt-get", *private, "download", name], place)
    (file,) = place.glob("*.deb")
    return file


def _is_installed(name: str) -> bool:
    asked = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", name]
    return subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout.startswith("installed")


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=_FETCH_SECONDS)
    return done.stdout

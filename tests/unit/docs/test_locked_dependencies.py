"""The lock file and pyproject.toml tell the same story."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.]+)", re.MULTILINE)


def locked() -> dict[str, list[str]]:
    """Versions by package; a package may be pinned several times, for different versions of Python."""
    found: dict[str, list[str]] = {}
    for match in PINNED.finditer(LOCK):
        found.setdefault(canonicalize_name(match["name"]), []).append(match["version"])
    return found


def test_every_dependency_is_locked_within_its_bounds() -> None:
    project = PROJECT["project"]
    requirements = (
        project["dependencies"] + project["optional-dependencies"]["java"] + PROJECT["dependency-groups"]["dev"]
    )
    versions = locked()
    wrong = [
        text
        for text in requirements
        if not (found := versions.get(canonicalize_name((wanted := Requirement(text)).name)))
        or not all(wanted.specifier.contains(version) for version in found)
    ]
    assert wrong == [], "run `make lock`"


def test_the_lock_file_names_no_place_to_download_from() -> None:
    assert "://" not in LOCK


def test_every_locked_package_has_a_hash() -> None:
    entries = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []

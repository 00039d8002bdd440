"""The local disk: safe names, durable renames, errors classified as transient or permanent."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamling.errors import SINK_FAILED, PermanentError, TransientError
from streamling.spec.pipeline import NodeSpec

# Errors that may pass: disk full, over quota, an I/O error, a file server that does not answer.
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN})


def safe_name(ref: str) -> str:
    """A file name for a node, whose own name may have any characters. Different nodes get different names."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in ref).lstrip("._")
    return safe if safe == ref else f"{safe or 'node'}-{hashlib.sha256(ref.encode()).hexdigest()[:8]}"


def local_path(text: str) -> Path:
    """An absolute path; a leading `~` is the home directory."""
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 - leaves a name alone that is not a user's


def sync_directory(directory: Path) -> None:
    """Make files created or renamed in a directory survive a power failure."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def disk_errors(node: NodeSpec | str, field: str = "path") -> Iterator[None]:
    """Turn errors of the file system into ours: transient ones are retried, the others end the run.

    `field` is the option of the node with the path it writes to.
    """
    try:
        yield
    except OSError as error:
        label, name = (node, node) if isinstance(node, str) else (node.described(), node.name)
        text = f"{label}: {error.strerror or error}: {error.filename}" if error.filename else f"{label}: {error}"
        where = None if isinstance(node, str) else node.locate(field)
        kind = TransientError if error.errno in _PASSING else PermanentError
        raise kind(SINK_FAILED, text, node=name, where=where, cause=error) from error

"""The local disk: names that are safe and durable, errors by class."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamling.errors import SINK_FAILED, PermanentError, TransientError
from streamling.spec.pipeline import NodeSpec

# What a disk may recover from: full, over quota, an I/O error, a file server that does not answer.
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN})


def safe_name(ref: str) -> str:
    """A node may be called almost anything; its directory and files may not. Different nodes get different names."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in ref).lstrip("._")
    return safe if safe == ref else f"{safe or 'node'}-{hashlib.sha256(ref.encode()).hexdigest()[:8]}"


def local_path(text: str) -> Path:
    """A path as people write it, absolute; a leading `~` is the home directory."""
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 - leaves alone what names no user


def sync_directory(directory: Path) -> None:
    """Make names created or moved in a directory survive a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def disk_errors(node: NodeSpec | str, field: str = "path") -> Iterator[None]:
    """Errors of the file system as ours: those that may pass are retried, the others end the run.

    `field` is the option of the node that says where it writes.
    """
    try:
        yield
    except OSError as error:
        who, name = (node, node) if isinstance(node, str) else (node.described(), node.name)
        text = f"{who}: {error.strerror or error}: {error.filename}" if error.filename else f"{who}: {error}"
        where = None if isinstance(node, str) else node.locate(field)
        kind = TransientError if error.errno in _PASSING else PermanentError
        raise kind(SINK_FAILED, text, node=name, where=where, cause=error) from error

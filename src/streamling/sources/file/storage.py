"""Access to stored files: opens them, checks that they are unchanged, classifies the errors of the store."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamling.errors import FILE_CHANGED, SOURCE_FAILED, PermanentError, StreamlingError, TransientError
from streamling.sources.file.listing import SourceFile
from streamling.spec.mask import mask_text

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_SECOND = 1_000_000_000
_TRANSIENT = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EMFILE, errno.ENFILE})
# Arrow reports the errors of object stores only as text; these are the names of transient errors at AWS and Google.
_TRANSIENT_TEXT = re.compile(
    r"AWS Error (NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN|SERVICE_UNAVAILABLE|THROTTLING|INTERNAL_FAILURE"
    r"|REQUEST_TIME_TOO_SKEWED|UNKNOWN \(HTTP status 5\d\d\))|curlCode|UNAVAILABLE|DEADLINE_EXCEEDED|timed? ?out",
    re.IGNORECASE,
)


@contextmanager
def naming_node(node: str) -> Iterator[None]:
    """Adds the name of the node to errors of ours that have none."""
    try:
        yield
    except StreamlingError as error:
        error.node = error.node or node
        raise


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Raises the errors of a store while `what` is read as TransientError, which is retried, or PermanentError."""
    try:
        yield
    except StreamlingError:
        raise
    except FileNotFoundError as error:
        raise file_gone(what, cause=error) from error
    except OSError as error:
        transient = error.errno in _TRANSIENT if error.errno else _TRANSIENT_TEXT.search(str(error)) is not None
        kind = TransientError if transient else PermanentError
        raise kind(SOURCE_FAILED, f"'{what}' cannot be read: {mask_text(str(error))}", cause=error) from error


def file_gone(path: str, *, cause: BaseException | None = None) -> PermanentError:
    return PermanentError(
        FILE_CHANGED,
        f"'{path}' is gone, but not all of its rows are delivered",
        hint="put the unchanged file back; or give up its remaining rows with `streamling state reset`, after which "
        "all files are read again",
        cause=cause,
    )


def open_unchanged(system: pafs.FileSystem, file: SourceFile) -> Any:
    """Opens the file for reading. Raises PermanentError FILE_CHANGED if it is no longer this version."""
    check_unchanged(system, file)
    return system.open_input_file(file.path)


def check_unchanged(system: pafs.FileSystem, file: SourceFile) -> None:
    """Raises PermanentError FILE_CHANGED."""
    now = current_version(system, file)
    check_same(file, now.size, now.modified_ns)


def current_version(system: pafs.FileSystem, file: SourceFile) -> SourceFile:
    """The file with its current size and time. Raises PermanentError FILE_CHANGED if it is gone."""
    import pyarrow.fs as pafs

    info = system.get_file_info(file.path)
    if info.type != pafs.FileType.File:
        raise file_gone(file.path)
    return replace(file, size=info.size or 0, modified_ns=info.mtime_ns or 0)


def check_same(file: SourceFile, size: int, modified_ns: int) -> None:
    """Raises PermanentError FILE_CHANGED if size or time are not those of the file."""
    if size == file.size and _same_time(modified_ns, file.modified_ns):
        return
    what = f"its size was {file.size} bytes and is {size}" if size != file.size else "it was written again"
    raise PermanentError(
        FILE_CHANGED,
        f"'{file.path}' has changed, but not all rows of its old content are delivered: {what}",
        hint="restore the old content with its modification time; put new content into a new file that is written "
        "elsewhere and moved into place when it is complete",
    )


def _same_time(one: int, other: int) -> bool:
    """Some stores give milliseconds in a listing and whole seconds for a single file."""
    return one == other or (one // _SECOND == other // _SECOND and 0 in (one % _SECOND, other % _SECOND))

"""Files where they are stored: opened, looked at again, and the errors of the store as ours."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamling.errors import FILE_CHANGED, SOURCE_FAILED, PermanentError, StreamlingError, TransientError
from streamling.sources.file.listing import FoundFile

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_SECOND = 1_000_000_000
_PASSING = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EMFILE, errno.ENFILE})
# Arrow hands the errors of object stores over as text only; these are the names AWS and Google give to what may pass.
_PASSING_TEXT = re.compile(
    r"AWS Error (NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN|SERVICE_UNAVAILABLE|THROTTLING|INTERNAL_FAILURE"
    r"|REQUEST_TIME_TOO_SKEWED|UNKNOWN \(HTTP status 5\d\d\))|curlCode|UNAVAILABLE|DEADLINE_EXCEEDED|timed? ?out",
    re.IGNORECASE,
)


@contextmanager
def naming(node: str) -> Iterator[None]:
    """Errors of ours that pass get the name of the node, where they have none."""
    try:
        yield
    except StreamlingError as error:
        error.node = error.node or node
        raise


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """What a store raises while `what` is read: tried again if it may pass, else the end of the run."""
    try:
        yield
    except StreamlingError:
        raise
    except FileNotFoundError as error:
        raise gone(what, cause=error) from error
    except OSError as error:
        passing = error.errno in _PASSING if error.errno else _PASSING_TEXT.search(str(error)) is not None
        kind = TransientError if passing else PermanentError
        raise kind(SOURCE_FAILED, f"'{what}' cannot be read: {error}", cause=error) from error


def gone(path: str, *, cause: BaseException | None = None) -> PermanentError:
    return PermanentError(
        FILE_CHANGED,
        f"'{path}' is gone before all of its rows are delivered",
        hint="put the file back as it was; or, to give up its remaining rows, `streamling state reset` and start anew",
        cause=cause,
    )


def open_unchanged(system: pafs.FileSystem, file: FoundFile) -> Any:
    """The file for reading, if it still is the one that was found."""
    check_unchanged(system, file)
    return system.open_input_file(file.path)


def check_unchanged(system: pafs.FileSystem, file: FoundFile) -> None:
    """Raises PermanentError FILE_CHANGED."""
    now = as_it_is(system, file)
    check_same(file, now.size, now.modified_ns)


def as_it_is(system: pafs.FileSystem, file: FoundFile) -> FoundFile:
    """The file with its size and time of now. Raises PermanentError FILE_CHANGED if it is gone."""
    import pyarrow.fs as pafs

    info = system.get_file_info(file.path)
    if info.type != pafs.FileType.File:
        raise gone(file.path)
    return replace(file, size=info.size or 0, modified_ns=info.mtime_ns or 0)


def check_same(file: FoundFile, size: int, modified_ns: int) -> None:
    """That a file is what it was. Raises PermanentError FILE_CHANGED."""
    if size == file.size and _same_time(modified_ns, file.modified_ns):
        return
    what = f"its size was {file.size} bytes and is {size}" if size != file.size else "it was written again"
    raise PermanentError(
        FILE_CHANGED,
        f"'{file.path}' has changed before all of its rows are delivered: {what}",
        hint="put the old content back, with its modification time; new content belongs in a new file, written "
        "elsewhere and moved into place when it is complete",
    )


def _same_time(one: int, other: int) -> bool:
    """Some stores tell milliseconds when they list and whole seconds when they are asked."""
    return one == other or (one // _SECOND == other // _SECOND and 0 in (one % _SECOND, other % _SECOND))

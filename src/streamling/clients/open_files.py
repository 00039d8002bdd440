"""The files this process has open, sockets and pipes included, and how many it may have."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

# Plenty for any run. The hard limit may be a billion, and some libraries visit every possible file when they fork.
_ENOUGH = 1 << 16


def raise_file_limit() -> None:
    """Raise the soft limit to the hard one: it is 1,024 on most systems, whatever the machine could do."""
    with suppress(ImportError, OSError, ValueError):  # not everywhere, and not more than the system allows
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def file_limit() -> int | None:
    """How many files this process may have open; None if that is unknown or unlimited."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def is_out_of_files() -> bool:
    """Whether this process cannot open another file. Client libraries report that only as a failed connection."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False

"""What `spark.master` says: whether executors are in this process or elsewhere, and how they reach the driver."""

from __future__ import annotations

import re
import socket
from contextlib import suppress

LOOPBACK = "127.0.0.1"
_LOCAL = re.compile(r"local(\[.*\])?")
_ADDRESS = re.compile(r"(?:spark|k8s)://(?:https?://)?(?P<host>\[[^]]+\]|[^:/,]+)(?::(?P<port>\d+))?")


def is_local(master: str) -> bool:
    """Whether tasks run in the JVM beside the driver."""
    return _LOCAL.fullmatch(master) is not None


def driver_address(master: str) -> str | None:
    """The address of this machine under which executors reach the driver; None if only Spark can tell.

    It is the one from which this machine sends to the master.
    """
    if master.startswith("local"):  # `local-cluster` starts its executors on this machine
        return LOOPBACK
    found = _ADDRESS.match(master)
    if found is None:
        return None
    host, port = found["host"].strip("[]"), int(found["port"] or 443)
    with suppress(OSError):  # the name is not known here; Spark says so when it connects
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # sends nothing: it only chooses a route
                return str(probe.getsockname()[0])
    return None

"""What `spark.master` says: whether executors are in this process or elsewhere, and how they reach the driver."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress

from streamling.errors import SPARK_FAILED, PermanentError

LOOPBACK = "127.0.0.1"
_LOCAL = re.compile(r"local(\[.*\])?")
_SCHEME = re.compile(r"(?:spark|k8s)://(?:https?://)?")
_ADDRESS = re.compile(r"(?P<host>\[[^]]+\]|[^:/,]+)(?::(?P<port>\d+))?")
_DEFAULT_PORT = 443  # of Kubernetes; Spark refuses an address of its own without a port
# A host that is there answers within milliseconds, or refuses.
_CONNECT_S = 5.0


def is_local(master: str) -> bool:
    """Whether tasks run in the JVM beside the driver."""
    return _LOCAL.fullmatch(master) is not None


def driver_address(master: str) -> str | None:
    """The address of this machine under which executors reach the driver; None if only Spark can tell.

    It is the one from which this machine sends to the master.
    """
    if master.startswith("local"):  # `local-cluster` starts its executors on this machine
        return LOOPBACK
    host, port = next(iter(_addresses(master)), (None, None))
    if host is None:
        return None
    with suppress(OSError):  # the name is not known here
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # sends nothing: it only chooses a route
                return str(probe.getsockname()[0])
    return None


def check_reachable(master: str) -> None:
    """Raises PermanentError if no standalone master listens there. Spark itself would try for more than a minute, and
    then say only that its context has stopped."""
    if not master.startswith("spark://"):
        return
    failures = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), _CONNECT_S).close()
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise PermanentError(
        SPARK_FAILED,
        f"no Spark master answers at {master} ({'; '.join(failures) or 'no address'})",
        hint="check the setting spark.master, and whether the master runs",
    )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    """Hosts and ports; `spark://a:7077,b:7077` names several masters, one of which leads."""
    scheme = _SCHEME.match(master)
    for part in master[scheme.end() :].split(",") if scheme else ():
        if found := _ADDRESS.match(part):
            yield found["host"].strip("[]"), int(found["port"] or _DEFAULT_PORT)

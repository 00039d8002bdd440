"""The setting `spark.master`: whether executors run in the driver's JVM or elsewhere, and how they reach the driver."""

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
_DEFAULT_PORT = 443  # of Kubernetes; Spark does not accept the address of a standalone master without a port
# A running host accepts or refuses a connection within milliseconds.
_CONNECT_S = 5.0


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's JVM."""
    return _LOCAL.fullmatch(master) is not None


def driver_address(master: str) -> str | None:
    """The address of this machine at which executors reach the driver; None if only Spark knows it.

    It is the address from which this machine sends to the master.
    """
    if master.startswith("local"):  # `local-cluster` starts its executors on this machine
        return LOOPBACK
    host, port = next(iter(_addresses(master)), (None, None))
    if host is None:
        return None
    with suppress(OSError):  # this machine cannot resolve the name
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # sends nothing: it only chooses a route
                return str(probe.getsockname()[0])
    return None


def check_reachable(master: str) -> None:
    """Raises PermanentError if no standalone master listens there. Spark itself would retry for more than a minute,
    and then report only that its context has stopped."""
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
        hint="check the setting spark.master, and that the master is running",
    )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    """Hosts and ports; `spark://a:7077,b:7077` names several masters, one of which is the leader."""
    scheme = _SCHEME.match(master)
    for text in master[scheme.end() :].split(",") if scheme else ():
        if address := _ADDRESS.match(text):
            yield address["host"].strip("[]"), int(address["port"] or _DEFAULT_PORT)

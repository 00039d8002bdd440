"""What live inspection costs: small epochs of queries that Spark computes together, and throughput with a hundred
clients, one of which never reads and one of which leaves in the middle of events.

The runs with and without it alternate, because the machine changes more than the result.
"""

from __future__ import annotations

import re
import selectors
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.figure import Figure
from bench.processes import epochs, pipeline, wait_for

_SMALL = """\
sources:
  orders: {type: generator, rows: 1000000000, rate: 500, primary_key: id}
transforms:
  even: {type: sql, primary_key: id, sql: SELECT id FROM orders WHERE id % 2 = 0}
  doubled: {type: sql, primary_key: id, sql: "SELECT id, id * 2 AS twice FROM even"}
  named: {type: sql, primary_key: id, sql: "SELECT id, twice, concat('c-', id) AS name FROM doubled"}
sinks:
  out: {type: blackhole, from: named}
"""
_LARGE = _SMALL.replace(", rate: 500", "")
_INSPECT = {"LIVE_DATA_INSPECT_ENABLED": "true", "ADMIN_API_PORT": "0"}
_REQUEST = b"GET /admin/live-data HTTP/1.1\r\nHost: localhost\r\n\r\n"
_CLIENTS = 100
_WARM_UP, _SMALL_EPOCHS = 30, 250
_LARGE_WARM_UP, _LARGE_S, _LARGE_ROUNDS = 4, 40.0, 3
# A busy machine takes ten times as long as a quiet one.
_LONGEST_S = 600.0


def inspection() -> Iterator[Figure]:
    plain, inspected = [], []
    for _ in range(2):
        plain.append(_mean_ms({}))
        inspected.append(_mean_ms(_INSPECT))
    ratio = statistics.mean(inspected) / statistics.mean(plain)
    compared = f"{statistics.mean(inspected):.1f} ms, without {statistics.mean(plain):.1f} ms"
    yield Figure("inspection, small epochs", f"{ratio:.3f} x", compared, "<= 1.05 x", ratio <= 1.05)
    rates, growths = [], []
    plain = [_rows_per_second({}, clients=False)[0]]
    for _ in range(_LARGE_ROUNDS):
        rate, megabytes = _rows_per_second(_INSPECT, clients=True)
        rates.append(rate)
        growths.append(megabytes)
        plain.append(_rows_per_second({}, clients=False)[0])
    with_clients, without, growth = statistics.median(rates), statistics.median(plain), max(growths)
    share = with_clients / without
    compared = f"{with_clients:,.0f} rows/s, without {without:,.0f}"
    yield Figure(f"inspection, {_CLIENTS} clients", f"{share:.3f} x", compared, ">= 0.95 x", share >= 0.95)
    yield Figure(
        "inspection, memory", f"{growth:+.0f} MB", f"of the driver in {_LARGE_S:.0f} s", "<= 30 MB", growth <= 30
    )


def _mean_ms(settings: dict[str, str]) -> float:
    """The average duration of small epochs."""
    with pipeline(_SMALL, {"RECORD_BATCH_INTERVAL_MS": "0", **settings}) as (process, log):
        wait_for(process, lambda: len(epochs(log)) >= _WARM_UP + _SMALL_EPOCHS, _LONGEST_S)
        return statistics.mean(epoch.ms for epoch in epochs(log)[_WARM_UP:])


def _rows_per_second(settings: dict[str, str], *, clients: bool) -> tuple[float, float]:
    """Rows per second of large epochs, and by how many megabytes the driver has grown meanwhile."""
    with pipeline(_LARGE, settings) as (process, log):
        wait_for(process, lambda: len(epochs(log)) >= _LARGE_WARM_UP, _LONGEST_S)
        with _connected(process, log) if clients else _nobody():
            first, before = len(epochs(log)), _memory(process)
            time.sleep(_LARGE_S)
            wait_for(process, lambda: len(epochs(log)) >= first + 2, _LONGEST_S)
            found, after = epochs(log)[first - 1 :], _memory(process)
    rows = sum(epoch.rows for epoch in found[1:])
    return rows / (found[-1].at - found[0].at), after - before


def _memory(process: subprocess.Popen[str]) -> float:
    return float(psutil.Process(process.pid).memory_info().rss) / 1e6


@contextmanager
def _nobody() -> Iterator[None]:
    yield


@contextmanager
def _connected(process: subprocess.Popen[str], log: Path) -> Iterator[None]:
    """A hundred clients of the live data."""
    found = re.search(r"admin API listens on http://127.0.0.1:(\d+)", log.read_text())
    if found is None or process.poll() is not None:
        raise RuntimeError("the pipeline has no admin API")
    port, done = int(found[1]), threading.Event()
    threads = [threading.Thread(target=run, args=(port, done), daemon=True) for run in (_read, _leave, _get_stuck)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.sendall(_REQUEST)
    return client


def _read(port: int, done: threading.Event) -> None:
    with selectors.DefaultSelector() as selector:
        for _ in range(_CLIENTS - 2):
            selector.register(_connect(port), selectors.EVENT_READ)
        while not done.is_set():
            for key, _ in selector.select(0.2):
                if isinstance(key.fileobj, socket.socket) and not key.fileobj.recv(1 << 16):
                    raise RuntimeError("a client was disconnected")
        for key in list(selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()


def _leave(port: int, done: threading.Event) -> None:
    while not done.wait(0.5):
        with _connect(port) as client:
            client.recv(300)


def _get_stuck(port: int, done: threading.Event) -> None:
    with _connect(port):
        done.wait()

"""Rows posted with httpx alone: `http_loop.py URL ROWS ROWS_PER_REQUEST [THREADS]`.

0 rows per request: a row is the body. The rows are ready in memory; every thread has its own client and sends one
request after the other. Prints rows per second, after a warm-up."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

url, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
threads = int(sys.argv[4]) if len(sys.argv) > 4 else 1
rows = [{"id": n, "customer": f"c-{n % 1000}", "amount": n / 8, "_gs_op": "i"} for n in range(count)]
bodies: list[Any] = rows if size == 0 else [rows[start : start + size] for start in range(0, count, size)]
skipped = len(bodies) // 10
own = threading.local()


def post(body: Any) -> None:
    if not hasattr(own, "client"):
        own.client = httpx.Client()
    own.client.post(url, json=body).raise_for_status()


def post_all(some: list[Any]) -> None:
    if pool is None:
        for body in some:
            post(body)
    else:
        list(pool.map(post, some))


pool = ThreadPoolExecutor(threads) if threads > 1 else None
post_all(bodies[:skipped])
began = time.perf_counter()
post_all(bodies[skipped:])
took = time.perf_counter() - began
print((len(bodies) - skipped) * (size or 1) / took)

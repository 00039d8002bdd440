"""Rows posted with httpx alone, one request after the other: `http_loop.py URL ROWS ROWS_PER_REQUEST`; 0 per request: a
row is the body. The rows are ready in memory. Prints rows per second, after a warm-up."""

from __future__ import annotations

import sys
import time

import httpx

url, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rows = [{"id": n, "customer": f"c-{n % 1000}", "amount": n / 8, "_gs_op": "i"} for n in range(count)]
bodies = rows if size == 0 else [rows[start : start + size] for start in range(0, count, size)]
skipped = len(bodies) // 10
with httpx.Client() as client:
    for body in bodies[:skipped]:
        client.post(url, json=body).raise_for_status()
    began = time.perf_counter()
    for body in bodies[skipped:]:
        client.post(url, json=body).raise_for_status()
    took = time.perf_counter() - began
print((len(bodies) - skipped) * (size or 1) / took)

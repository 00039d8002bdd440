"""A function in Python for every row, beside a user-defined function of PySpark that does the same."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import pairwise

from bench.figure import Figure
from bench.processes import epochs, pipeline, run_plain

_PIPELINE = """\
sources:
  orders:
    type: generator
    rows: {rows}
    primary_key: id
    columns: {{id: id, customer: "concat('c-', id % 1000)", amount: "round(random() * 100, 2)"}}
transforms:
  shaped:
    type: python
    from: orders
    primary_key: id
    deterministic: true
    code: |
      def process(row):
          if row["id"] % 10 == 0:
              return None
          return {{"id": row["id"], "customer": row["customer"].upper(), "amount": row["amount"] * 1.19}}
sinks:
  out: {{type: blackhole, from: shaped}}
"""
_EPOCH_ROWS = 500_000


def python(rows: int = 3_000_000) -> Iterator[Figure]:
    """Rows per second of the epochs after the first, which starts the workers."""
    ours = python_rate(rows)
    plain = statistics.median(map(float, run_plain("python_udf.py", str(_EPOCH_ROWS), "4")[1:]))
    yield Figure(
        "python, per row",
        f"{ours:,.0f} rows/s",
        f"{ours / plain:.2f} x a UDF of PySpark ({plain:,.0f})",
        ">= 1.5 x",
        ours >= 1.5 * plain,
    )


def python_rate(rows: int) -> float:
    settings = {"STATE_BACKEND__BACKEND_TYPE": "InMemory", "EPOCH__ROWS": str(_EPOCH_ROWS)}
    with pipeline(_PIPELINE.format(rows=rows), settings) as (process, log):
        process.communicate(timeout=600)
        found = epochs(log)
    return statistics.median(now.rows / (now.at - before.at) for before, now in pairwise(found) if now.rows >= 100_000)

"""A script over a million rows: beside a Python function that Spark calls for every row, and beside node."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from bench.figure import Figure
from bench.processes import epochs, pipeline, run_plain

_PLAIN = Path(__file__).parent / "plain"
_PIPELINE = """\
sources:
  orders:
    type: generator
    rows: {rows}
    primary_key: id
    columns:
      id: id
      name: concat('customer ', id % 997)
      email: concat('User', id, '@Example.COM')
      amount: round(random() * 1000, 2)
      quantity: id % 50
      city: case id % 3 when 0 then 'Berlin' when 1 then 'Paris' else 'Rome' end
transforms:
{shaped}
sinks:
  out: {{type: blackhole, from: shaped}}
"""
_WORK = """\
  shaped:
    type: script
    from: orders
    language: javascript
    primary_key: id
    schema: {id: int64, name: string, domain: string, total: float64, city: string}
    script: |
      function process(row) {
        if (row.quantity < 5) return null;
        const total = Math.round(row.amount * row.quantity * 100) / 100;
        const domain = row.email.split("@")[1].toLowerCase();
        return { id: row.id, name: row.name.toUpperCase(), domain, total, city: row.city.slice(0, 3) };
      }
"""
_IDENTITY = """\
  shaped: {type: script, from: orders, language: javascript, primary_key: id, script: row => row}
"""
_UDF_BAR = 1.5
_BATCH_ROWS = 250_000


def script(rows: int = 1_000_000) -> Iterator[Figure]:
    """Rows per second on two cores: of the best large epoch, and of the best batch, in two rounds that alternate."""
    ours, udf = 0.0, 0.0
    for _ in range(2):
        ours = max(ours, script_rate(rows, _WORK))
        udf = max(udf, *(float(line) for line in run_plain("script_udf.py", str(_BATCH_ROWS), "3")))
    yield Figure(
        "script",
        f"{ours:,.0f} rows/s",
        f"{ours / udf:.2f} x a Python UDF per row ({udf:,.0f})",
        f">= {_UDF_BAR} x",
        ours >= _UDF_BAR * udf,
    )
    if shutil.which("node"):
        node = _node_rate(rows // 4)
        yield Figure("script beside node", f"{ours:,.0f} rows/s", f"{ours / node:.0%} of node ({node:,.0f})", "", True)
    identity = script_rate(rows, _IDENTITY)
    yield Figure("script, identity", f"{identity:,.0f} rows/s", "", "", True)


def script_rate(rows: int, shaped: str = _WORK) -> float:
    """Of the best large epoch of a run."""
    settings = {
        "STATE_BACKEND__BACKEND_TYPE": "InMemory",
        "EPOCH__ROWS": str(_BATCH_ROWS),
        "SPARK__MASTER": "local[2]",
    }
    with pipeline(_PIPELINE.format(rows=rows, shaped=shaped), settings) as (process, log):
        process.communicate(timeout=600)
        found = epochs(log)
    return max(b.rows / (b.at - a.at) for a, b in pairwise(found) if b.rows > _BATCH_ROWS // 2)


def _node_rate(rows: int) -> float:
    cities = ("Berlin", "Paris", "Rome")
    with tempfile.TemporaryFile("w+") as lines:
        for n in range(rows):
            row = {"id": n, "name": f"customer {n % 997}", "email": f"User{n}@Example.COM", "amount": n % 9973 / 10}
            lines.write(json.dumps({**row, "quantity": n % 50, "city": cities[n % 3]}) + "\n")
        lines.seek(0)
        began = time.perf_counter()
        subprocess.run(
            ["node", str(_PLAIN / "script_node.js")], stdin=lines, stdout=subprocess.DEVNULL, check=True, timeout=600
        )
        return rows / (time.perf_counter() - began)

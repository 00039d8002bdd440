"""The numbers we guard. Each function runs one measurement and returns a `Figure`, or gives several."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.dataset

from bench.clickhouse import clickhouse, clickhouse_postgres
from bench.clickhouse_sink import clickhouse_sink
from bench.dead_letters import dead_letters
from bench.figure import Figure
from bench.files import files
from bench.http import http
from bench.inspection import inspection
from bench.kafka import kafka
from bench.kafka_latency import kafka_latency
from bench.kafka_sink import kafka_sink
from bench.lookups import lookups
from bench.postgres import postgres
from bench.postgres_aggregate import postgres_aggregate
from bench.postgres_latency import postgres_latency
from bench.processes import cpu_seconds, epochs, pipeline, rss_bytes, run_plain, wait_for
from bench.python import python
from bench.script import script
from bench.telemetry import telemetry
from bench.transform import transform

_SMALL = """\
sources:
  orders: {{type: generator, primary_key: id, {how}, columns: {{id: id, customer: "concat('c-', id % 3)"}}}}
transforms:
  shouted: {{type: sql, primary_key: id, sql: "SELECT id, upper(customer) AS customer FROM orders WHERE id % 10 <> 0"}}
sinks:
  out: {{type: {sink}, from: shouted}}
"""
_LARGE = """\
sources:
  orders:
    type: generator
    rows: {rows}
    primary_key: id
    columns: {{id: id, customer: "concat('c-', id % 1000)", amount: "round(random() * 100, 2)"}}
transforms:
  kept:
    type: sql
    primary_key: id
    sql: SELECT id, upper(customer) AS customer, amount * 2 AS amount FROM orders WHERE id % 10 <> 0
sinks:
  out: {{type: blackhole, from: kept}}
"""


def first_row(rounds: int = 3) -> Figure:
    """Process start to first row, interleaved with a plain PySpark script."""
    ours, plain = [], []
    for _ in range(rounds):
        ours.append(seconds_to_first_row())
        plain.append(_plain_first_row())
    mine, other = statistics.median(ours), statistics.median(plain)
    ratio = mine / other
    return Figure(
        "first row after start",
        f"{mine:.1f} s",
        f"{ratio:.2f} x plain PySpark ({other:.1f} s)",
        "<= 0.50 x",
        ratio <= 0.5,
    )


def seconds_to_first_row() -> float:
    """Of one run of ours."""
    began = time.monotonic()
    with pipeline(_SMALL.format(how="rows: 100", sink="print")) as (process, _log):
        if not process.stdout or not process.stdout.readline():
            raise RuntimeError("the pipeline printed nothing")
        took = time.monotonic() - began
        process.communicate(timeout=60)
    return took


def _plain_first_row() -> float:
    began = time.monotonic()
    script = Path(__file__).parent / "plain" / "first_row.py"
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        if not process.stdout or not process.stdout.readline():
            raise RuntimeError("the plain script printed nothing")
        took = time.monotonic() - began
        process.communicate(timeout=60)
    return took


def small_epoch() -> Figure:
    """An epoch of 100 rows in a warm run: read, record, SQL, write, finalize."""
    mine = small_epoch_ms()
    plain = [float(line) for line in run_plain("small_batches.py", "300")][150:]
    other = statistics.median(plain)
    ratio = mine / other
    return Figure(
        "small epoch (100 rows), median",
        f"{mine:.0f} ms",
        f"{ratio:.2f} x a bare PySpark batch ({other:.0f} ms)",
        "< 150 ms",
        mine < 150,
    )


def small_epoch_ms() -> float:
    """The median of one run of ours."""
    settings = {"RECORD_BATCH_INTERVAL_MS": "100"}
    with pipeline(_SMALL.format(how="rate: 1000", sink="blackhole"), settings) as (process, log):
        wait_for(process, lambda: len(epochs(log)) >= 300, 120)
        return statistics.median(e.ms for e in epochs(log)[150:] if 50 <= e.rows <= 200)


def throughput() -> Figure:
    """Steady rate of large epochs, generator -> SQL -> blackhole."""
    mine = rows_per_second()
    other = statistics.median([float(line) for line in run_plain("throughput.py", "2000000", "10")][3:])
    return Figure(
        "rows per second",
        f"{mine:,.0f}",
        f"{mine / other:.2f} x Spark alone ({other:,.0f})",
        ">= 1,000,000",
        mine >= 1e6,
    )


def rows_per_second(rows: int = 40_000_000) -> float:
    """Of the large epochs of one run of ours, behind the first ones."""
    with pipeline(_LARGE.format(rows=rows)) as (process, log):
        process.communicate(timeout=300)
        large = [e for e in epochs(log) if e.rows > 1_000_000]
    steady = large[2:]
    return sum(e.rows for e in steady[1:]) / (steady[-1].at - steady[0].at)


def idle() -> Figure:
    """CPU of a run that has nothing to do."""
    share, jobs = idle_share()
    return Figure(
        "idle", f"{share:.2%} of a core", f"{jobs} Spark jobs", "< 1.5 %, 0 jobs", share < 0.015 and jobs == 0
    )


def idle_share(seconds: float = 30.0) -> tuple[float, int]:
    """The share of a core that an idle run takes, and the epochs it had."""
    with pipeline(_SMALL.format(how="rate: 0.001", sink="blackhole")) as (process, log):
        time.sleep(20)
        before, at = cpu_seconds(process), time.monotonic()
        time.sleep(seconds)
        share = (cpu_seconds(process) - before) / (time.monotonic() - at)
        jobs = len(epochs(log))
        if process.poll() is not None:
            raise RuntimeError("the idle pipeline ended")
    return share, jobs


def memory(first: int = 1000, last: int = 5000) -> Figure:
    """Resident memory of JVM and Python, late against early, with a small heap."""
    settings = {
        "SPARK__DRIVER__MEMORY": "256m",
        "RECORD_BATCH_INTERVAL_MS": "1",
        "EPOCH__DRIVER_ROWS": "100",
        "EPOCH__ROWS": "100",
    }
    with pipeline(_SMALL.format(how="seed: 1", sink="blackhole"), settings) as (process, log):
        wait_for(process, lambda: len(epochs(log)) >= first, 600)
        early = rss_bytes(process)
        wait_for(process, lambda: len(epochs(log)) >= last, 1800)
        late = rss_bytes(process)
    ratio = late / early
    return Figure(
        f"memory after {last:,} epochs",
        f"{late / 1e6:.0f} MB",
        f"{ratio:.2f} x after {first:,}",
        "<= 1.10 x",
        ratio <= 1.1,
    )


def losses(rows: int = 400_000) -> Figure:
    """Rows lost or doubled in files after three kills in mid-run."""
    with tempfile.TemporaryDirectory(prefix="streamling-losses-") as directory:
        yaml = f"""\
sources:
  orders: {{type: generator, rows: {rows}, rate: 40000, primary_key: id}}
transforms:
  all: {{type: sql, primary_key: id, sql: SELECT id FROM orders}}
sinks:
  out: {{type: file, from: all, path: {json.dumps(f"{directory}/out")}, format: parquet, batch_flush_interval: 200ms}}
"""
        settings = {"STATE_BACKEND__SQLITE__DATABASE_PATH": f"{directory}/state.db"}
        for _ in range(3):
            with pipeline(yaml, settings) as (process, log):
                wait_for(process, lambda log=log: len(epochs(log)) >= 3, 60)
                os.kill(process.pid, signal.SIGKILL)
        with pipeline(yaml, settings) as (process, _log):
            process.communicate(timeout=300)
        files = [str(p) for p in Path(directory, "out").glob("*.parquet")]
        ids = pyarrow.dataset.dataset(files).to_table(columns=["id"])["id"].to_pylist()
    lost, doubled = rows - len(set(ids)), len(ids) - len(set(ids))
    return Figure(
        "rows lost, rows doubled", f"{lost}, {doubled}", "three kill -9 in mid-run", "0, 0", lost == doubled == 0
    )


ALL = {
    "first-row": first_row,
    "small-epoch": small_epoch,
    "throughput": throughput,
    "idle": idle,
    "memory": memory,
    "losses": losses,
    "files": files,
    "transform": transform,
    "lookups": lookups,
    "telemetry": telemetry,
    "python": python,
    "http": http,
    "inspection": inspection,
    "script": script,
    "kafka": kafka,
    "kafka-latency": kafka_latency,
    "kafka-sink": kafka_sink,
    "clickhouse-sink": clickhouse_sink,
    "dead-letters": dead_letters,
    "postgres": postgres,
    "postgres-latency": postgres_latency,
    "postgres-aggregate": postgres_aggregate,
    "clickhouse": clickhouse,
    "clickhouse-postgres": clickhouse_postgres,
}

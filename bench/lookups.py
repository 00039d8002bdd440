"""Lookups in a dynamic table of millions of keys, in epochs of 100,000 rows, with a cache and without one.

`STREAMLING_BENCH_LOOKUP_KEYS` is the number of keys, five million unless told. Half of the rows have one of them. The
same pipeline without the lookup shows what the lookup costs. Statements are counted by the server, as transactions
of the database per epoch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from bench.figure import Figure
from bench.orders_topic import servers
from bench.postgres import connected
from bench.processes import Epoch, epochs, pipeline, watched

_PIPELINE = """\
sources:
  events:
    type: generator
    rows: {rows}
    primary_key: id
    columns: {{id: id, name: "md5(concat('', (id * 7919) % {range}))"}}
transforms:
  known: {{type: dynamic_table, backend_type: Postgres, backend_entity_name: known, schema: public{cache}}}
  result: {{type: sql, primary_key: id, sql: "SELECT id, name FROM events WHERE {condition}"}}
sinks:
  out: {{type: blackhole, from: result}}
"""
_CHECK = "dynamic_table_check('known', name)"
_CACHE = ", time_column: updated_at, cache: true"
_ROWS, _EPOCH_ROWS = 2_000_000, 100_000
_FILL = """
DROP TABLE IF EXISTS public.known;
CREATE TABLE public.known (value TEXT PRIMARY KEY, updated_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp());
INSERT INTO public.known (value) SELECT md5(n::text) FROM generate_series(0, {keys} - 1) n;
CREATE INDEX idx_known_updated_at ON public.known (updated_at);
ANALYZE public.known
"""
_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows per second of full epochs after the first ones; the most memory; transactions of the server per epoch."""

    rate: float
    megabytes: float
    transactions: float


def lookups() -> Iterator[Figure]:
    """Rows per second with a lookup each."""
    keys = int(os.environ.get("STREAMLING_BENCH_LOOKUP_KEYS", "5_000_000"))
    with servers() as stack:
        settings = {name.removeprefix("STREAMLING__"): value for name, value in stack.variables().items()}
        with closing(connected(settings)) as connection:
            for statement in _FILL.format(keys=keys).split(";"):
                connection.execute(statement)
        plain = _run(settings, keys, "id >= 0", "")
        cached = _run(settings, keys, _CHECK, _CACHE)
        asking = _run(settings, keys, _CHECK, "")
    yield _rate("lookups in a cache", cached, plain, 0.3)
    yield _rate("lookups in the database", asking, plain, 0.05)
    yield Figure(
        "transactions per epoch",
        f"{asking.transactions:.1f}",
        f"{_EPOCH_ROWS:,} rows per epoch; {cached.transactions:.1f} with a cache",
        "<= 3",
        asking.transactions <= 3 and cached.transactions <= 3,
    )
    more = cached.megabytes - plain.megabytes
    yield Figure(
        "memory of the cache",
        f"{more:.0f} MB",
        f"{more * 1e6 / keys:.0f} bytes per key of 32; {asking.megabytes - plain.megabytes:.0f} MB without it",
        "<= 200 per key",
        more * 1e6 / keys <= 200,
    )


def _rate(name: str, run: _Run, plain: _Run, bar: float) -> Figure:
    ratio = run.rate / plain.rate
    compared = f"{ratio:.2f} x without a lookup ({plain.rate:,.0f})"
    return Figure(name, f"{run.rate:,.0f} rows/s", compared, f">= {bar} x", ratio >= bar)


def _run(settings: dict[str, str], keys: int, condition: str, cache: str) -> _Run:
    text = _PIPELINE.format(rows=_ROWS, range=2 * keys, condition=condition, cache=cache)
    more = {"EPOCH__ROWS": str(_EPOCH_ROWS), "EPOCH__DRIVER_ROWS": str(_EPOCH_ROWS)}
    own = {"STATE_BACKEND__BACKEND_TYPE": "InMemory", **more, **settings}
    before = _transactions(settings)
    with pipeline(text, own) as (process, log), watched(process.pid) as usage:
        process.communicate(timeout=900)
        found = epochs(log)
    after = _transactions(settings)
    return _Run(_steady(found), usage.rss_bytes / 1e6, (after - before) / max(len(found), 1))


def _steady(found: list[Epoch]) -> float:
    """Of the second half of the full epochs: the first ones load the cache and warm Java up."""
    full = [epoch for epoch in found if epoch.rows == _EPOCH_ROWS]
    last = full[len(full) // 2 :]
    return sum(epoch.rows for epoch in last) / (sum(epoch.ms for epoch in last) / 1000)


def _transactions(settings: dict[str, str]) -> int:
    with closing(connected(settings)) as connection:
        row = connection.execute(_COMMITS).fetchone()
    return int(row[0]) if row else 0

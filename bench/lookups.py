"""Dynamic tables of millions of keys, in epochs of 100,000 rows, with a cache and without one; then small epochs.

`STREAMLING_BENCH_LOOKUP_KEYS` is the number of keys, five million unless told. Half of the rows have one of them. The
same pipeline without the check shows what the check costs. Statements are counted by the server, as transactions of the
database per epoch. A second pipeline shows in which epoch a change by another writer counts.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from bench.figure import Figure
from bench.orders_topic import servers
from bench.postgres import connected
from bench.processes import Epoch, epochs, pipeline, wait_for, watched
from bench.small_lookups import small_lookups

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
# One row in a thousand asks for a key that another writer adds and removes while the pipeline runs.
_CHANGING = """\
sources:
  events:
    type: generator
    primary_key: id
    columns: {{id: id, name: "case id % 1000 when 0 then 'new key' else md5(concat('', (id * 7919) % {range})) end"}}
transforms:
  cached: {{type: dynamic_table, backend_type: Postgres, backend_entity_name: known, schema: public{cache}}}
  asked: {{type: dynamic_table, backend_type: Postgres, backend_entity_name: known, schema: public}}
  in_cache: {{type: sql, primary_key: id, sql: "SELECT id FROM events WHERE dynamic_table_check('cached', name) \
AND name = 'new key'"}}
  in_database: {{type: sql, primary_key: id, sql: "SELECT id FROM events WHERE dynamic_table_check('asked', name) \
AND name = 'new key'"}}
sinks:
  cache_out: {{type: file, from: in_cache, path: {directory}/cached, format: json}}
  database_out: {{type: file, from: in_database, path: {directory}/asked, format: json}}
"""
_ROWS, _EPOCH_ROWS = 1_200_000, 100_000
_EPOCH_SETTINGS = {"EPOCH__ROWS": str(_EPOCH_ROWS), "EPOCH__DRIVER_ROWS": str(_EPOCH_ROWS)}
# The index comes last: five million texts in no order take minutes to insert into one.
_FILL = """
DROP TABLE IF EXISTS public.known;
CREATE TABLE public.known (value TEXT NOT NULL, updated_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp());
INSERT INTO public.known (value) SELECT md5(n::text) FROM generate_series(0, {keys} - 1) n;
SET maintenance_work_mem = '512MB';
ALTER TABLE public.known ADD PRIMARY KEY (value);
CREATE INDEX idx_known_updated_at ON public.known (updated_at);
VACUUM ANALYZE public.known
"""
_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
# A busy machine takes ten times as long as a quiet one.
_LONGEST_S = 900.0


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows per second of full epochs after the first ones; the most memory of the driver, without Java; transactions of
    the server per epoch."""

    rate: float
    driver_megabytes: float
    transactions: float


def lookups() -> Iterator[Figure]:
    """Rows per second with a value looked up for each, and what a lookup or a dynamic table adds to a small epoch."""
    keys = int(os.environ.get("STREAMLING_BENCH_LOOKUP_KEYS", "5_000_000"))
    with servers("postgres") as stack:
        settings = {name.removeprefix("STREAMLING__"): value for name, value in stack.variables().items()}
        _fill(settings, keys)
        plain = _run(settings, keys, "id >= 0", "")
        cached = _run(settings, keys, _CHECK, _CACHE)
        asking = _run(settings, keys, _CHECK, "")
        yield _rate("values looked up in a cache", cached, plain, 0.3)
        yield _rate("values looked up in the database", asking, plain, 0.05)
        yield Figure(
            "transactions per epoch",
            f"{asking.transactions:.1f}",
            f"{_EPOCH_ROWS:,} rows per epoch; {cached.transactions:.1f} with a cache",
            "<= 3",
            asking.transactions <= 3 and cached.transactions <= 3,
        )
        yield _memory(keys, cached, plain, asking)
        yield _visibility(settings, keys)
        yield from small_lookups({"dynamic_table_backend": {"postgres": _block(settings)}})


def _memory(keys: int, cached: _Run, plain: _Run, asking: _Run) -> Figure:
    more, others = (run.driver_megabytes - plain.driver_megabytes for run in (cached, asking))
    return Figure(
        "memory of the cache",
        f"{more:.0f} MB",
        f"at most {more * 1e6 / keys:.0f} bytes per key of 32; {others:.0f} MB without it",
        "<= 200 per key",
        more * 1e6 / keys <= 200,
    )


def _rate(name: str, run: _Run, plain: _Run, bar: float) -> Figure:
    ratio = run.rate / plain.rate
    compared = f"{ratio:.2f} x without it ({plain.rate:,.0f})"
    return Figure(name, f"{run.rate:,.0f} rows/s", compared, f">= {bar} x", ratio >= bar)


def _fill(settings: dict[str, str], keys: int) -> None:
    with closing(connected(settings)) as connection:
        if connection.execute("SELECT to_regclass('public.known')").fetchone() != (None,):
            connection.execute("DELETE FROM public.known WHERE value = 'new key'")
            if connection.execute("SELECT count(*) FROM public.known").fetchone() == (keys,):
                return
        for statement in _FILL.format(keys=keys).split(";"):
            connection.execute(statement)


def _run(settings: dict[str, str], keys: int, condition: str, cache: str) -> _Run:
    text = _PIPELINE.format(rows=_ROWS, range=2 * keys, condition=condition, cache=cache)
    own = {"STATE_BACKEND__BACKEND_TYPE": "InMemory", **_EPOCH_SETTINGS, **settings}
    before = _transactions(settings)
    with pipeline(text, own) as (process, log), watched(process.pid) as usage:
        process.communicate(timeout=_LONGEST_S)
        found = epochs(log)
    after = _transactions(settings)
    return _Run(_steady(found), usage.root_rss_bytes / 1e6, (after - before) / max(len(found), 1))


def _steady(found: list[Epoch]) -> float:
    """Of the second half of the full epochs: the first ones load the cache and warm Java up."""
    full = [epoch for epoch in found if epoch.rows == _EPOCH_ROWS]
    last = full[len(full) // 2 :]
    return sum(epoch.rows for epoch in last) / (sum(epoch.ms for epoch in last) / 1000)


def _transactions(settings: dict[str, str]) -> int:
    with closing(connected(settings)) as connection:
        row = connection.execute(_COMMITS).fetchone()
    return int(str(row[0])) if row else 0


def _block(settings: dict[str, str]) -> dict[str, Any]:
    names = ("HOST", "PORT", "DB", "USER", "PASSWORD", "SSLMODE")
    values = {name.lower(): settings[f"DYNAMIC_TABLE_BACKEND__POSTGRES__{name}"] for name in names}
    return values | {"port": int(values["port"])}


# Changes by others


@dataclass(frozen=True, slots=True)
class _Change:
    """When a change had been committed, in seconds of the day, as the log has them."""

    added_at: float
    removed_at: float


def _visibility(settings: dict[str, str], keys: int) -> Figure:
    """Epochs that began after a key was added have it, also by the cache; those that began after it was removed do not,
    without a cache."""
    cache = f"{_CACHE}, cache_refresh_debounce_ms: 0"
    own = {"STATE_BACKEND__BACKEND_TYPE": "InMemory", **_EPOCH_SETTINGS, **settings}
    with tempfile.TemporaryDirectory(prefix="streamling-changes-") as directory:
        text = _CHANGING.format(range=2 * keys, cache=cache, directory=directory)
        found, change, ids = _change_keys(text, own, settings, Path(directory))
    wrong = _wrong_epochs(found, change, ids)
    shown = "next epoch" if not wrong else f"not in {', '.join(wrong)}"
    return Figure(
        "a change by others is seen", shown, f"of {len(found)} epochs, with and without a cache", "", not wrong
    )


def _change_keys(
    text: str, own: dict[str, str], settings: dict[str, str], directory: Path
) -> tuple[list[Epoch], _Change, dict[str, set[int]]]:
    """The epochs of a run in which another writer adds a key and removes it, and the rows that have found it."""
    with pipeline(text, own) as (process, log), closing(connected(settings)) as connection:

        def after_epochs(number: int) -> Callable[[], bool]:
            target = len(epochs(log)) + number
            return lambda: len(epochs(log)) >= target

        wait_for(process, after_epochs(2), _LONGEST_S)
        added = _commit(connection, "INSERT INTO public.known (value) VALUES ('new key')")
        wait_for(process, after_epochs(3), _LONGEST_S)
        removed = _commit(connection, "DELETE FROM public.known WHERE value = 'new key'")
        wait_for(process, after_epochs(3), _LONGEST_S)
        found = epochs(log)
        ids = {name: _ids(directory / name) for name in ("cached", "asked")}
    return found, _Change(added, removed), ids


def _wrong_epochs(found: Sequence[Epoch], change: _Change, ids: dict[str, set[int]]) -> list[str]:
    wrong, first = [], 0
    for epoch in found:
        rows = set(range(-(-first // 1000) * 1000, first + epoch.rows, 1000))
        began, first = epoch.at - epoch.ms / 1000, first + epoch.rows
        expected: dict[str, bool] = {}
        if epoch.at < change.added_at:
            expected = {"cached": False, "asked": False}
        elif change.added_at < began and epoch.at < change.removed_at:
            expected = {"cached": True, "asked": True}
        elif began > change.removed_at:
            expected = {"cached": True, "asked": False}
        wrong += [
            f"{epoch.number} {name}" for name, has in expected.items() if ids[name] & rows != (rows if has else set())
        ]
    return wrong


def _commit(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> float:
    connection.execute(statement)
    now = datetime.now().astimezone()  # the log has the time of the machine
    return now.hour * 3600 + now.minute * 60 + now.second + now.microsecond / 1e6


def _ids(directory: Path) -> set[int]:
    return {json.loads(line)["id"] for path in directory.glob("*.json*") for line in path.read_text().splitlines()}

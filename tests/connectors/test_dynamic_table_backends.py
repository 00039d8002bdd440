"""Dynamic tables in Postgres without a pipeline: what is found, what a cache asks for, and what an error says."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from streamling.connector import kinds
from streamling.connector.table import TableBackend
from streamling.errors import PermanentError, TransientError
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from streamling.transforms.dynamic_table import cache, keyed_rows
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

PIPELINE = """\
sources: {{rows: {{type: generator, primary_key: id}}}}
transforms:
  t: {{type: dynamic_table, backend_type: Postgres, backend_entity_name: t, schema: public{options}}}
  kept: {{type: sql, primary_key: id, sql: "SELECT id FROM rows WHERE dynamic_table_check('t', CAST(id AS TEXT))"}}
sinks: {{out: {{type: blackhole, from: kept}}}}
"""
CACHED = ", time_column: at, cache: true, cache_refresh_debounce_ms: {}"
TABLE = "CREATE TABLE t (value TEXT PRIMARY KEY, at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp())"


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


@contextmanager
def opened(database: Database, options: str = "", **more: object) -> Iterator[TableBackend]:
    (node,) = [
        node
        for node in load_pipeline(PIPELINE.format(options=options), "p.yaml", kinds.kinds()).transforms
        if node.name == "t"
    ]
    server = {"host": database.host, "port": database.port, "user": database.user, "password": database.password}
    block = {"postgres": {**server, "db": database.name, "sslmode": "disable"}, **more}
    backend = kinds.build(node, Settings.model_validate({"dynamic_table_backend": block}))
    assert isinstance(backend, TableBackend)
    backend.open()
    try:
        yield backend
    finally:
        backend.close()


def present(backend: TableBackend, *keys: str) -> list[bool]:
    found: list[bool] = backend.look_up(pa.array(keys, pa.string())).present.to_pylist()
    return found


@pytest.mark.parametrize("encoding", [None, "LATIN1"])
def test_texts_are_found_byte_for_byte(postgres: PostgresServer, encoding: str | None) -> None:
    texts = [
        "",
        "a",
        "A",
        " a",
        "é",
        "e\u0301" if encoding is None else "ê",
        'quo"te',
        "back\\slash",
        "{x,y}",
        "two\nlines",
    ]
    database = postgres.database(encoding)
    with opened(database) as backend:
        backend.add(pa.array(texts, pa.string()))
        asked = [*texts, "b", "É", "nul\0", "x" * 5000]
        assert present(backend, *asked) == [text in texts for text in asked]
        assert present(backend, "nul\0") == [False]
        assert present(backend) == []


def test_values_of_columns_and_nulls_are_fetched_in_pieces(database: Database) -> None:
    database.execute("CREATE TABLE t (value TEXT PRIMARY KEY, name TEXT, score BIGINT, part NUMERIC(8,2))")
    database.execute(
        "INSERT INTO t SELECT 'k' || n, nullif('n' || n % 3, 'n0'), nullif(n % 5, 0), n / 4.0 "
        "FROM generate_series(1, 50) n"
    )
    options = ", columns: {name: string, score: int64, part: 'decimal(8,2)'}"
    with opened(database, options, max_batch_size=7) as backend:
        found = backend.look_up(pa.array([f"k{n}" for n in range(60)], pa.string()))
    known = range(1, 51)
    assert found.present.to_pylist() == [n in known for n in range(60)]
    assert found.columns["name"].to_pylist() == [f"n{n % 3}" if n in known and n % 3 else None for n in range(60)]
    assert found.columns["score"].to_pylist() == [(n % 5 or None) if n in known else None for n in range(60)]
    assert [float(part) for part in found.columns["part"].drop_null().to_pylist()] == [n / 4 for n in known]


def test_a_key_that_is_there_many_times_is_fetched_once(database: Database) -> None:
    database.execute("CREATE TABLE t (value TEXT, name TEXT)")
    database.execute(
        "INSERT INTO t SELECT 'k' || n % 2, 'x' FROM generate_series(1, 1000) n; INSERT INTO t VALUES (NULL, 'y')"
    )
    with opened(database, ", columns: {name: string}") as backend:
        found = backend.look_up(pa.array(["k0", "k1", "k2"], pa.string()))
    assert found.present.to_pylist() == [True, True, False]
    assert found.columns["name"].to_pylist() == ["x", "x", None]


def test_a_cache_asks_for_later_values_only_and_not_too_often(database: Database) -> None:
    database.execute(TABLE)
    database.execute("INSERT INTO t VALUES ('first')")
    with opened(database, CACHED.format(600_000)) as backend:
        assert present(backend, "first", "second", "own") == [True, False, False]
        database.execute("INSERT INTO t VALUES ('second'); DELETE FROM t WHERE value = 'first'")
        backend.add(pa.array(["own"], pa.string()))
        assert present(backend, "first", "second", "own") == [True, False, True]
    with opened(database, CACHED.format(50)) as backend:
        assert present(backend, "first", "second", "third", "early") == [False, True, False, False]
        # Below the watermark, as a writer without the lock could leave it: it is not asked for.
        database.execute("INSERT INTO t VALUES ('early', '2000-01-01'), ('third', clock_timestamp())")
        time.sleep(0.06)
        assert present(backend, "second", "third", "early") == [True, True, False]


def test_a_changed_row_is_seen_when_its_time_moves_on(database: Database) -> None:
    database.execute(
        f"{TABLE}; ALTER TABLE t ADD name TEXT; INSERT INTO t (value, name) VALUES ('a', 'old'), ('b', 'b')"
    )
    with opened(database, CACHED.format(0) + ", columns: {name: string}") as backend:
        keys = pa.array(["a", "b"], pa.string())
        assert backend.look_up(keys).columns["name"].to_pylist() == ["old", "b"]
        database.execute("UPDATE t SET name = 'unseen' WHERE value = 'b'")
        database.execute("UPDATE t SET name = 'new', at = clock_timestamp() WHERE value = 'a'")
        assert backend.look_up(keys).columns["name"].to_pylist() == ["new", "b"]


def test_a_large_table_is_loaded_in_segments(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_rows, "_SEGMENT_ROWS", 1000)
    database.execute(f"{TABLE}; INSERT INTO t SELECT n::text FROM generate_series(0, 249999) n")
    with opened(database, CACHED.format(0)) as backend:
        assert present(backend, "0", "123456", "249999", "250000") == [True, True, True, False]
        database.execute("INSERT INTO t VALUES ('250000')")
        assert present(backend, "249999", "250000") == [True, True]


def test_a_slow_search_for_new_values_is_a_warning(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache, "_SLOW_S", 0.0)
    with opened(database, CACHED.format(0)) as backend, caplog.at_level(logging.WARNING):
        for _ in range(3):
            present(backend, "a")
    assert [
        record.getMessage() for record in caplog.records if "may lack an index on 'at'" in record.getMessage()
    ] != []
    assert sum("may lack an index" in record.getMessage() for record in caplog.records) == 1


def test_a_lost_connection_is_transient_and_other_errors_name_the_table(database: Database) -> None:
    with opened(database) as backend:
        backend.add(pa.array(["a"], pa.string()))
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with pytest.raises(TransientError, match="failed to check dynamic table 't'"):
            present(backend, "a")
        assert present(backend, "a", "b") == [True, False]
        database.execute("DROP TABLE t")
        with pytest.raises(PermanentError, match=r"failed to check dynamic table 't'.*does not exist"):
            present(backend, "a")

"""Dynamic tables in Postgres, with other writers, on a real broker and a real database."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from streamling.dev.topics import Message
from support.harness import Finished, Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.servers]

PIPELINE = """\
sources:
  events: {{type: kafka, topic: {topic}, data_format: json, primary_key: id, schema: {{id: string, data: string}}}}
transforms:
{transforms}
sinks:
  out: {{type: postgres, from: result, schema: public, table: result, batch_size: 1, batch_flush_interval: 50ms}}
  limit: {{type: blackhole, from: events}}
"""
CHECK = "  result: {type: sql, primary_key: id, sql: \"SELECT id FROM events WHERE dynamic_table_check('t', data)\"}\n"
PATIENCE_S = 60


def table(more: str, name: str = "t") -> str:
    own = f"backend_entity_name: {name}, schema: public, {more}"
    return f"  {name}: {{type: dynamic_table, backend_type: Postgres, {own}}}\n"


class Pipeline:
    """A topic, a database and a pipeline between them that ends after some rows."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, postgres: PostgresServer, transforms: str) -> None:
        self._place, self._kafka = place, kafka
        self._topic = kafka.topic()
        self.database = postgres.database()
        place.write(PIPELINE.format(topic=self._topic, transforms=transforms))

    def send(self, *rows: tuple[str, str]) -> None:
        texts = [json.dumps({"id": id_, "data": data}) for id_, data in rows]
        self._kafka.produce(self._topic, [Message(text.encode()) for text in texts])

    def run(self, rows: int, **settings: object) -> Finished:
        return self._place.run(**self._settings(rows), **settings)

    @contextmanager
    def running(self, rows: int, **settings: object) -> Iterator[Future[Finished]]:
        """It ends when it has these rows, and must succeed."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(self.run, rows, **settings)
            yield future
            future.result(PATIENCE_S).succeeded()

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never saw: {what}"
            time.sleep(0.05)

    @property
    def ids(self) -> list[str]:
        exists = self.database.rows("SELECT to_regclass('public.result') IS NOT NULL")[0][0]
        return sorted(id_ for (id_,) in self.database.rows("SELECT id FROM public.result")) if exists else []

    def _settings(self, rows: int) -> dict[str, object]:
        database = self.database
        tables = {"HOST": database.host, "PORT": database.port, "USER": database.user, "PASSWORD": database.password}
        named = {**tables, "DB": database.name, "SSLMODE": "disable"}
        return {
            "KAFKA_SOURCE__BROKERS": self._kafka.brokers,
            "NUM_RECORDS_BEFORE_STOP": rows,
            **database.settings(),
            **{f"DYNAMIC_TABLE_BACKEND__POSTGRES__{name}": value for name, value in named.items()},
        }


def test_values_in_pieces_with_repeated_ones_in_a_batch(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    pipeline = Pipeline(place, kafka, postgres, table("column: value") + CHECK)
    pipeline.database.execute(
        "CREATE TABLE t (value TEXT PRIMARY KEY); INSERT INTO t VALUES ('group_a'), ('group_c'), ('more')"
    )
    pipeline.send(*((f"r{n}", f"group_{letter}") for n, letter in enumerate("abaacb", start=1)))
    pipeline.run(6, DYNAMIC_TABLE_BACKEND__MAX_BATCH_SIZE=3).succeeded()
    assert pipeline.ids == ["r1", "r3", "r4", "r5"]


def lock(name: str) -> str:
    return f"SELECT pg_advisory_xact_lock(hashtextextended('public.{name}', 0))"


def test_changes_by_others_count_in_the_next_epoch(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    """In a cache: what is added, also by a transaction that began before and commits late. Without one: what is
    removed, too."""
    cached = "column: value, time_column: added, cache: true, cache_refresh_debounce_ms: 0"
    both = CHECK.replace("('t', data)", "('t', data) OR dynamic_table_check('plain', data)")
    pipeline = Pipeline(place, kafka, postgres, table(cached) + table("column: value", "plain") + both)
    database = pipeline.database
    with pipeline.running(7), database.connect() as late, database.connect() as early:
        pipeline.send(("0", "nobody"))
        pipeline.until(lambda: database.rows("SELECT to_regclass('public.t') IS NOT NULL")[0][0], "its tables")
        late.execute("BEGIN")
        late.execute("SELECT now()")
        early.execute("BEGIN")
        early.execute(lock("t"))
        early.execute("INSERT INTO t VALUES ('commits_first', clock_timestamp())")
        assert late.execute("SELECT pg_try_advisory_xact_lock(hashtextextended('public.t', 0))").fetchone() == (False,)
        early.execute("COMMIT")
        pipeline.send(("1", "commits_first"))
        pipeline.until(lambda: pipeline.ids == ["1"], "the first value")
        late.execute(lock("t"))
        late.execute("INSERT INTO t VALUES ('commits_last', clock_timestamp())")
        late.execute("COMMIT")
        pipeline.send(("2", "commits_last"))
        pipeline.until(lambda: pipeline.ids == ["1", "2"], "the last value")
        database.execute("INSERT INTO plain (value) VALUES ('here')")
        pipeline.send(("3", "here"))
        pipeline.until(lambda: pipeline.ids == ["1", "2", "3"], "a value that was added")
        database.execute("DELETE FROM plain")
        database.execute("DELETE FROM t")
        pipeline.send(("4", "here"), ("5", "commits_last"))
        pipeline.until(lambda: pipeline.ids == ["1", "2", "3", "5"], "a value that only the cache has")
        pipeline.send(("6", "nobody"))
    assert pipeline.ids == ["1", "2", "3", "5"]


@pytest.mark.parametrize(("type_", "reason"), [(None, "does not exist"), ("boolean", "is boolean")])
def test_a_cache_needs_a_time_column_with_an_order(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer, type_: str | None, reason: str
) -> None:
    pipeline = Pipeline(place, kafka, postgres, table("column: value, time_column: updated_at, cache: true") + CHECK)
    column = f", updated_at {type_}" if type_ else ""
    pipeline.database.execute(f"CREATE TABLE t (value TEXT PRIMARY KEY{column})")
    failed = pipeline.run(1).failed()
    assert (
        f"the cache of dynamic table 't' needs the time column 'updated_at', but in public.t it {reason}"
        in " ".join(failed.stderr.split())
    )
    assert failed.seconds < 45  # the start of an engine may be part of it; a table is waited for 60 s


FILLED = 'sql: "SELECT data FROM events", '


def test_a_value_is_added_under_the_lock_of_the_table_with_a_later_time(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    """Into a table of others, which stays as it is."""
    more = FILLED + "column: value, time_column: at, cache: true"
    pipeline = Pipeline(place, kafka, postgres, table(more) + CHECK)
    database = pipeline.database
    database.execute(
        "CREATE TABLE t (value TEXT PRIMARY KEY, at TIMESTAMP NULL DEFAULT now()); INSERT INTO t VALUES ('old')"
    )
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    columns = "SELECT attname, atttypid, attnotnull, atthasdef FROM pg_attribute WHERE attrelid = 't'::regclass"
    before = database.rows(columns)
    with pipeline.running(1), database.connect() as other:
        other.execute("BEGIN")
        other.execute(lock("t"))
        pipeline.send(("1", "new"))
        pipeline.until(lambda: database.rows(waiting) == [(1,)], "the lock being waited for")
        ((released,),) = other.execute("SELECT clock_timestamp() AT TIME ZONE 'UTC'").fetchall()
        other.execute("COMMIT")
    assert pipeline.ids == ["1"]
    values = dict(database.rows("SELECT value, at FROM t"))
    assert set(values) == {"old", "new"}
    assert values["new"] > released
    assert database.rows(columns) == before


def test_a_cache_that_all_tables_have_needs_no_time_column(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    """It is off for a table without one. Neither is a unique index needed to add a value once."""
    pipeline = Pipeline(place, kafka, postgres, table(FILLED + "column: value") + CHECK)
    pipeline.database.execute("CREATE TABLE t (value TEXT)")
    pipeline.send(("1", "member"), ("2", "member"))
    pipeline.run(2, DYNAMIC_TABLE_BACKEND__POSTGRES__CACHE_ENABLED="true").succeeded()
    pipeline.send(("3", "member"))
    pipeline.run(1, DYNAMIC_TABLE_BACKEND__POSTGRES__CACHE_ENABLED="true").succeeded()
    assert pipeline.ids == ["1", "2", "3"]
    assert pipeline.database.rows("SELECT value FROM t") == [("member",)]


def test_columns_that_a_table_lacks_or_has_with_other_types_end_the_start(
    place: Workspace, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    pipeline = Pipeline(place, kafka, postgres, table("column: value, columns: {score: int32}") + CHECK)
    absent = " ".join(pipeline.run(1).failed().stderr.split())
    assert "the table public.t does not exist; create it with the columns value, score" in absent
    pipeline.database.execute("CREATE TABLE t (value TEXT, score BIGINT)")
    other = " ".join(pipeline.run(1).failed().stderr.split())
    assert "column 'score': the table public.t has it as bigint, which is not int32" in other

"""Targets that are slow, locked, full or set up oddly: what passes is outlasted, and nothing is changed in silence."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pytest

from streamling.clients.postgres import create_once
from streamling.connector import Applied
from streamling.engine.protocol.state.postgres import PostgresState
from streamling.errors import PermanentError, TransientError
from streamling.formats.arrow import arrow_schema
from streamling.plan.types import (
    BINARY,
    DATE,
    FLOAT64,
    INT64,
    OPERATION_FIELD,
    STRING,
    TIMESTAMP,
    DataType,
    Field,
    Schema,
)
from support.postgres_samples import ITEMS, LOOSE, TASK, batch, epoch, items, sink, write
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

MANY = 600
"""So many rows are copied; few are sent as arrays."""


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def trigger(table: str, when: str, body: str, name: str = "tells") -> str:
    return (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; "
        "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$; "
        f"CREATE TRIGGER {name} {when} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()"
    )


@contextmanager
def beside(action: threading.Thread) -> Iterator[None]:
    action.start()
    try:
        yield
    finally:
        action.join(30)
    assert not action.is_alive()


def until_waiting(database: Database) -> None:
    """Until a session of a sink waits for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name LIKE 'streamling/%' AND wait_event_type = 'Lock'"
    )
    until = time.monotonic() + 20
    while database.rows(query.replace("%'", "%%'")) == [(0,)]:
        assert time.monotonic() < until
        time.sleep(0.02)


# Slow targets


@pytest.mark.parametrize("operation", ["u", "d"])
def test_rows_that_take_longer_than_a_statement_may_get_through_in_smaller_ones(
    database: Database, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    count = MANY
    with sink(database, statement_timeout_secs=1) as made:
        write(made, [(n, "old", n, "i") for n in range(count)], epoch(None, {"next": 1}))
        database.execute(trigger("shop.items", "BEFORE UPDATE OR DELETE", "PERFORM pg_sleep(0.0025)"))
        slow = epoch({"next": 1}, {"next": 2})
        for _ in range(3):
            try:
                report = write(made, [(n, "new", n, operation) for n in range(count)], slow)
                break
            except TransientError:
                made.abort(slow)
                assert made.applied(slow.slices) is Applied.NO
        assert (report.rows, report.bad_rows) == (count, ())
        assert made.applied(slow.slices) is Applied.YES
        assert f"{count} rows take too long for one statement" in caplog.text
        database.execute("DROP TRIGGER tells ON shop.items")
        statements = made._table.statements
        portions = statements.upsert_portions if operation == "u" else statements.delete_portions
        before = portions.rows
        write(made, [(n, "newer", n, operation) for n in range(count)], epoch({"next": 2}, {"next": 3}))
        assert portions.rows == 2 * before
    assert len(items(database)) == (count if operation == "u" else 0)


def test_a_deadlock_passes(database: Database) -> None:
    with sink(database) as made:
        write(made, [(n, "a", n, "i") for n in (1, 2)])
        failures: list[BaseException] = []

        def attempt() -> None:
            try:
                write(made, [(n, "b", n, "u") for n in (1, 2)])
            except TransientError as error:
                failures.append(error)
                made.abort(LOOSE)

        with database.connect() as other:
            other.execute("SET deadlock_timeout = '1min'")  # so that it is the sink that is told to give way
            other.execute("BEGIN; UPDATE shop.items SET name = 'c' WHERE id = 2")
            with beside(threading.Thread(target=attempt)):
                until_waiting(database)
                other.execute("UPDATE shop.items SET name = 'c' WHERE id = 1")
                other.execute("COMMIT")
        (failure,) = failures
        assert "40P01" in str(failure)
        write(made, [(n, "b", n, "u") for n in (1, 2)])
    assert items(database, "id, name") == [(1, "b"), (2, "b")]


def test_a_role_that_has_no_connection_left_is_waited_for(database: Database) -> None:
    user = f"single_{database.name}"
    database.execute(
        f"CREATE ROLE {user} LOGIN PASSWORD 'x' CONNECTION LIMIT 1; GRANT CREATE ON DATABASE {database.name} TO {user}"
    )
    mine = {"user": user, "pass": "x"}
    with sink(database, **mine) as first:
        write(first, [(1, "a", 1, "i")])
        with pytest.raises(TransientError, match="too many connections"), sink(database, node="second", **mine):
            pass
    # The server may notice a moment later that a connection has ended.
    while database.rows("SELECT 1 FROM pg_stat_activity WHERE usename = %s", user):
        time.sleep(0.02)
    with sink(database, node="second", **mine) as second:
        write(second, [(2, "b", 2, "i")])
    assert items(database, "id") == [(1,), (2,)]


def test_two_sinks_with_one_table_write_whole_rows_and_do_not_block_each_other(database: Database) -> None:
    """Side by side, as two pipelines do it: of a key that both write, the row of the later transaction stays."""

    def write_all(node: str, order: range) -> None:
        with sink(database, node=node) as made:
            for _ in range(3):
                write(made, [(n, f"{node}{n}", n, "u") for n in order])

    one = threading.Thread(target=write_all, args=("one", range(2000)))
    with sink(database), beside(one), beside(threading.Thread(target=write_all, args=("two", range(3000, 999, -1)))):
        pass
    found = items(database, "id, name, score")
    assert [row[0] for row in found] == list(range(3001))
    assert all(name in (f"one{n}", f"two{n}") and score == n for n, name, score in found)
    with sink(database, node="one") as one_, sink(database, node="two") as two:
        write(one_, [(1, "one", 1, "u"), (2, "one", 1, "u")], epoch(None, {"next": 1}))
        write(two, [(2, "two", 2, "u"), (3, None, None, "d")], epoch(None, {"next": 1}))
    assert items(database, "id, name")[1:4] == [(1, "one"), (2, "two"), (4, "one4")]
    assert database.rows("SELECT sink FROM shop._streamling_ledger ORDER BY 1") == [("one",), ("two",)]


# Settings of the database


@pytest.mark.parametrize(("given", "expected"), [("off", "on"), ("local", "local"), ("on", "on")])
def test_a_commit_is_durable_whatever_the_database_is_set_to(database: Database, given: str, expected: str) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = {given}")
    told = "INSERT INTO public.told VALUES (current_setting('synchronous_commit'))"
    database.execute("CREATE TABLE public.told (v text)")
    with sink(database) as made:
        database.execute(trigger("shop.items", "AFTER INSERT", told))
        write(made, [(1, "a", 1, "i")])
    store = PostgresState(database.state_block(), "app")
    database.execute(trigger("streamling.state", "AFTER INSERT", told, "tells_too"))
    store.put({"k": 1})
    store.close()
    assert database.rows("SELECT v FROM public.told") == [(expected,), (expected,)]


@pytest.mark.parametrize("more", [0, MANY])
def test_settings_of_the_database_do_not_change_values(database: Database, more: int) -> None:
    for setting in ("array_nulls = off", "extra_float_digits = -10", "bytea_output = 'escape'"):
        database.execute(f"ALTER DATABASE {database.name} SET {setting}")
    database.execute("CREATE SCHEMA shop; CREATE TABLE shop.items (id bigint PRIMARY KEY, t text, f text, b text)")
    columns = Schema(
        (Field("id", INT64), Field("t", STRING), Field("f", FLOAT64), Field("b", BINARY), OPERATION_FIELD),
    )
    row = (None, 0.1 + 0.2, b"\x00a\xff", "i")
    with sink(database, columns=columns) as made:
        write(made, [(n, *row) for n in range(1 + more)], columns=columns)
    assert database.rows("SELECT DISTINCT t, f, b FROM shop.items") == [(None, "0.30000000000000004", "\\x0061ff")]


# Faults that are no rows'


def test_a_ledger_that_refuses_a_position_ends_the_run(database: Database) -> None:
    with sink(database, ", on_error: skip") as made:
        database.execute("ALTER TABLE shop._streamling_ledger ADD CHECK (position <> '{\"next\": 1}')")
        with pytest.raises(PermanentError, match=r"shop\._streamling_ledger.*23514"):
            write(made, [(1, "a", 1, "i")], epoch(None, {"next": 1}))
        made.abort(LOOSE)
        with pytest.raises(PermanentError, match=r"shop\._streamling_ledger.*23514"):
            made.abandon(epoch({"next": 1}, {"next": 2}, key="other"))
    assert items(database) == []


def test_sinks_that_start_at_the_same_moment_make_one_schema_and_one_table(postgres: PostgresServer) -> None:
    count = 6

    def start(database: Database, meeting: threading.Barrier, number: int) -> None:
        meeting.wait(30)
        with sink(database, node=f"sink{number}", table=f"t{number % 2}") as made:
            write(made, [(number, "a", 1, "i")], epoch(None, {"next": 1}))

    with ThreadPoolExecutor(count) as pool:
        for _ in range(3):
            database, meeting = postgres.database(), threading.Barrier(count)
            list(pool.map(partial(start, database, meeting), range(count)))
            assert database.rows("SELECT count(*) FROM (TABLE shop.t0 UNION ALL TABLE shop.t1) AS t") == [(count,)]


@pytest.mark.parametrize(
    "taken", ["CREATE SCHEMA shop", "CREATE TABLE shop.items (id bigint)", "CREATE TYPE shop.items AS ENUM ('a')"]
)
def test_what_another_process_makes_at_the_same_moment_is_found_at_the_next_try(database: Database, taken: str) -> None:
    tries: list[str] = []

    def make(statement: str) -> None:
        tries.append(statement)
        if len(tries) == 1:
            made._session.execute(statement)

    with sink(database) as made:
        create_once(made._session, lambda: make(taken))
        assert tries == [taken, taken]
        with pytest.raises(PermanentError, match="42601"):
            create_once(made._session, lambda: made._session.execute("CREATE NOTHING"))


def test_a_fault_of_ours_that_the_driver_finds_is_not_tried_again(database: Database) -> None:
    with sink(database) as made, pytest.raises(PermanentError, match="placeholder"):
        with made._session.transaction() as session:
            session.execute("SELECT %s", ())


def test_an_error_that_lasts_names_the_table(database: Database) -> None:
    with sink(database) as made:
        database.execute(trigger("shop.items", "BEFORE INSERT", "RAISE EXCEPTION 'not today'"))
        with pytest.raises(PermanentError, match=r"table shop\.items.*not today.*P0001"):
            write(made, [(1, "a", 1, "i")])
        made.abort(LOOSE)
        database.execute(
            "DROP TRIGGER tells ON shop.items; CREATE CONSTRAINT TRIGGER late AFTER INSERT ON shop.items "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tells()"
        )
        with pytest.raises(PermanentError, match=r"table shop\.items.*not today.*P0001"):
            write(made, [(1, "a", 1, "i")])
        made.abort(LOOSE)


# Rows that are refused


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_of_rows_without_a_key_as_many_are_told_as_are_needed(database: Database, policy: str) -> None:
    with sink(database, f", on_error: {policy}") as made:
        report = made.writer().write(LOOSE, TASK, [batch([(None if n % 2 else n, "a", n, "i") for n in range(10)])])
        made.abort(LOOSE)
    expected = [1, 3, 5, 7, 9] if policy == "skip" else [1]
    assert [(bad.reason, bad.row["score"]) for bad in report.bad_rows] == [  # type: ignore[index, call-overload]
        ("null_key", score) for score in expected
    ]


@pytest.mark.parametrize("more", [0, MANY])
@pytest.mark.parametrize(
    ("type_", "carrier", "value"), [(TIMESTAMP, pa.int64(), -(2**63)), (DATE, pa.int32(), -(2**31))]
)
def test_a_time_that_postgres_does_not_have_is_a_refused_row(
    database: Database, type_: DataType, carrier: pa.DataType, value: int, more: int
) -> None:
    columns = Schema((Field("id", INT64), Field("at", type_), Field("to", type_), OPERATION_FIELD))
    schema, count = arrow_schema(columns), 3 + more
    times = pa.array([value if n == 1 else n for n in range(count)], carrier).cast(schema.field("to").type)
    fine = pa.array([0] * count, carrier).cast(schema.field("to").type)
    rows = pa.RecordBatch.from_arrays([pa.array(range(count)), fine, times, pa.array(["i"] * count)], schema=schema)
    with sink(database, ", on_error: skip", columns=columns) as made:
        report = made.writer().write(LOOSE, TASK, [rows])
        made.commit(LOOSE, [report])
    (bad,) = report.bad_rows
    assert (bad.reason, bad.row["id"]) == ("type_mismatch", 1)  # type: ignore[index, call-overload]
    assert "column 'to'" in bad.message and "22008" in bad.message
    assert len(items(database)) == count - 1


NARROW = {
    "name varchar(2)": ("name", "22001"),
    "name char(2)": ("name", "22001"),
    "score shop.small": ("score", "23514"),
}


@pytest.mark.parametrize("narrow", NARROW)
def test_a_refused_row_names_the_column_also_where_the_server_does_not(database: Database, narrow: str) -> None:
    column, state = NARROW[narrow]
    with sink(database, ", on_error: skip") as made:
        database.execute("CREATE DOMAIN shop.small AS bigint CHECK (VALUE < 10)")
        name, type_ = narrow.split(" ")
        database.execute(f"ALTER TABLE shop.items ALTER {name} TYPE {type_} USING NULL")
        report = write(made, [(1, None, None, "i"), (2, "abcdef", 10**12, "i"), (3, None, 5, "i")])
    (bad,) = report.bad_rows
    assert f"table shop.items, column '{column}'" in bad.message
    assert state in bad.message
    assert items(database, "id") == [(1,), (3,)]


def test_a_row_refused_for_its_characters_names_the_column(database: Database) -> None:
    columns = Schema((*ITEMS.fields[:-1], Field("note % s", STRING), OPERATION_FIELD))
    with sink(database, ", on_error: skip", columns=columns) as made:
        report = write(made, [(1, "a", 1, "x\0y", "i"), (2, "b", 2, "z", "i")], columns=columns)
    (bad,) = report.bad_rows
    assert "column 'note % s'" in bad.message
    assert items(database, "id") == [(2,)]

"""The sink through pgbouncer, which gives each transaction whichever of its few server sessions is free.

State stores are tried through it in `test_state_stores.py`, a whole pipeline in `test_pooler_kills.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamling.connector import Applied
from streamling.errors import Fenced, PermanentError, TransientError
from streamling.plan.types import FLOAT64, OPERATION_FIELD, STRING, Field, Schema
from support.pgbouncer_server import POOL_SIZE, PgBouncer
from support.postgres_samples import TASK, batch, epoch, items, sink, write
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

# The same names as in ITEMS, with other types.
OTHERS = Schema((Field("id", STRING, nullable=False), Field("score", FLOAT64), OPERATION_FIELD))
MANY = 1200
"""More than are sent as arrays."""


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


@pytest.fixture
def pooled(pooler: PgBouncer, database: Database) -> Database:
    """The same database, through the pooler."""
    return pooler.before(database)


@pytest.fixture
def held(pooled: Database) -> Iterator[None]:
    """All server sessions but one are taken, so that everybody else meets in that one."""
    with pooled.connect() as one:
        one.execute("BEGIN")
        yield
        one.execute("ROLLBACK")


def temporary_tables(database: Database) -> list[tuple[int]]:
    """How many each server session has."""
    return database.rows(
        "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r' GROUP BY relnamespace"
    )


def test_rows_of_small_and_large_epochs_take_effect(database: Database, pooled: Database) -> None:
    with sink(pooled) as made:
        one = epoch(None, {"next": 1})
        write(made, [(n, f"n{n}", n, "i") for n in range(MANY)], one)
        write(made, [(0, "zero", 0, "u"), (1, None, None, "d"), (7, None, None, "d"), (7, "seven", 7, "i")])
        write(made, [(n, None, None, "d") for n in range(100, MANY)])
        assert made.applied(one.slices) is Applied.YES
        write(made, [(0, "again", 0, "u")], epoch(None, {"next": 1}))  # the table has the epoch: nothing is written
    kept = {n: (n, f"n{n}", n) for n in range(100) if n != 1}
    assert items(database) == list((kept | {0: (0, "zero", 0), 7: (7, "seven", 7)}).values())


@pytest.mark.usefixtures("held")
def test_sinks_of_different_shapes_leave_each_other_alone_in_one_session(database: Database, pooled: Database) -> None:
    pooled.execute("CREATE TEMPORARY TABLE items (mine text)")
    pooled.execute("CREATE TEMPORARY TABLE _streamling_ledger (mine text)")
    with sink(pooled, node="one") as one, sink(pooled, node="two", table="others", columns=OTHERS) as two:
        for number in range(3):
            write(one, [(n, f"e{number}", n, "u") for n in range(MANY)], epoch(number or None, number + 1))
            write(two, [(f"k{n}", number / 2, "u") for n in range(MANY)], epoch(number or None, number + 1), OTHERS)
            write(one, [(n, None, None, "d") for n in range(600)])
    assert temporary_tables(database) == [(5,)]  # rows of two shapes, keys of one, and those that were there
    assert items(database) == [(n, "e2", n) for n in range(600, MANY)]
    assert database.rows("SELECT count(*), min(score), max(score) FROM shop.others") == [(MANY, 1.0, 1.0)]
    assert database.rows("SELECT sink, position FROM shop._streamling_ledger ORDER BY sink") == [("one", 3), ("two", 3)]


def test_more_sinks_than_the_pool_has_sessions_take_turns(database: Database, pooled: Database) -> None:
    count, epochs = POOL_SIZE + 2, 5
    meeting = threading.Barrier(count)

    def run(number: int) -> None:
        with sink(pooled, node=f"sink{number}", table=f"t{number % 2}", key=()) as made:
            meeting.wait(60)
            for at in range(epochs):
                size = MANY if (at + number) % 2 else 10
                write(made, [(n, f"{number}", at, "i") for n in range(size)], epoch(at or None, at + 1))

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))
    expected = sum(MANY if (at + number) % 2 else 10 for at in range(epochs) for number in range(count))
    rows = "SELECT count(*) FROM (TABLE shop.t0 UNION ALL TABLE shop.t1) AS both_"
    # Without workers of autovacuum, and in one session: one that is closed is still listed for a moment.
    sessions = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    with database.connect() as one:
        assert one.execute(rows).fetchall() == [(expected,)]
        assert one.execute(sessions).fetchall() == [(POOL_SIZE,)]


@pytest.mark.usefixtures("held")
def test_times_of_a_transaction_end_with_it(pooled: Database) -> None:
    with sink(pooled, statement_timeout_secs=7) as made:
        write(made, [(1, "a", 1, "i")])
    found = pooled.rows(
        "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')"
    )
    assert found == [("0", "0")]


def test_epochs_that_were_aborted_or_overtaken_are_not_there(database: Database, pooled: Database) -> None:
    with sink(pooled) as slow, sink(pooled) as quick:
        one = epoch(None, {"next": 1})
        slow.writer().write(one, TASK, [batch([(n, "lost", n, "i") for n in range(MANY)])])
        slow.abort(one)
        write(quick, [(1, "a", 1, "i")], epoch(None, {"next": 2}))
        with pytest.raises(Fenced):
            slow.writer().write(one, TASK, [batch([(1, "b", 1, "i")])])
        slow.abort(one)
    assert items(database) == [(1, "a", 1)]


def test_refused_rows_are_found(database: Database, pooled: Database) -> None:
    database.execute(
        "CREATE SCHEMA shop; CREATE TABLE shop.items (id bigint PRIMARY KEY, name varchar(3), score bigint)"
    )
    with sink(pooled, ", on_error: skip") as made:
        report = write(made, [(n, "long" if n == 700 else "ok", n, "i") for n in range(MANY)])
    assert [bad.reason for bad in report.bad_rows] == ["value_too_large"]
    assert database.rows("SELECT count(*) FROM shop.items") == [(MANY - 1,)]


def test_a_pooler_that_dies_within_a_transaction_is_met_again(
    pooler: PgBouncer, database: Database, pooled: Database
) -> None:
    with sink(pooled) as made:
        one = epoch(None, {"next": 1})
        report = made.writer().write(one, TASK, [batch([(1, "a", 1, "i")])])
        pooler.kill()
        try:
            with pytest.raises(TransientError):
                made.commit(one, [report])
            made.abort(one)
            with pytest.raises(TransientError, match="cannot be reached"):
                write(made, [(1, "b", 1, "i")], one)
        finally:
            pooler.start()
        write(made, [(1, "c", 1, "i")], one)
    assert items(database) == [(1, "c", 1)]


def test_a_pool_without_a_free_session_is_waited_for_and_then_an_error_that_passes(
    database: Database, pooled: Database
) -> None:
    with sink(pooled, pool_acquire_timeout_secs=1) as made, pooled.connect() as one, pooled.connect() as two:
        for taken in (one, two):
            taken.execute("BEGIN")
        with pytest.raises(TransientError, match="did not complete within 1 s"):
            write(made, [(1, "a", 1, "i")])
        two.execute("ROLLBACK")
        write(made, [(1, "b", 1, "i")])
    assert items(database) == [(1, "b", 1)]


def test_tls_is_as_strict_as_the_setting_says(
    pooler: PgBouncer, pooled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encrypted(**settings: object) -> bool:
        with sink(pooled, **settings) as made:
            return bool(made._session._connection.pgconn.ssl_in_use)

    assert not encrypted(sslmode="disable")
    assert encrypted(sslmode="require"), "whoever it is"
    assert encrypted(sslmode=""), "the driver prefers it"
    monkeypatch.setenv("PGSSLMODE", "disable")
    assert not encrypted(sslmode="")
    for mode in ("verify-ca", "verify-full"):
        with pytest.raises(PermanentError, match="certificate verify failed") as caught:
            encrypted(sslmode=mode, host="localhost")
        assert "SSL_CERT_FILE" in (caught.value.hint or "")
    monkeypatch.setenv("SSL_CERT_FILE", str(pooler.authority))
    assert encrypted(sslmode="verify-full", host="localhost")
    assert encrypted(sslmode="verify-ca")
    with pytest.raises(PermanentError, match=r'"localhost".* does not match host name "127.0.0.1"') as caught:
        encrypted(sslmode="verify-full")
    assert "postgres_sink_connections.out" in (caught.value.hint or "")


def test_a_server_without_tls_is_refused_where_it_is_wanted(database: Database) -> None:
    with pytest.raises(PermanentError, match="does not support SSL"), sink(database, sslmode="require"):
        pass


def test_a_wrong_password_or_database_ends_the_start(pooled: Database) -> None:
    for wrong in ({"pass": "guess"}, {"user": "nobody_we_know"}, {"db": "nowhere"}):
        with pytest.raises(PermanentError), sink(pooled, **wrong):
            pass

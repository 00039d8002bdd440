"""The aggregate sink on a real server: tables, the trigger, what counts, and what is rejected."""

from __future__ import annotations

import pytest

from support.aggregate_samples import BY_ACCOUNT, EVERYTHING, PAYMENTS, aggregate_sink, totals
from support.postgres_samples import epoch, write
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def test_deletes_subtract(database: Database) -> None:
    with aggregate_sink(database) as sink:
        write(
            sink,
            [(1, "alice", 100, "i"), (3, "alice", 30, "d"), (4, "bob", 200, "I"), (5, "bob", 75, None)],
            columns=PAYMENTS,
        )
    assert totals(database) == [("alice", 70, 0), ("bob", 275, 2)]


@pytest.mark.parametrize("group", ["", BY_ACCOUNT])
def test_retract(database: Database, group: str) -> None:
    with aggregate_sink(database, group + EVERYTHING + ", retract: true") as sink:
        write(
            sink,
            [(1, "alice", 100, "i"), (2, "alice", 30, "i"), (4, "bob", 200, "I"), (5, "bob", None, None)],
            epoch(0, 1),
            PAYMENTS,
        )
        print(totals(database))
        write(sink, [(1, "alice", 10, "u"), (4, None, None, "d"), (5, "alice", 7, "u")], epoch(1, 2), PAYMENTS)
        print(totals(database))
        print(totals(database, table="totals_rows"))
    print(database.rows("select prosrc from pg_proc where proname like 'landed%'")[0][0])
    assert 0

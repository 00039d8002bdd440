"""A table that is changed while a pipeline writes to it."""

from __future__ import annotations

import threading
import time
from decimal import Decimal

import pytest

from streamling.errors import TABLE_UNFIT, UserError
from streamling.plan.types import INT64, OPERATION_FIELD, TIMESTAMP, Field, Schema, decimal
from support.postgres_samples import LOOSE, TASK, batch, epoch, items, sink, write
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

PRICES = Schema((Field("id", INT64, nullable=False), Field("amount", decimal(12, 4)), OPERATION_FIELD))
ROW = (Decimal("5.4567"), "i")


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


CHANGES = {
    "ALTER amount TYPE numeric(12,1)": 'column "amount" is numeric(12,1), and the input is decimal(12,4)',
    "ALTER amount TYPE real": 'column "amount" is real, and the input is decimal(12,4)',
    "ADD owner text NOT NULL": 'column "owner" is NOT NULL and has no default, and the input has no such column',
    "DROP amount": 'column "amount" of relation "shop.items" does not exist',
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_does_not_fit_ends_the_run_and_names_the_column(database: Database, change: str) -> None:
    """Whatever `on_error` says, because no row is at fault."""
    with sink(database, ", on_error: skip", columns=PRICES) as made:
        write(made, [(1, *ROW), (2, *ROW)], epoch(None, {"next": 1}), PRICES)
        write(made, [(1, None, "d"), (2, None, "d")], epoch({"next": 1}, {"next": 2}), PRICES)
        database.execute(f"ALTER TABLE shop.items {change}")
        with pytest.raises(UserError, match="was changed while the pipeline was running") as caught:
            write(made, [(n, *ROW) for n in range(5)], epoch({"next": 2}, {"next": 3}), PRICES)
        made.abort(LOOSE)
    assert caught.value.condition is TABLE_UNFIT
    assert CHANGES[change] in caught.value.message
    assert items(database) == []


def test_a_change_that_fits_goes_on_with_the_new_columns(database: Database) -> None:
    with sink(database, ", on_error: skip") as made:
        write(made, [(1, "a", 1, "i")])
        database.execute("ALTER TABLE shop.items ADD note text DEFAULT 'n', ALTER name TYPE varchar(2)")
        report = write(made, [(2, "b ", 2, "i"), (3, "c   ", 3, "i")])
        assert [bad.row["id"] for bad in report.bad_rows] == [3]  # type: ignore[index, call-overload]
        database.execute("ALTER TABLE shop.items ALTER name TYPE uuid USING NULL")
        write(made, [(4, "00000000-0000-0000-0000-00000000000A", 4, "i")])
        database.execute("DROP TABLE shop.items; CREATE TABLE shop.items (id bigint UNIQUE, name text, score numeric)")
        write(made, [(5, "e", 5, "i")])
    assert items(database) == [(5, "e", Decimal(5))]


def test_a_time_is_not_rounded_by_a_table_that_was_changed(database: Database) -> None:
    columns = Schema((Field("id", INT64, nullable=False), Field("at", TIMESTAMP), OPERATION_FIELD))
    with sink(database, columns=columns) as made:
        database.execute("ALTER TABLE shop.items ALTER at TYPE timestamp(0)")
        with pytest.raises(UserError, match=r'column "at" is timestamp\(0\) without time zone'):
            write(made, [(1, 1, "i")], columns=columns)
        made.abort(LOOSE)


def test_no_change_comes_between_the_check_and_the_commit(database: Database) -> None:
    """A change waits for the transaction of an epoch; an epoch that waits for a change sees it."""
    with sink(database, columns=PRICES) as made, database.connect() as other:
        report = made.writer().write(LOOSE, TASK, [batch([(1, *ROW)], PRICES)])
        change = "ALTER TABLE shop.items ALTER amount TYPE numeric(12,1)"
        altering = threading.Thread(target=lambda: database.execute(change))
        altering.start()
        time.sleep(0.3)
        assert altering.is_alive()
        made.commit(LOOSE, [report])
        altering.join(10)
        database.execute("ALTER TABLE shop.items ALTER amount TYPE numeric(12,4)")
        write(made, [(2, *ROW)], columns=PRICES)
        other.execute("BEGIN")
        other.execute(change)
        caught: list[BaseException] = []

        def wait_for_the_change() -> None:
            try:
                write(made, [(3, *ROW)], columns=PRICES)
            except UserError as error:
                caught.append(error)

        writing = threading.Thread(target=wait_for_the_change)
        writing.start()
        time.sleep(0.3)
        assert writing.is_alive()
        other.execute("COMMIT")
        writing.join(10)
        made.abort(LOOSE)
        assert "numeric(12,1)" in str(caught[0])
    assert items(database, "id") == [(1,), (2,)]


def test_other_isolation_levels_of_the_database_do_not_hide_a_change(database: Database) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'repeatable read'")
    with sink(database, columns=PRICES) as made, database.connect() as other:
        other.execute("BEGIN")
        other.execute("ALTER TABLE shop.items ALTER amount TYPE numeric(12,1)")
        threading.Timer(0.3, lambda: other.execute("COMMIT")).start()
        with pytest.raises(UserError, match=r"numeric\(12,1\)"):
            write(made, [(1, *ROW)], columns=PRICES)
        made.abort(LOOSE)

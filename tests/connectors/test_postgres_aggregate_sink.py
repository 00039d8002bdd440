"""The aggregate sink on a real server: tables, the trigger, what counts, and what is rejected."""

from __future__ import annotations

import json
import logging
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from streamling.connector import Applied
from streamling.errors import TABLE_UNFIT, Fenced, UserError
from streamling.plan.types import FLOAT64, INT32, INT64, OPERATION_FIELD, STRING, TIMESTAMP, Field, Schema, decimal
from streamling.sinks.postgres_aggregate.sink import PostgresAggregateSink
from support.aggregate_samples import BALANCE, BY_ACCOUNT, EVERYTHING, PAYMENTS, aggregate_sink, totals
from support.postgres_samples import LOOSE, TASK, batch, epoch, write
from support.postgres_server import Database, PostgresServer

pytestmark = pytest.mark.servers

RETRACT = ", retract: true"
Payment = tuple[int | None, str | None, int | None, str | None]


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def moment(day: int, hour: int = 0) -> datetime:
    """Without a zone, as the column has none."""
    return datetime(2026, 1, day, hour, tzinfo=UTC).replace(tzinfo=None)


def pay(sink: PostgresAggregateSink, *rows: Payment, position: int | None = None) -> None:
    """Written and committed, as the slice that ends at the position."""
    write(sink, rows, LOOSE if position is None else epoch(position - 1, position, number=position), PAYMENTS)


def layout(database: Database, table: str) -> list[tuple[Any, ...]]:
    return database.rows(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull, "
        "(SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = attrelid AND adnum = attnum) "
        "FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
        f"stats.{table}",
    )


def constraints(database: Database, table: str) -> list[str]:
    """Without NOT NULL, which some servers list as constraints."""
    rows = database.rows(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'p'",
        f"stats.{table}",
    )
    return [text for (text,) in rows]


# Tables


def test_the_tables_the_index_and_the_trigger_follow_the_conventions(database: Database) -> None:
    columns = Schema(
        (
            Field("id", INT64, nullable=False),
            Field("shop", STRING),
            Field("amount", decimal(10, 2)),
            Field("size", INT32),
            Field("at", TIMESTAMP),
            OPERATION_FIELD,
        )
    )
    options = (
        "group_by: {shop: {type: text}, day: {from: at, type: date}}, aggregate: {total: {from: amount, fn: sum, "
        'type: "numeric(30,2)"}, n: {fn: count}, size: {fn: avg}, first: {from: at, fn: min}, '
        "big: {from: size, fn: max}}"
    )
    with aggregate_sink(database, options, columns=columns):
        pass
    assert layout(database, "landed") == [
        ("id", "bigint", True, None),
        ("shop", "text", False, None),
        ("amount", "numeric(10,2)", False, None),
        ("size", "integer", False, None),
        ("at", "timestamp without time zone", False, None),
        ("_gs_op", "text", True, None),
        ("_gs_checkpoint_epoch", "bigint", True, "0"),
    ]
    assert constraints(database, "landed") == ["PRIMARY KEY (id, _gs_op)"]
    assert layout(database, "totals") == [
        ("shop", "text", True, None),
        ("day", "date", True, None),
        ("total", "numeric(30,2)", True, "0"),
        ("n", "bigint", True, "0"),
        ("size_sum", "integer", True, "0"),
        ("size_count", "bigint", True, "0"),
        ("first", "timestamp without time zone", False, None),
        ("big", "integer", False, None),
    ]
    assert constraints(database, "totals") == ["PRIMARY KEY (shop, day)"]
    assert database.rows(
        "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'stats.landed'::regclass AND NOT tgisinternal"
    ) == [
        (
            "CREATE TRIGGER landed_to_totals_trigger AFTER INSERT ON stats.landed REFERENCING NEW TABLE AS new_table "
            "FOR EACH STATEMENT EXECUTE FUNCTION stats.landed_to_totals_fn()",
        )
    ]
    assert database.rows("SELECT indexdef FROM pg_indexes WHERE indexname = 'idx_landed_checkpoint_epoch'") == [
        ("CREATE INDEX idx_landed_checkpoint_epoch ON stats.landed USING btree (_gs_checkpoint_epoch)",)
    ]


def test_without_groups_there_is_one_row_and_an_empty_epoch_makes_none(database: Database) -> None:
    with aggregate_sink(database, EVERYTHING) as sink:
        pay(sink, position=1)
        assert totals(database) == []
        assert constraints(database, "totals") == ["PRIMARY KEY (key)"]
        pay(sink, (1, "a", None, "i"), position=2)
        assert totals(database) == [("value", 0, 1, 0, 1, None, None)]
        pay(sink, (2, "b", 5, "i"), (3, "b", -7, "i"), position=3)
        assert totals(database) == [("value", -2, 3, -2, 3, -7, 5)]


def test_tables_of_an_earlier_version_are_used_as_they_are(database: Database) -> None:
    """Made by hand, with wider columns, rows, and a trigger function of another kind."""
    database.execute(
        "CREATE SCHEMA stats;"
        "CREATE TABLE stats.landed (id numeric, account varchar(20), amount numeric, note text DEFAULT 'x', "
        "_gs_op text NOT NULL, _gs_checkpoint_epoch bigint NOT NULL DEFAULT 0, PRIMARY KEY (id, _gs_op));"
        "CREATE TABLE stats.totals (account text PRIMARY KEY, n bigint, balance numeric(40,2), note text);"
        "INSERT INTO stats.landed VALUES (1, 'alice', 100, 'old', 'i', 3);"
        "INSERT INTO stats.totals VALUES ('alice', 1, 100, 'kept'), ('carol', NULL, NULL, 'kept');"
        "CREATE FUNCTION stats.landed_to_totals_fn() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN UPDATE stats.totals SET n = n + 1000; RETURN NULL; END $$;"
        "CREATE TRIGGER landed_to_totals_trigger AFTER INSERT ON stats.landed REFERENCING NEW TABLE AS new_table "
        "FOR EACH STATEMENT EXECUTE FUNCTION stats.landed_to_totals_fn();"
    )
    with aggregate_sink(database) as sink:
        pay(sink, (1, "alice", 5, "i"), (2, "carol", 7, "i"))
    assert totals(database, "account, n, balance::text, note") == [
        ("alice", 2, "105.00", "kept"),
        ("carol", 1, "7.00", "kept"),
    ]


def test_all_that_does_not_fit_is_said_with_table_and_column(database: Database) -> None:
    database.execute(
        "CREATE SCHEMA stats; CREATE TABLE stats.totals (account integer, balance integer, owner text NOT NULL)"
    )
    with pytest.raises(UserError) as caught, aggregate_sink(database):
        pass
    assert caught.value.condition is TABLE_UNFIT
    first, *problems = caught.value.message.splitlines()
    assert first.endswith("table stats.totals does not fit 'group_by' and 'aggregate':")
    assert [line.strip() for line in problems] == [
        '- column "n" of relation "stats.totals" does not exist; it would be BIGINT',
        '- column "account" is of type integer but the input is string, written as TEXT',
        '- column "balance" is integer, and the input is int64, which is wider: values may be out of range for type '
        "integer, or be rounded",
        '- column "owner" is NOT NULL and has no default, and the input has no such column',
    ]
    database.execute("DROP TABLE stats.totals; ALTER TABLE stats.landed DROP COLUMN _gs_checkpoint_epoch")
    with pytest.raises(UserError, match=r'stats.landed does not fit the input:\n.*"_gs_checkpoint_epoch".*not exist'):
        aggregate_sink(database).__enter__()
    database.execute("DROP TABLE stats.landed; DROP TABLE stats.totals")
    database.execute("CREATE TABLE stats.totals (account text, balance bigint, n bigint)")
    with pytest.raises(UserError, match=r'ALTER TABLE "stats"."totals" ADD UNIQUE \("account"\)'):
        aggregate_sink(database).__enter__()
    database.execute("DROP TABLE stats.totals; ALTER TABLE stats.landed DROP COLUMN id")
    with pytest.raises(UserError, match=r'stats.landed does not fit the input:\n.*"id" of relation'):
        aggregate_sink(database, BALANCE + RETRACT).__enter__()


def test_a_second_start_changes_nothing_and_needs_no_right_to(database: Database) -> None:
    with aggregate_sink(database, BALANCE + RETRACT):
        pass
    clerk = f"clerk_{uuid.uuid4().hex[:8]}"
    database.execute(
        f"CREATE ROLE {clerk} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA stats TO {clerk}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA stats TO {clerk}"
    )
    try:
        with aggregate_sink(database, BALANCE + RETRACT, **{"user": clerk, "pass": "secret"}) as sink:
            pay(sink, (1, "alice", 5, "i"))
    finally:
        database.execute(f"DROP OWNED BY {clerk}; DROP ROLE {clerk}")
    assert totals(database) == [("alice", 5, 1)]


ODD = ('"', "%s", "found", "new", "tg_op", "deleted", "g1", "v1", "sign", "number", "n", "$body$", "a'b")


@pytest.mark.parametrize("mode", ["", RETRACT])
def test_any_name_works_in_the_trigger(database: Database, mode: str) -> None:
    columns = Schema((*(Field(name, INT64) for name in ODD), OPERATION_FIELD))
    groups = json.dumps({"found": {}, "%s": {}})
    computed = json.dumps({f"s {n}": {"from": n, "fn": "sum"} for n in ODD} | {"old": {"from": "n", "fn": "min"}})
    tables = 'landing_table: "in%s", agg_table: "a\'b"'
    options = f"group_by: {groups}, aggregate: {computed}{mode}"
    with aggregate_sink(database, options, columns=columns, key=('"', "%s"), tables=tables) as sink:
        write(sink, [(*range(13), "i"), (*range(1, 14), "i"), (*range(1, 14), "d")], columns=columns)
        write(sink, [(*range(13), "u")], columns=columns)
    added = [number if mode else 2 * number for number in range(13)]
    rows = totals(database, table='"a\'b"')
    assert rows[0] == (2, 1, *added, 10)
    assert len(rows) == (1 if mode else 2)


def test_two_sinks_may_share_a_landing_table_but_not_a_function(database: Database) -> None:
    by_amount = "group_by: {amount: {}}, aggregate: {n: {fn: count}}"
    with (
        aggregate_sink(database) as first,
        aggregate_sink(database, by_amount, node="second", tables="landing_table: landed, agg_table: sizes") as second,
    ):
        for sink in (first, second, first):
            pay(sink, (1, "alice", 5, "i"), (2, "bob", 5, "i"))
        # Rows of others, inserted by hand, count in both.
        database.execute("INSERT INTO stats.landed VALUES (3, 'bob', 7, 'i')")
    assert totals(database) == [("alice", 10, 2), ("bob", 17, 3)]
    assert totals(database, table="sizes") == [(5, 2), (7, 1)]
    with aggregate_sink(database, tables="landing_table: a_to_b, agg_table: c"):
        pass
    with pytest.raises(UserError, match=r"stats\.a_to_b_to_c_fn belongs to another sink"):
        aggregate_sink(database, tables="landing_table: a, agg_table: b_to_c").__enter__()


def test_a_trigger_that_was_dropped_or_disabled_is_restored(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with aggregate_sink(database) as sink:
        pay(sink, (1, "alice", 5, "i"))
        database.execute("DROP TRIGGER landed_to_totals_trigger ON stats.landed")
        pay(sink, (2, "alice", 7, "i"))
        database.execute("ALTER TABLE stats.landed DISABLE TRIGGER landed_to_totals_trigger")
        pay(sink, (3, "alice", 9, "i"))
        database.execute("ALTER TABLE stats.totals ALTER COLUMN balance TYPE integer")
        with pytest.raises(UserError, match=r"stats\.totals was changed while the pipeline was running"):
            pay(sink, (4, "alice", 9, "i"))
    assert totals(database) == [("alice", 21, 3)]
    assert caplog.text.count("were changed while the pipeline was running") == 3


def test_old_rows_leave_the_landing_table_and_locked_ones_stay(database: Database) -> None:
    with aggregate_sink(database, checkpoint_interval_sec=0) as sink:
        for position in (1, 2, 3):
            pay(sink, (position, "alice", 1, "i"), position=position)
        with database.connect() as other, other.transaction():
            other.execute("SELECT FROM stats.landed WHERE id = 1 FOR UPDATE")
            sink.finalized(3)
        assert database.rows("SELECT id, _gs_checkpoint_epoch FROM stats.landed ORDER BY 1") == [(1, 1), (3, 3)]
        pay(sink, (4, "alice", 1, "i"), position=4)
        sink.finalized(4)
        assert database.rows("SELECT id FROM stats.landed") == [(4,)]
    assert totals(database) == [("alice", 4, 4)]


# What counts


def test_deletes_subtract_updates_add_and_unknown_operations_insert(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), aggregate_sink(database, BY_ACCOUNT + EVERYTHING) as sink:
        pay(sink, (1, "alice", 100, "i"), (2, "alice", 50, "I"), (3, "alice", 30, "d"), (4, "bob", 2, None))
        assert caplog.text.count("the value of a deleted row stays in least, most") == 1
        pay(sink, (1, "alice", 10, "u"), (5, "bob", None, "x"), (6, "bob", 9, "d"))
        pay(sink, (1, "alice", 10, "U"))
        assert caplog.text.count("an update counts as a new value in total, mean_sum, least, most") == 1
    assert caplog.text.count("earlier values are not known") == 2
    assert totals(database) == [("alice", 140, 1, 140, 1, 10, 100), ("bob", -7, 1, -7, 1, 2, 9)]


def test_a_key_that_comes_back_counts_again_and_a_repeated_row_does_not(database: Database) -> None:
    rows: list[Payment] = [
        *[(1, "alice", 1, "i"), (1, "alice", 2, "i"), (1, "alice", 2, "d"), (1, "alice", 4, "i")],
        *[(1, "alice", 8, "u"), (1, "alice", 16, "u"), (2, "alice", 32, "i"), (1, "alice", 64, "u")],
    ]
    with aggregate_sink(database) as sink:
        pay(sink, *rows)
        assert totals(database) == [("alice", 2 - 2 + 4 + 64 + 32, 2)]
        pay(sink, (1, "alice", 100, "u"))  # the operation is in the landing table already
        assert totals(database) == [("alice", 200, 2)]
        assert database.rows("SELECT id, amount, _gs_op FROM stats.landed ORDER BY 1, 3") == [
            *[(1, 2, "d"), (1, 4, "i"), (1, 100, "u"), (2, 32, "i")]
        ]
    for more, batch_size, expected in ((", deduplicate: false", 100, (125, 3)), ("", 1, (125, 3)), ("", 2, (116, 2))):
        tables = f"landing_table: l{batch_size}, agg_table: a{batch_size}"
        with aggregate_sink(database, BALANCE + more, tables=tables, batch_size=batch_size) as sink:
            pay(sink, *rows)
        assert totals(database, table=f"a{batch_size}") == [("alice", *expected)]


def test_an_epoch_counts_once_and_a_fenced_process_writes_nothing(database: Database) -> None:
    first = epoch(0, 1)
    with aggregate_sink(database) as sink, aggregate_sink(database) as other:
        pay_again = [(1, "alice", 5, "i")]
        write(sink, pay_again, first, PAYMENTS)
        write(other, pay_again, epoch(0, 1), PAYMENTS)
        write(sink, pay_again, first, PAYMENTS)
        assert sink.applied(first.slices) is Applied.YES
        write(other, [(2, "alice", 6, "i")], epoch(1, 2), PAYMENTS)
        with pytest.raises(Fenced):
            write(sink, [(9, "alice", 9, "i")], epoch(0, 3), PAYMENTS)
        sink.abort(first)
        late = epoch(2, 3)
        assert other.abandon(late) is Applied.NO
        with pytest.raises(Fenced):
            write(sink, [(9, "alice", 9, "i")], late, PAYMENTS)
        sink.abort(late)
    assert totals(database) == [("alice", 11, 2)]


def test_a_group_is_what_its_type_makes_equal(database: Database) -> None:
    columns = Schema((Field("id", INT64), Field("at", TIMESTAMP), Field("x", FLOAT64), OPERATION_FIELD))
    options = (
        'group_by: {day: {from: at, type: date}, x: {type: "numeric(5,1)"}, id: {type: "char(3)"}}, '
        "aggregate: {n: {fn: count}, least: {from: id, fn: min, type: text}}"
    )
    rows = [
        (1, moment(1, 5), 1.04, "i"),
        (1, moment(1, 9), 0.96, "i"),
        (20, moment(2), 1.0, "i"),
    ]
    with aggregate_sink(database, options, columns=columns, key=("id", "at")) as sink:
        write(sink, rows, columns=columns)
        found = totals(database, "day::text, x::text, id, n, least")
        assert found == [("2026-01-01", "1.0", "1  ", 2, "1"), ("2026-01-02", "1.0", "20 ", 1, "20")]
        report = sink.write(LOOSE, TASK, [batch([(1234, moment(1), 1.0, "i")], columns)])
        assert "too long for type character(3)" in report.bad_rows[0].message
        sink.abort(LOOSE)


# Rows that are rejected


def test_null_keys_null_groups_and_sums_out_of_range_are_bad_rows(database: Database) -> None:
    small = BY_ACCOUNT + "aggregate: {n: {fn: count}, total: {from: amount, fn: sum, type: smallint}}, on_error: skip"
    rows = [
        (None, "alice", 1, "i"),
        (1, "alice", 30_000, "i"),
        (2, None, 1, "i"),
        (3, "bob", 40_000, "i"),
        (4, "alice", 3_000, "i"),
        (5, "alice", -20_000, "i"),
        (6, None, None, "d"),
    ]
    with aggregate_sink(database, small) as sink:
        report = sink.write(LOOSE, TASK, [batch(rows, PAYMENTS)])
        assert [(bad.reason, bad.index) for bad in report.bad_rows] == [
            *[("null_key", 0), ("null_group", 2), ("null_group", 6), ("value_too_large", 3)]
        ]
        assert "the group column account is null" in report.bad_rows[1].message
        text = report.bad_rows[3].message
        assert text.startswith("table stats.totals, column 'total': smallint out of range; PL/pgSQL function "), text
        assert "INSERT INTO" not in text
        sink.abort(LOOSE)
        pay(sink, *(row for index, row in enumerate(rows) if index not in (0, 2, 3, 6)))
    assert totals(database) == [("alice", 3, 13_000)]


# With `retract`


def test_updates_and_deletes_take_back_what_was_counted(database: Database) -> None:
    with aggregate_sink(database, BY_ACCOUNT + EVERYTHING + RETRACT) as sink:
        assert not sink.doubles
        pay(sink, (1, "alice", 100, "i"), (2, "alice", 30, "i"), (3, "bob", 200, "i"), (4, "bob", None, "i"))
        assert totals(database) == [("alice", 130, 2, 130, 2, 30, 100), ("bob", 200, 2, 200, 2, 200, 200)]
        # A key moves to another group, one is deleted without its values, one that never was is deleted.
        pay(
            sink, (2, "bob", 5, "u"), (1, None, None, "d"), (9, "carol", 7, "d"), (3, "bob", 1, "d"), (3, "bob", 2, "u")
        )
        assert totals(database) == [("bob", 7, 3, 7, 3, 2, 5)]
        assert totals(database, table="totals_rows") == [(2, "bob", 5), (3, "bob", 2), (4, "bob", None)]
    # The same rows again, after a reset of the state, change nothing.
    with aggregate_sink(database, BY_ACCOUNT + EVERYTHING + RETRACT, generation="h") as sink:
        pay(sink, (2, "bob", 5, "i"), (3, "bob", 2, "i"), (4, "bob", None, "i"))
        assert totals(database) == [("bob", 7, 3, 7, 3, 2, 5)]


def test_a_group_that_keeps_its_edges_is_changed_once(database: Database) -> None:
    with aggregate_sink(database, BY_ACCOUNT + EVERYTHING + RETRACT) as sink:
        pay(sink, (1, "alice", 100, "i"), (2, "alice", 30, "i"), (3, "alice", 50, "i"), (4, "bob", 1, "i"))
        database.execute(
            "CREATE TABLE stats.seen (least int8, most int8);"
            "CREATE FUNCTION stats.see() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN INSERT INTO stats.seen VALUES (NEW.least, NEW.most); RETURN NULL; END';"
            "CREATE TRIGGER see AFTER UPDATE ON stats.totals FOR EACH ROW EXECUTE FUNCTION stats.see()"
        )
        pay(sink, (3, "alice", 60, "u"))
        assert totals(database, table="seen") == [(30, 100)]
        pay(sink, (1, "alice", 40, "u"))
        assert totals(database) == [("alice", 130, 3, 130, 3, 30, 60), ("bob", 1, 1, 1, 1, 1, 1)]
        assert sorted(totals(database, table="seen")) == [(30, 60), (30, 100), (30, 100)]


@pytest.mark.parametrize(("options", "fill"), [(BALANCE, "80"), (BY_ACCOUNT + EVERYTHING, None)])
def test_pages_keep_room_for_changes_that_touch_no_index(database: Database, options: str, fill: str | None) -> None:
    with aggregate_sink(database, options + RETRACT):
        stored = database.rows(
            "SELECT relname, reloptions FROM pg_class WHERE relname IN ('totals', 'totals_rows') ORDER BY relname"
        )
    assert stored == [("totals", ["fillfactor=50"]), ("totals_rows", [f"fillfactor={fill}"] if fill else None)]


def test_a_result_without_groups_loses_its_rows_but_stays(database: Database) -> None:
    with aggregate_sink(database, EVERYTHING + RETRACT + ", retract_table: last") as sink:
        pay(sink, (1, "alice", 100, "i"), (2, "alice", None, "i"))
        assert totals(database) == [("value", 100, 2, 100, 2, 100, 100)]
        pay(sink, (1, None, None, "d"), (2, None, None, "d"))
        assert totals(database) == [("value", 0, 0, 0, 0, None, None)]
        assert totals(database, table="last") == []


def test_floating_point_sums_lose_nothing_when_a_value_is_taken_back(database: Database) -> None:
    columns = Schema((Field("id", INT64), Field("x", FLOAT64), OPERATION_FIELD))
    options = "aggregate: {s: {from: x, fn: sum}, exact: {from: x, fn: sum, type: numeric}}, retract: true"
    with aggregate_sink(database, options, columns=columns) as sink:
        for value in (1e300, float("nan"), float("inf")):
            write(sink, [(1, 0.1, "i"), (2, 0.2, "i"), (3, value, "i")], columns=columns)
            write(sink, [(3, None, "d")], columns=columns)
            assert totals(database, "s, exact::text") == [(0.1 + 0.2, "0.3")]


def test_last_values_must_cover_the_result(database: Database) -> None:
    with aggregate_sink(database) as sink:
        pay(sink, (1, "alice", 5, "i"))
    with pytest.raises(UserError, match="has rows that were added without 'retract'"):
        aggregate_sink(database, BALANCE + RETRACT).__enter__()
    database.execute("TRUNCATE stats.totals")
    with aggregate_sink(database, BALANCE + RETRACT) as sink:
        pay(sink, (1, "alice", 5, "i"))
    with pytest.raises(UserError, match="'retract' was removed") as caught:
        aggregate_sink(database).__enter__()
    assert caught.value.hint == 'set \'retract: true\' again, or drop table "stats"."totals_rows"'
    database.execute("DROP TABLE stats.totals_rows")
    with aggregate_sink(database) as sink:
        pay(sink, (1, "alice", 5, "u"))
    assert totals(database) == [("alice", 10, 1)]

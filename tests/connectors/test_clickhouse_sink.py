"""The ClickHouse sink against a real server: its table, its rows, repetitions, and rows that are rejected."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from streamling.connector import Guarantee
from streamling.errors import PermanentError, StreamlingError, UserError
from streamling.plan.types import (
    BINARY,
    DATE,
    INT32,
    INT64,
    OPERATION_FIELD,
    STRING,
    TIMESTAMP,
    U256,
    DataType,
    Field,
    Schema,
    decimal,
    list_of,
)
from streamling.sinks.clickhouse.blocks import cut
from streamling.sinks.clickhouse.tables import MAX_BLOCKS
from support.clickhouse_server import READER, READER_PASSWORD, ClickHouseDatabase, ClickHouseServer
from support.clickhouse_sink_samples import build, new_table, proxy, sink, statement, token, write
from support.http_server import Answer
from support.postgres_samples import epoch

pytestmark = pytest.mark.servers
ALL = "SELECT id, name, score, is_deleted FROM {} ORDER BY id, score"
LIVE = "SELECT id, name, score FROM {} FINAL ORDER BY id"


@pytest.fixture(scope="module")
def database(clickhouse: ClickHouseServer) -> ClickHouseDatabase:
    return clickhouse.own_database()


def item(id_: object, name: object = "x", score: object = 1, operation: object = "i") -> tuple[Any, ...]:
    return id_, name, score, operation


# The table


def test_a_missing_table_is_created_with_version_mark_and_window(database: ClickHouseDatabase) -> None:
    table = new_table()
    with sink(database, table) as out:
        assert write(out, [item(1), item(2, None, None)]).rows == 2
        assert out.capabilities.guarantee is Guarantee.AT_LEAST_ONCE and out.capabilities.same_rows
    ddl = database.execute(f"SHOW CREATE TABLE {table} FORMAT TSVRaw")
    for part in (
        "`id` Int64,",
        "`name` Nullable(String),",
        "`is_deleted` UInt8,",
        "`insert_time` DateTime DEFAULT now()",
        "ReplacingMergeTree(insert_time, is_deleted)",
        "non_replicated_deduplication_window = 10000",
    ):
        assert part in ddl
    assert "_gs_op" not in ddl
    assert database.rows(ALL.format(table)) == [(1, "x", 1, 0), (2, None, None, 0)]


def test_a_table_that_fits_causes_no_warning(database: ClickHouseDatabase, caplog: pytest.LogCaptureFixture) -> None:
    for more, key in (("", ("id",)), (", append_only_mode: false", ("name", "id"))):
        table = new_table()
        for _ in range(2):
            with caplog.at_level(logging.WARNING), sink(database, table, more, key=key):
                assert caplog.text == ""


def test_version_override_and_database_of_a_created_table(database: ClickHouseDatabase) -> None:
    table = f"shop.{new_table()}"
    columns = Schema(
        (*(Field(n, INT64) for n in ("id", "at", "seen", "version")), Field("is_deleted", INT64), OPERATION_FIELD)
    )
    override = "{at: DateTime64(3), seen: 'DateTime64(3) CODEC(Delta, ZSTD)', _gs_op: String}"
    more = f", version_column_name: version, schema_override: {override}"
    with sink(database, table, more, columns=columns) as out:
        write(
            out, [(n, 1_700_000_000 + 3600 * n, 1_700_000_000 + 7200 * n, 5, 1, "i") for n in range(5)], columns=columns
        )
        write(out, [(0, 0, 0, 4, 0, "u")], columns=columns)
    assert database.rows(f"SELECT id, toUnixTimestamp(at), toUnixTimestamp(seen) FROM {table} FINAL ORDER BY id") == [
        (n, 1_700_000_000 + 3600 * n, 1_700_000_000 + 7200 * n) for n in range(5)
    ]
    ddl = database.execute(f"SHOW CREATE TABLE {table} FORMAT TSVRaw")
    assert "`seen` DateTime64(3) CODEC(Delta(8), ZSTD(1))" in ddl and "insert_time" not in ddl
    assert "`version` Int64," in ddl and ddl.count("is_deleted` ") == 1


def test_columns_of_an_existing_table_are_paired_by_name(
    database: ClickHouseDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table()
    database.execute(
        f"CREATE TABLE {table} (score Int16, id UInt32, made DateTime DEFAULT now(), twice Int64 MATERIALIZED id * 2,"
        " kind String DEFAULT 'none') ENGINE = MergeTree ORDER BY id"
    )
    with caplog.at_level(logging.WARNING), sink(database, table) as out:
        write(out, [item(1), item(2, score=-5)])
    assert database.rows(f"SELECT score, id, kind, twice FROM {table} ORDER BY id") == [
        (1, 1, "none", 2),
        (-5, 2, "none", 4),
    ]
    for part in ("no column for name", "engine is MergeTree", "no column 'is_deleted'", "deduplication_window to 100"):
        assert part in caplog.text


def test_all_that_does_not_fit_is_listed(database: ClickHouseDatabase) -> None:
    table = new_table()
    database.execute(f"CREATE TABLE {table} (name Int64, score Tuple(a Int8)) ENGINE = MergeTree ORDER BY tuple()")
    with pytest.raises(UserError) as raised, sink(database, table):
        pass
    assert raised.value.message.splitlines()[1:] == [
        "  - column 'id', which belongs to the primary key, does not exist",
        "  - column 'name' does not fit: it is Int64, and the input is string",
        "  - column 'score' does not fit: it is Tuple(a Int8), and the input is int64",
    ]
    assert raised.value.code == "TABLE_UNFIT" and f"{database.name}.{table}" in raised.value.message


@pytest.mark.parametrize(
    ("table", "connection", "parts"),
    [
        ("t", {"password": "wrong secret"}, ["Authentication failed", "check the user"]),
        ("nowhere.t", {}, ["Database nowhere does not exist", "create the database"]),
        ("shop.new", {"user": READER, "password": READER_PASSWORD}, ["Not enough privileges", "grant it"]),
    ],
)
def test_a_server_that_refuses_ends_the_start(
    database: ClickHouseDatabase, table: str, connection: dict[str, str], parts: list[str]
) -> None:
    with pytest.raises(PermanentError) as raised, sink(database, table, **connection):
        pass
    shown = f"{raised.value.message} {raised.value.hint}"
    assert all(part in shown for part in parts) and raised.value.node == "out" and "secret" not in shown


def test_the_end_of_a_table_during_the_run(database: ClickHouseDatabase) -> None:
    table = new_table()
    with sink(database, table) as out:
        write(out, [item(1)])
        database.execute(f"ALTER TABLE {table} DROP COLUMN score")
        with pytest.raises(PermanentError, match="No such column score"):
            write(out, [item(2)])
        database.execute(f"DROP TABLE {table}")
        with pytest.raises(PermanentError, match=f"table {database.name}.{table}: .* does not exist"):
            write(out, [item(2)])


# Rows


def test_of_a_key_in_a_batch_the_last_row_is_written_and_deletes_are_marked(database: ClickHouseDatabase) -> None:
    table = new_table()
    with sink(database, table) as out:
        first = write(out, [item(1, "first"), item(2), item(1, "updated", 2, "u"), item(3, operation=None)])
        assert (first.rows, first.detail) == (4, 3)
        assert database.rows(ALL.format(table)) == [(1, "updated", 2, 0), (2, "x", 1, 0), (3, "x", 1, 0)]
        write(out, [item(1, operation="d"), item(2, operation="D")])
        assert database.rows(f"SELECT id FROM {table} FINAL") == [(3,)]
        write(out, [item(2, "back", 7)])
        assert database.rows(LIVE.format(table)) == [(2, "back", 7), (3, "x", 1)]


def test_rows_of_different_batches_and_without_deduplication_stay(database: ClickHouseDatabase) -> None:
    rows = [item(n % 3, score=n) for n in range(12)]
    for more, count in (
        (", batch_size: 4", 9),
        (", deduplicate: false", 12),
        (", batch_size: 1, deduplicate: false", 12),
    ):
        table = new_table()
        with sink(database, table, more) as out:
            database.execute(f"SYSTEM STOP MERGES {table}")
            assert write(out, rows).detail == count
        assert database.rows(f"SELECT count() FROM {table}") == [(count,)]
        assert database.rows(LIVE.format(table)) == [(n, "x", 9 + n) for n in range(3)]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "LZ4"])
def test_compression_and_small_batches(database: ClickHouseDatabase, compression: str) -> None:
    table = new_table()
    with proxy(database, lambda request, forward: forward()) as front:
        more = f", batch_size: 5, compression: {compression}, compression_level: 9"
        with sink(database, table, more, url=front.url) as out:
            write(out, [item(n, "é" * n) for n in range(25)])
        inserts = [r for r in front.requests if statement(r).startswith("INSERT")][1:]
    assert database.rows(f"SELECT id, name FROM {table} ORDER BY id") == [(n, "é" * n) for n in range(25)]
    encoding = None if compression == "none" else compression.lower()
    assert [r.headers.get("content-encoding") for r in inserts] == [encoding] * 5
    assert inserts[0].headers["user-agent"].endswith("app=local_app_v1")


def test_an_epoch_has_no_more_inserts_than_a_table_remembers() -> None:
    blocks = [len(block) for block in cut(np.arange(1050), 1)]
    assert len(blocks) <= MAX_BLOCKS and sum(blocks) == 1050
    assert [len(block) for block in cut(np.arange(25), 10)] == [10, 10, 5]


def test_streams_divide_keys(database: ClickHouseDatabase) -> None:
    table = new_table()
    with proxy(database, lambda request, forward: forward()) as front:
        with sink(
            database, table, ", batch_size: 50, parallelism: 4, deduplicate: false", width=4, url=front.url
        ) as out:
            assert write(out, [item(n % 40, score=n) for n in range(400)]).detail == 400
        assert front.most_in_flight > 1
    assert database.rows(LIVE.format(table)) == [(n, "x", 360 + n) for n in range(40)]


# Deletes by mutation

KEYS: dict[str, tuple[DataType, list[Any]]] = {
    "int": (INT64, [-5, 7]),
    "text": (STRING, ['it\'s \\ "q" \n \0 é', ""]),
    "bytes": (BINARY, [b"\xff\x00'", b"\\"]),
    "fixed": (DataType("binary", length=2), [b"\x00'", b"ab"]),
    "wide": (U256, [str(2**256 - 1), "0"]),
    "decimal": (decimal(20, 5), ["-1.50000", "3.00000"]),
    "date": (
        DATE,
        [datetime.fromisoformat("2024-02-29T00:00:00").date(), datetime.fromisoformat("1970-01-01T00:00:00").date()],
    ),
    "micro": (
        TIMESTAMP,
        [datetime.fromisoformat("1969-12-31T23:59:59.999999"), datetime.fromisoformat("2024-01-02T03:04:05.000006")],
    ),
    "second": (
        DataType("timestamp", unit="s"),
        [datetime.fromisoformat("2024-01-02T03:04:05"), datetime.fromisoformat("1970-01-01T00:00:00")],
    ),
    "nano": (
        DataType("timestamp", unit="ns"),
        [datetime.fromisoformat("2024-01-02T03:04:05.000006"), datetime.fromisoformat("1970-01-01T00:00:00")],
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_mutations_find_keys_of_every_type(database: ClickHouseDatabase, name: str) -> None:
    type_, values = KEYS[name]
    if name == "decimal":
        values = [Decimal(value) for value in values]
    columns = Schema((Field("k", type_), Field("id", INT32), Field("v", STRING), OPERATION_FIELD))
    table = new_table()
    with sink(database, table, ", append_only_mode: false", columns=columns, key=("k", "id")) as out:
        write(out, [(value, n, "first", "i") for value in values for n in (1, 2)], columns=columns)
        write(out, [(values[0], 1, "", "d"), (values[1], 2, "again", "u")], columns=columns)
    assert database.rows(f"SELECT id, v FROM {table} FINAL ORDER BY id, v") == [
        (1, "first"),
        (2, "again"),
        (2, "first"),
    ]
    table = new_table()
    with sink(database, table, ", append_only_mode: false", columns=columns, key=("k",)) as out:
        write(out, [(value, 1, "first", "i") for value in values], columns=columns)
        write(out, [(values[0], 1, None, "d")], columns=columns)
    assert database.rows(f"SELECT count() FROM {table}") == [(1,)]
    ddl = database.execute(f"SHOW CREATE TABLE {table} FORMAT TSVRaw")
    assert "ReplacingMergeTree" in ddl and "is_deleted" not in ddl and "insert_time" not in ddl


def test_mutations_keep_the_order_of_rows_and_a_replay_keeps_their_result(database: ClickHouseDatabase) -> None:
    rows = [
        item(1, "a"), item(1, operation="d"), item(1, "b"), item(2, "c"), item(2, operation="d"), item(3, "d"),
        item(4, operation="d"), item(4, "e"),
    ]  # fmt: skip
    for more in (", deduplicate: false", ", batch_size: 3, deduplicate: false", ", batch_size: 2", ""):
        table, into = new_table(), epoch(0, 5)
        with sink(database, table, f", append_only_mode: false{more}") as out:
            write(out, [item(4, "old")])
            for _ in range(2):
                assert write(out, rows, into).rows == len(rows)
                assert database.rows(LIVE.format(table)) == [(1, "b", 1), (3, "d", 1), (4, "e", 1)]


def test_many_keys_are_deleted_in_several_statements(database: ClickHouseDatabase) -> None:
    table = new_table()
    with proxy(database, lambda request, forward: forward()) as front:
        with sink(database, table, ", append_only_mode: false", url=front.url) as out:
            write(out, [item(n) for n in range(1300)])
            assert write(out, [item(n, operation="d") for n in range(50, 1300)]).detail == 1250
        assert len([r for r in front.requests if statement(r).startswith("ALTER")]) == 2
    assert database.rows(f"SELECT count() FROM {table}") == [(50,)]


def test_a_delete_whose_answer_is_lost_is_not_begun_again(database: ClickHouseDatabase) -> None:
    table = new_table()
    answers = iter(["lost", "down"])

    def respond(request: Any, forward: Any) -> Answer:
        if not statement(request).startswith("ALTER"):
            return forward()  # type: ignore[no-any-return]
        match next(answers, ""):
            case "lost":
                forward()
                return Answer(fault="reset")
            case "down":
                return Answer(503, b"down")
        return forward()  # type: ignore[no-any-return]

    with proxy(database, respond) as front, sink(database, table, ", append_only_mode: false", url=front.url) as out:
        write(out, [item(1), item(2), item(3)])
        write(out, [item(1, operation="d")])
        write(out, [item(2, operation="d")])
    assert database.rows(f"SELECT id FROM {table}") == [(3,)]
    assert database.rows(
        f"SELECT count() FROM system.mutations WHERE database = '{database.name}' AND table = '{table}'"
    ) == [(2,)]


# Repetitions


def test_a_replay_writes_nothing_twice_and_other_rows_are_written(database: ClickHouseDatabase) -> None:
    table = new_table()
    database.execute(
        f"CREATE TABLE {table} (id Int64, name String, score Int64, day Date DEFAULT '2024-01-01')"
        " ENGINE = MergeTree PARTITION BY id % 3 ORDER BY id SETTINGS non_replicated_deduplication_window = 1000"
    )
    rows = [item(n) for n in range(10)]
    with sink(database, table, ", batch_size: 4, deduplicate: false") as out:
        into = epoch(0, 10)
        write(out, rows, into)
        write(out, rows, into)
        write(out, rows, replace(into, id="other", number=9))
        assert database.rows(f"SELECT count() FROM {table}") == [(10,)]
    with sink(database, table, ", batch_size: 4, deduplicate: false") as again:
        write(again, rows, into)
        assert database.rows(f"SELECT count() FROM {table}") == [(10,)]
        write(again, rows, epoch(10, 20))  # the same rows of another slice
        assert database.rows(f"SELECT count() FROM {table}") == [(20,)]
        write(again, rows[:4] + rows[:4], epoch(20, 28))  # equal inserts of one epoch
        assert database.rows(f"SELECT count() FROM {table}") == [(28,)]
        write(again, rows[:9], epoch(10, 20))  # one row has expired in the store: only the changed insert is new
        assert database.rows(f"SELECT count() FROM {table}") == [(29,)]


def test_a_lost_answer_an_outage_and_errors_of_the_server_are_retried(database: ClickHouseDatabase) -> None:
    table = new_table()
    answers = iter(["lost", "reset", "500", "busy", "exception", "slow"])

    def respond(request: Any, forward: Any) -> Answer:
        if not statement(request).startswith("INSERT") or "insert_deduplication_token" not in request.path:
            return forward()  # type: ignore[no-any-return]
        match next(answers, ""):
            case "lost":
                forward()
                return Answer(fault="reset")
            case "reset":
                return Answer(fault="reset")
            case "500":
                return Answer(
                    500, b"Code: 241. DB::Exception: Memory limit exceeded", {"X-ClickHouse-Exception-Code": "241"}
                )
            case "busy":
                return Answer(429, b"later")
            case "exception":
                return Answer(200, b"Code: 999. DB::Exception: Coordination::Exception: lost")
            case "slow":
                return replace(forward(), delay=0.5)
        return forward()  # type: ignore[no-any-return]

    with proxy(database, respond) as front, sink(database, table, ", deduplicate: false", url=front.url) as out:
        assert write(out, [item(1), item(1, score=2)]).detail == 2
        tokens = [token(r) for r in front.requests if "insert_deduplication_token" in r.path]
        assert len(tokens) == 6 and len(set(tokens)) == 1
        assert out.trouble() is None
    assert database.rows(f"SELECT id, score FROM {table} ORDER BY score") == [(1, 1), (1, 2)]


def test_an_exception_after_the_status_is_an_error(database: ClickHouseDatabase) -> None:
    body = b"Code: 60. DB::Exception: Table default.t does not exist. (UNKNOWN_TABLE)"

    def respond(request: Any, forward: Any) -> Answer:
        return Answer(200, body) if statement(request).startswith(("INSERT", "CREATE")) else forward()

    with proxy(database, respond) as front, pytest.raises(PermanentError, match="UNKNOWN_TABLE"):
        with sink(database, new_table(), url=front.url):
            pass


def test_the_end_of_the_run_ends_retries(database: ClickHouseDatabase) -> None:
    table, over = new_table(), [False]

    def respond(request: Any, forward: Any) -> Answer:
        if "insert_deduplication_token" in request.path:
            over[0] = True
            return Answer(503, b"down")
        return forward()  # type: ignore[no-any-return]

    with proxy(database, respond) as front, sink(database, table, ends_retries=lambda: over[0], url=front.url) as out:
        with pytest.raises(StreamlingError, match="503"):
            write(out, [item(1)])


def test_rows_survive_the_death_of_the_server(database: ClickHouseDatabase) -> None:
    table = new_table()
    with sink(database, table) as out:
        write(out, [item(1)])
        database.server.kill()
        database.server.start()
        write(out, [item(2)])
        assert database.rows(f"SELECT id FROM {table} ORDER BY id") == [(1,), (2,)]


# Bad rows


TYPED = Schema((Field("id", INT64), Field("name", STRING), Field("tags", list_of(INT64)), OPERATION_FIELD))
DDL = (
    "(id Int64, name UUID, tags Array(Int8), is_deleted UInt8, CONSTRAINT small CHECK id < 1000)"
    " ENGINE = ReplacingMergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 1000"
)
UUID = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"


def test_bad_rows_are_found_and_the_others_written(database: ClickHouseDatabase) -> None:
    table, into = new_table(), epoch(0, 40)
    database.execute(f"CREATE TABLE {table} {DDL}")
    rows: list[Any] = [(n, UUID, [n], "i") for n in range(40)]
    rows[3] = (3, "not a uuid", [1], "i")
    rows[17] = (2000, UUID, [1], "i")
    rows[20] = (20, UUID, [300], "i")
    rows[21] = (21, UUID, None, "i")
    rows[22] = (None, UUID, [1], "i")
    rows[23] = (24, UUID, [None], "u")
    rows[25] = (24, UUID, [128], "u")
    rows[31] = (30, "no uuid", [5], "u")
    rows[32] = (30, "neither", [6], "u")
    more = ", on_error: skip"
    with sink(database, table, more, columns=TYPED) as out:
        for _ in range(2):
            report = write(out, rows, into, columns=TYPED)
            assert [row.index for row in report.bad_rows] == [3, 17, 20, 21, 22, 23, 25, 31, 32]
            assert (report.rows, report.rejected, report.detail) == (31, 9, 31)
            found = database.rows(f"SELECT count(), uniqExact(id) FROM {table}")
            assert found == [(31, 31)]
    reasons = [row.reason for row in report.bad_rows]
    assert reasons == [
        "type_mismatch",
        "constraint_violation",
        *["type_mismatch"] * 2,
        "null_key",
        *["type_mismatch"] * 4,
    ]
    messages = [row.message for row in report.bad_rows]
    assert "uuid" in messages[0] and "small" in messages[1]
    assert messages[2] == f"table {database.name}.{table}, column 'tags': Integer value 300 not in range: -128 to 127"
    assert (
        "null does not fit Array(Int8)" in messages[3]
        and "the key is null" in messages[4]
        and "null does not fit Int8" in messages[5]
    )
    assert report.bad_rows[0].row == {"id": 3, "name": "not a uuid", "tags": [1], "_gs_op": "i"}
    # A row that is rejected does not hide an earlier one of its key, whoever rejects it.
    assert database.rows(f"SELECT id, tags FROM {table} WHERE id IN (24, 30) ORDER BY id") == [(24, [24]), (30, [30])]


def test_the_first_bad_row_is_enough_to_fail(database: ClickHouseDatabase) -> None:
    table = new_table()
    database.execute(f"CREATE TABLE {table} {DDL}")
    with sink(database, table, columns=TYPED) as out:
        assert [r.index for r in write(out, [(1, UUID, [999], "i")] * 3, columns=TYPED).bad_rows] == [0]
        rows = [(n, UUID if n % 5 else "no", [1], "i") for n in range(1, 20)]
        assert [r.index for r in write(out, rows, columns=TYPED).bad_rows] == [4]


def test_a_delete_without_a_column_for_its_mark_is_rejected(database: ClickHouseDatabase) -> None:
    table = new_table()
    database.execute(f"CREATE TABLE {table} (id Int64) ENGINE = MergeTree ORDER BY id")
    with sink(database, table, ", on_error: skip") as out:
        report = write(out, [item(1), item(2, operation="d")])
    assert [row.index for row in report.bad_rows] == [1] and "is a delete" in report.bad_rows[0].message
    assert database.rows(f"SELECT id FROM {table}") == [(1,)]


def test_building_a_sink_contacts_nobody() -> None:
    assert build("a.b", url="http://nowhere.invalid").target == "http://nowhere.invalid/a.b"

"""The tables behind lookups: files as they are at one moment, and Postgres queries."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamling.connector import Lookup
from streamling.engine.preparation import build_lookups, check
from streamling.errors import InvalidPipeline, PermanentError, StreamlingError, TransientError, UserError
from streamling.plan.pipeline import Plan
from streamling.spec.pipeline import PipelineText
from streamling.spec.settings import Settings
from streamling.transforms.lookup import file as file_lookup
from streamling.transforms.lookup import postgres as postgres_lookup
from support.postgres_server import Database, PostgresServer

PIPELINE = """\
sources:
  orders: {{type: generator, rows: 3, primary_key: id}}
transforms:
  names: {{type: lookup, {options}, primary_key: id}}
  joined: {{type: sql, primary_key: id, sql: "SELECT o.id FROM orders o JOIN names n ON o.id = n.id"}}
sinks:
  out: {{type: blackhole, from: joined}}
"""
FILE = "path: {path}, format: {format}"


def planned(options: str, settings: Settings | None = None) -> tuple[Plan, Lookup]:
    plan = check(PipelineText(PIPELINE.format(options=options)), settings or Settings(), probe=True)
    return plan, build_lookups(plan, settings or Settings())["names"]


def problem(options: str, settings: Settings | None = None) -> StreamlingError:
    with pytest.raises(InvalidPipeline) as caught:
        planned(options, settings)
    return caught.value.problems[0]


# Files


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_all_rows_of_a_file_are_read(tmp_path: Path, format_: str) -> None:
    path = tmp_path / f"names.{format_}"
    rows = [{"id": 1, "name": "Ann", "rate": 1.5}, {"id": 2, "name": None, "rate": 2.0}]
    if format_ == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif format_ == "json":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        path.write_text("id,name,rate\n1,Ann,1.5\n2,,2.0\n")
    plan, lookup = planned(FILE.format(path=path, format=format_))
    assert [(f.name, str(f.type)) for f in plan.node("names").schema] == [
        ("id", "int64"),
        ("name", "string"),
        ("rate", "float64"),
    ]
    assert lookup.read().to_pylist() == rows


def test_declared_types_are_not_inferred(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("id,zip,price\n1,01099,0.10\n")
    options = FILE.format(path=tmp_path / "names.csv", format="csv")
    _, lookup = planned(options + ', schema: {zip: string, price: "decimal(10,2)"}')
    assert lookup.read().to_pylist() == [{"id": 1, "zip": "01099", "price": Decimal("0.10")}]
    (caution,) = [caution for caution in planned(options)[0].cautions if caution.code == "TYPE_INFERRED"]
    assert "column 'zip' is string" in caution.message
    assert caution.hint == "set the type of the column in 'schema' of the lookup"


def test_a_file_that_cannot_be_used_is_reported_before_the_run(tmp_path: Path) -> None:
    missing = problem(FILE.format(path=tmp_path / "names.csv", format="csv"))
    assert f"lookup transform 'names': there is no file '{tmp_path / 'names.csv'}'" in missing.message
    assert missing.where is not None
    assert "is not a file" in problem(FILE.format(path=tmp_path, format="csv")).message
    (tmp_path / "names.parquet").write_text("no parquet")
    assert (
        "cannot be read as parquet" in problem(FILE.format(path=tmp_path / "names.parquet", format="parquet")).message
    )
    (tmp_path / "names.csv").write_text("code,name\n1,a\n")
    assert "columns [id] not found" in problem(FILE.format(path=tmp_path / "names.csv", format="csv")).message
    (tmp_path / "names.csv").write_text("id,_gs_op\n1,i\n")
    assert "it has a column `_gs_op`" in problem(FILE.format(path=tmp_path / "names.csv", format="csv")).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,name\n1,Ann\nx,Bob\n", "row 2: column 'id': 'x' is not a valid int64"),
        ("id,title\n1,Ann\n", "lacks columns that it had at the start: name"),
        ("id,name\n1,Ann,more\n", "row 1"),
        ("", "lacks columns"),
    ],
)
def test_a_later_version_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "names.csv"
    path.write_text("id,name\n1,Ann\n")
    _, lookup = planned(FILE.format(path=path, format="csv"))
    lookup.read()
    path.write_text(text)
    with pytest.raises(PermanentError, match=message):
        lookup.read()


def test_a_file_that_is_too_large_is_refused_before_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "names.csv"
    with path.open("w") as file:
        file.write("id,name\n")
        for start in range(0, 2_000_000, 100_000):
            file.write("".join(f"{n},{'x' * 20}\n" for n in range(start, start + 100_000)))
    monkeypatch.setattr(file_lookup, "MOST_BYTES", 2 << 20)
    _, lookup = planned(FILE.format(path=path, format="csv"))
    before = pa.total_allocated_bytes()
    with pytest.raises(PermanentError, match=r"names.csv' has more than 2 MB in memory"):
        lookup.read()
    assert pa.total_allocated_bytes() - before < 32 << 20


def test_a_file_counts_as_changed_when_it_is_no_longer_written(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text("id,name\n1,Ann\n")
    _, lookup = planned(FILE.format(path=path, format="csv"))
    lookup.read()
    assert not lookup.may_have_changed()
    path.write_text("id,name\n1,Ann\n2,B")
    assert not lookup.may_have_changed(), "it may not be complete"
    long_ago = time.time_ns() - 5 * 10**9
    os.utime(path, ns=(long_ago, long_ago))
    assert lookup.may_have_changed()
    path.unlink()
    with pytest.raises(UserError, match="there is no file"):
        lookup.may_have_changed()


def test_a_file_that_is_replaced_while_it_is_read_is_read_as_one_version(tmp_path: Path) -> None:
    path, rows = tmp_path / "names.csv", 30_000
    texts = ["id,name\n" + "".join(f"{i},{version}\n" for i in range(rows)) for version in "ab"]

    def replace(number: int) -> None:
        (tmp_path / "new").write_text(texts[number % 2])
        (tmp_path / "new").rename(path)

    replace(0)
    _, lookup = planned(FILE.format(path=path, format="csv"))
    tables = read_while(lookup, replace, 8)
    assert all(table.num_rows == rows and len(table.column("name").unique()) == 1 for table in tables)
    assert len({table.column("name")[0].as_py() for table in tables}) == 2


def read_while(lookup: Lookup, change: Callable[[int], None], times: int) -> list[pa.Table]:
    done = threading.Event()

    def work() -> None:
        number = 0
        while not done.wait(0.05):
            number += 1
            change(number)

    thread = threading.Thread(target=work)
    thread.start()
    tables: list[pa.Table] = []
    try:
        deadline = time.monotonic() + 60
        while len(tables) < times and time.monotonic() < deadline:
            try:
                tables.append(lookup.read())
            except TransientError:
                continue  # it changed three times
            # Pauses like those of the other thread would find the same version again and again.
            time.sleep(0.03 + 0.013 * len(tables))
    finally:
        done.set()
        thread.join()
    return tables


# Postgres


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def connected(database: Database) -> Settings:
    connection = {key.lower(): value for key, value in database._connection("PASS").items()}
    return Settings.model_validate({"postgres_sink": connection})


ALL_TYPES = """
    SELECT 1::bigint AS id, 2::smallint AS small, 3::int AS medium, true AS yes, 1.5::real AS r, 0.1::float8 AS d,
           12.30::numeric(10,2) AS price, 1.23456789012345678901234567890123456789::numeric AS any_number, 'a,"b"' AS t,
           '' AS empty, NULL::text AS nothing, DATE '2026-02-28' AS day, TIMESTAMP '2026-01-02 03:04:05.678901' AS wall,
           TIMESTAMPTZ '2026-01-02 03:04:05+02' AS moment, '\\x00ff'::bytea AS bytes,
           'c0ffee00-0000-0000-0000-000000000000'::uuid AS u, '{"a": [1]}'::jsonb AS document -- the end
"""


@pytest.mark.servers
def test_a_query_gives_all_types_exactly(database: Database) -> None:
    query = " ".join(ALL_TYPES.split("\n")[1:-1]).replace("-- the end", "")
    plan, lookup = planned(f"query: {json.dumps(query)}", connected(database))
    try:
        (row,) = lookup.read().to_pylist()
    finally:
        lookup.close()
    assert {f.name: str(f.type) for f in plan.node("names").schema if f.name in ("price", "any_number", "moment")} == {
        "price": "decimal(10,2)",
        "any_number": "string",
        "moment": "timestamp(UTC)",
    }
    assert row == {
        "id": 1,
        "small": 2,
        "medium": 3,
        "yes": True,
        "r": 1.5,
        "d": 0.1,
        "price": Decimal("12.30"),
        "any_number": "1.23456789012345678901234567890123456789",
        "t": 'a,"b"',
        "empty": "",
        "nothing": None,
        "day": date(2026, 2, 28),
        "wall": datetime(2026, 1, 2, 3, 4, 5, 678901),  # noqa: DTZ001 - Postgres has no zone here either
        "moment": datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC),
        "bytes": b"\x00\xff",
        "u": "c0ffee00-0000-0000-0000-000000000000",
        "document": '{"a": [1]}',
    }


@pytest.mark.servers
def test_a_query_is_run_again_and_cannot_change_anything(database: Database) -> None:
    database.execute("CREATE TABLE names (id int, name text)")
    database.execute("INSERT INTO names SELECT i, 'n' || i FROM generate_series(1, 60000) i")
    _, lookup = planned("query: SELECT * FROM names;", connected(database))
    try:
        assert lookup.read().num_rows == 60_000
        database.execute("DELETE FROM names WHERE id > 2")
        assert lookup.may_have_changed()
        assert lookup.read().to_pylist() == [{"id": 1, "name": "n1"}, {"id": 2, "name": "n2"}]
        database.execute("DELETE FROM names")
        assert lookup.read().num_rows == 0
        database.execute("DROP TABLE names")
        with pytest.raises(PermanentError, match='"names" does not exist'):
            lookup.read()
    finally:
        lookup.close()
    schema = "schema: {id: int64, name: string}"
    _, writing = planned(f"query: \"SELECT nextval('s') AS id, 'a' AS name\", {schema}", connected(database))
    database.execute("CREATE SEQUENCE s")
    try:
        with pytest.raises(StreamlingError, match="read-only transaction"):
            writing.read()
    finally:
        writing.close()


@pytest.mark.servers
def test_a_result_that_is_too_large_is_an_error_and_the_connection_can_be_used_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_lookup, "MOST_BYTES", 10 << 20)
    database.execute("CREATE TABLE many AS SELECT 100::int AS count")
    query = "SELECT i AS id, repeat('x', 1000) AS text FROM many, generate_series(1, count) i"
    _, lookup = planned(f"query: {json.dumps(query)}", connected(database))
    try:
        assert lookup.read().num_rows == 100
        database.execute("UPDATE many SET count = 100000")
        with pytest.raises(PermanentError, match="has more than 10 MB in memory"):
            lookup.read()
        database.execute("UPDATE many SET count = 1")
        assert lookup.read().num_rows == 1
    finally:
        lookup.close()


@pytest.mark.servers
def test_a_server_that_goes_away_is_transient(postgres: PostgresServer, database: Database) -> None:
    settings = connected(database)
    _, lookup = planned("query: SELECT 1 AS id", settings)
    try:
        assert lookup.read().num_rows == 1
        postgres.stop()
        try:
            with pytest.raises(TransientError):
                lookup.read()
            assert "cannot be reached" in problem("query: SELECT 1 AS id", settings).message
            plan, _ = planned("query: SELECT 1 AS id, schema: {id: int64}", settings)
            assert plan.node("names").schema.names == ("id",), "declared columns need no server"
        finally:
            postgres.start()
        assert lookup.read().num_rows == 1
    finally:
        lookup.close()


@pytest.mark.servers
def test_a_value_that_does_not_fit_its_declared_type_is_an_error(database: Database) -> None:
    _, lookup = planned("query: SELECT 'x' AS id, schema: {id: int64}", connected(database))
    try:
        with pytest.raises(PermanentError, match="a value of the query does not fit its column"):
            lookup.read()
    finally:
        lookup.close()
    assert "syntax error" in problem("query: SELEC 1", connected(database)).message
    assert (
        "two columns of the query are named 'id'"
        in problem("query: 'SELECT 1 AS id, 2 AS id'", connected(database)).message
    )

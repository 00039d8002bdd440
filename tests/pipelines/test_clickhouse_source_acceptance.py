"""From ClickHouse tables to Postgres tables, on real servers. Cases that share their settings share a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.clickhouse_samples import spoiling_proxy
from support.clickhouse_server import ClickHouseServer
from support.harness import MakeWorkspace, Workspace
from support.postgres_server import Database, PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.servers]

PAGES = {"CLICKHOUSE_SOURCE__PAGE_SIZE": 30, "CLICKHOUSE_SOURCE__SORT_KEY_RANGE": 100}
ORDERED = "MergeTree ORDER BY"


@dataclass
class Case:
    """A table, what is inserted in separate inserts, options of the source, and queries on the result."""

    columns: str
    engine: str
    inserts: list[str]
    expected: dict[str, Any]
    options: str = ""


def numbers(expression: str, count: int) -> str:
    return f"SELECT {expression} FROM numbers({count})"


VERSIONED = "id String, payload String, insert_timestamp UInt64, is_deleted UInt8"
REPLACING = "ReplacingMergeTree(insert_timestamp, is_deleted) ORDER BY"
HOT = "concat('h', leftPad(toString(number), 3, '0'))"
SCORE = "priority Int64, category String, id Int64"

CASES = {
    # CR-01
    "cr01": Case(
        SCORE,
        f"{ORDERED} (priority, category, id)",
        [
            numbers("1, 'A', number", 50),
            numbers("2, 'A', 100 + number", 60),
            numbers("1, 'B', 200 + number", 90),
            numbers("1, 'C', 300 + number", 20),
        ],
        {
            "count(*)": 220,
            "count(*) FILTER (WHERE category = 'A' AND priority = 1)": 50,
            "count(*) FILTER (WHERE category = 'A' AND priority = 2)": 60,
        },
    ),
    # CR-02
    "cr02": Case(
        "region String, country String, city String, population Int64",
        f"{ORDERED} (population, region, country, city)",
        [
            numbers(
                "concat('r', toString(number % 3)), concat('c', toString(intDiv(number, 3) % 2)), "
                "concat('t', toString(intDiv(number, 6) % 2)), intDiv(number, 12)",
                120,
            )
        ],
        {"count(*)": 120, "count(DISTINCT (region, country, city, population))": 120},
        "primary_key: 'region, country, city, population'",
    ),
    # CR-03
    "cr03": Case(
        "block_number Int64, id Int64",
        f"{ORDERED} block_number",
        [numbers("number, number", 500)],
        {
            "count(*)": 500,
            "count(*) FILTER (WHERE block_number < 100)": 100,
            "count(*) FILTER (WHERE block_number >= 400)": 100,
        },
        "primary_key: id",
    ),
    # CR-04
    "cr04": Case(
        "block_number Int64, id Int64",
        f"{ORDERED} (block_number, id)",
        [numbers("if(number < 40, number, number + 10), number", 80), numbers("40 + number % 10, 100 + number", 50)],
        {"count(*)": 130, "count(*) FILTER (WHERE block_number BETWEEN 40 AND 49)": 50},
        "primary_key: id",
    ),
    # CR-05
    "cr05": Case(
        f"block_number Int64, {VERSIONED}",
        f"{REPLACING} (block_number, id)",
        [
            numbers("if(number = 10, 101, number), concat('a', toString(number)), 'new', 1, 0", 11),
            numbers(f"100, {HOT}, 'old', 1, 0", 100),
            numbers(f"100, {HOT}, 'new', 2, 0", 100),
            numbers("100, concat('h0', toString(90 + number)), 'dead', 3, 1", 10),
        ],
        {
            "count(*)": 101,
            "count(*) FILTER (WHERE block_number = 100)": 90,
            "count(*) FILTER (WHERE payload = 'new')": 101,
            "count(*) FILTER (WHERE id BETWEEN 'h090' AND 'h099')": 0,
        },
        "primary_key: id, columns: 'block_number,id,payload'",
    ),
    # CR-08
    "cr08": Case(
        f"k Int64, {VERSIONED}",
        f"{REPLACING} (k, id)",
        [
            "VALUES (1, 'a', 'a', 1000, 0), (1, 'b', 'b_old', 1000, 0), (1, 'c', 'c_new', 2000, 0)",
            "VALUES (1, 'b', 'b_new', 2000, 0), (1, 'c', 'c_old', 1000, 0), (1, 'd', 'd_alive', 1000, 0)",
            "VALUES (1, 'd', 'd_deleted', 2000, 1), (1, 'e', 'e_alive', 2000, 0)",
            "VALUES (1, 'e', 'e_deleted', 1000, 1)",
        ],
        {"string_agg(payload, ',' ORDER BY payload)": "a,b_new,c_new,e_alive"},
        "primary_key: id, columns: 'k,id,payload'",
    ),
    # CR-09
    "cr09": Case(
        f"k Int64, {VERSIONED}",
        f"{REPLACING} k",
        [f"VALUES {row}" for row in ("(1,'a','',5,0)", "(1,'a','',5,1)", "(2,'b','',5,1)", "(2,'b','',5,0)")],
        {"count(*)": 0},
        "primary_key: k",
    ),
}


@pytest.fixture(scope="module")
def database(postgres: PostgresServer, clickhouse: ClickHouseServer, new_place: MakeWorkspace) -> Database:
    """All cases in one run."""
    target, source = postgres.database(), clickhouse.database()
    sources, sinks = "sources:\n", "sinks:\n"
    for name, case in CASES.items():
        create(clickhouse, f"{source}.{name}", case)
        more = f", {case.options}" if case.options else ""
        sources += f"  {name}: {{type: clickhouse, table_name: {name}{more}}}\n"
        sinks += f"  {name}_out: {{type: postgres, from: {name}, schema: public, table: {name}}}\n"
    place = new_place(**PAGES, **clickhouse.settings(source), **target.settings())
    place.write(sources + sinks)
    place.run().succeeded()
    return target


def create(clickhouse: ClickHouseServer, name: str, case: Case) -> None:
    clickhouse.execute(f"CREATE TABLE {name} ({case.columns}) ENGINE = {case.engine}")
    clickhouse.execute(f"SYSTEM STOP MERGES {name}")
    for insert in case.inserts:
        clickhouse.execute(f"INSERT INTO {name} {insert}", optimize_on_insert=0)


@pytest.mark.parametrize("name", CASES)
def test_the_target_has_what_the_table_says(database: Database, name: str) -> None:
    expected = CASES[name].expected
    assert database.rows(f"SELECT {', '.join(expected)} FROM {name}") == [tuple(expected.values())]


@pytest.mark.parametrize("name", ["cr05", "cr08"])
def test_version_and_tombstone_stay_in_the_source(database: Database, name: str) -> None:
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = %s"
    assert not {"insert_timestamp", "is_deleted"} & {row[0] for row in database.rows(query, name)}


# CR-07


def test_the_cursor_crosses_sparse_ranges_and_counts_for_the_next_run(
    place: Workspace, clickhouse: ClickHouseServer, postgres: PostgresServer
) -> None:
    source, target = clickhouse.database(), postgres.database()
    sparse = numbers("if(number < 50, number, number + 450), number", 100)
    create(clickhouse, f"{source}.one", Case("k Int64, id Int64", f"{ORDERED} k", [sparse], {}))
    create(clickhouse, f"{source}.two", Case("k Int64, id Int64", f"{ORDERED} k", [numbers("number, number", 999)], {}))
    settings = {**PAGES, **clickhouse.settings(source), **target.settings(), "NUM_RECORDS_BEFORE_STOP": 50}
    for table in ("one", "two"):
        place.write(
            f"sources: {{s: {{type: clickhouse, table_name: {table}, primary_key: id}}}}\n"
            f"sinks: {{out: {{type: postgres, from: s, schema: public, table: {table}}}}}\n"
        )
        place.run(CHECKPOINT_INTERVAL_SEC=1, **settings).succeeded()
        if table == "one":
            assert target.rows("SELECT count(*) FROM one")[0][0] >= 40
            cursor = place.state()["clickhouse_source:s:v1"]
            assert cursor["sorting_keys"] == ["k"]
    first = cursor["args"][0]["value"]
    ((count, smallest),) = target.rows("SELECT count(*), min(k) FROM two")
    assert count > 0
    assert smallest == first


def test_the_example_writes_the_newest_rows_and_continues_after_them(
    place: Workspace, clickhouse: ClickHouseServer
) -> None:
    source = clickhouse.database()
    rows = "SELECT number AS id, toDecimal64(number % 1000, 2) AS total, 1 AS version FROM numbers(5000)"
    clickhouse.execute(f"CREATE TABLE {source}.orders ENGINE = ReplacingMergeTree(version) ORDER BY id AS {rows}")
    clickhouse.execute(f"INSERT INTO {source}.orders VALUES (7, 700, 2)")
    place.write((Path(__file__).parents[2] / "examples" / "clickhouse_to_files.yaml").read_text())
    place.run(**clickhouse.settings(source)).succeeded()
    found = {int(row["id"]): row for row in place.rows("orders", "parquet")}
    assert (len(found), found[7]["total"], found[7]["tax"]) == (4995, 700, 140)
    clickhouse.execute(f"INSERT INTO {source}.orders VALUES (5000, 1, 1)")
    place.run(**clickhouse.settings(source)).succeeded()
    assert place.count("orders", "parquet") == 4996


# Large epochs, faults on the way


def test_executors_read_ranges_in_parallel_and_a_broken_answer_costs_no_row(
    place: Workspace, clickhouse: ClickHouseServer
) -> None:
    source = clickhouse.database()
    wide = "toUInt256('115792089237316195423570985008687907853269984665640564039457584007913129639935') - number"
    case = Case("k UInt64, n UInt256, a String", f"{ORDERED} k", [numbers(f"number, {wide}, 'text'", 100_000)], {})
    create(clickhouse, f"{source}.t", case)
    place.write(
        "sources: {s: {type: clickhouse, table_name: t, filter: k % 2 = 0}}\n"
        'transforms: {q: {type: sql, primary_key: k, sql: "SELECT k, n, upper(a) AS a FROM s"}}\n'
        "sinks: {out: {type: file, from: q, path: out, format: parquet}}\n"
    )
    large = {"EPOCH__DRIVER_ROWS": 0, "EPOCH__ROWS": 40_000}
    with spoiling_proxy(clickhouse.url, "cut", "short", "exception") as proxy:
        place.run(**large, **clickhouse.settings(source, url=proxy.url)).succeeded()
        assert proxy.faults == []
    rows = place.rows("out", "parquet")
    assert sorted((int(row["k"]), int(row["n"]), row["a"]) for row in rows) == [
        (k, 2**256 - 1 - k, "TEXT") for k in range(0, 100_000, 2)
    ]


def test_a_wrong_password_ends_the_run_with_its_code(place: Workspace, clickhouse: ClickHouseServer) -> None:
    place.write(
        "sources: {s: {type: clickhouse, table_name: shop.t}}\nsinks: {out: {type: blackhole, from: s}}\n",
    )
    failed = place.run(**{**clickhouse.settings(), "CLICKHOUSE_SOURCE__PASSWORD": "quite wrong"}).failed()
    assert "SCHEMA_NOT_FOUND" in failed.stderr
    assert "AUTHENTICATION_FAILED" in failed.stderr
    assert "quite wrong" not in failed.stderr

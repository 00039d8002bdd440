"""Lookups: reference tables that queries join, in small epochs and in those that executors compute."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.harness import Workspace, printed
from support.postgres_server import PostgresServer

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"

# Customer 3 is unknown, that of order 4 is NULL; orders 5 and 6 are changes.
ORDERS = """\
sources:
  orders:
    type: generator
    rows: 7
    primary_key: id
    columns:
      id: id
      customer: "case when id < 4 then id when id = 4 then null else id % 4 end"
      amount: id * 10
      currency: "case id % 2 when 0 then 'EUR' else 'USD' end"
      _gs_op: "case when id < 5 then 'i' when id = 5 then 'u' else 'd' end"
transforms:
  customers: {type: lookup, path: customers.csv, format: csv, primary_key: id}
  countries: {type: lookup, path: countries.jsonl, format: json, primary_key: code}
  rates: {type: lookup, path: rates.parquet, format: parquet, primary_key: "currency, kind"}
"""
QUERIES = {
    "matched": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id",
    "every": "SELECT o.id, c.name, countries.title, r.rate, random() >= 0 AS drawn FROM orders o"
    " LEFT JOIN customers AS c ON c.id = o.customer AND c.active"
    " LEFT JOIN countries ON upper(c.country) = countries.code"
    " LEFT JOIN rates r ON (r.currency = o.currency AND r.kind = 'spot')",
    "star": "SELECT c.*, o.id AS order_id FROM matched o LEFT JOIN customers c ON o.id = c.id WHERE c.active",
    "both": "SELECT concat('a', o.id) AS id, c.name FROM orders o JOIN customers c ON o.customer = c.id"
    " UNION ALL SELECT concat('b', o.id), c.name FROM matched o JOIN customers c ON o.id = c.id",
}
DELETING = (
    "SELECT o.id, o.amount, c.name FROM (SELECT * FROM orders WHERE id <> 1) o JOIN customers c ON o.customer = c.id"
)
CUSTOMERS = "id,name,country,active\n0,Ann,de,true\n1,Bob,at,true\n2,Cem,de,false\n,Nil,x,true\n"


def transform(name: str, sql: str, when: str) -> str:
    return f'  {name}: {{type: sql, primary_key: id, when_filtered_out: {when}, sql: "{sql}"}}\n'


def sinks(*names: str, format_: str = "json") -> str:
    lines = (f"  to_{name}: {{type: file, from: {name}, path: {name}, format: {format_}}}\n" for name in names)
    return "sinks:\n" + "".join(lines)


def write_tables(place: Workspace) -> None:
    (place.directory / "customers.csv").write_text(CUSTOMERS)
    countries = [{"code": "DE", "title": "Germany"}, {"code": "AT", "title": "Austria"}]
    (place.directory / "countries.jsonl").write_text("\n".join(map(json.dumps, countries)))
    rates = pa.table({"currency": ["EUR", "USD", "EUR"], "kind": ["spot", "spot", "old"], "rate": [1.5, 2.5, 9.0]})
    pq.write_table(rates, place.directory / "rates.parquet")


@pytest.mark.parametrize("settings", [{}, {"EPOCH__DRIVER_ROWS": 0}], ids=["driver", "executors"])
def test_rows_get_the_columns_of_their_match(place: Workspace, settings: dict[str, int]) -> None:
    write_tables(place)
    queries = "".join(transform(name, sql, "drop") for name, sql in QUERIES.items())
    place.write(ORDERS + queries + transform("deleting", DELETING, "delete") + sinks(*QUERIES, "deleting"))
    place.run(**settings).succeeded()
    matched = [(0, "Ann", "i"), (1, "Bob", "i"), (2, "Cem", "i"), (5, "Bob", "u"), (6, "Cem", "d")]
    assert [tuple(row.values()) for row in place.rows("matched", "json")] == matched
    assert [tuple(row.values()) for row in place.rows("every", "json")] == [
        (0, "Ann", "Germany", 1.5, True, "i"),
        (1, "Bob", "Austria", 2.5, True, "i"),
        (2, None, None, 1.5, True, "i"),
        (3, None, None, 2.5, True, "i"),
        (4, None, None, 1.5, True, "i"),
        (5, "Bob", "Austria", 2.5, True, "u"),
        (6, None, None, 1.5, True, "d"),
    ]
    assert [(row["order_id"], row["name"], row["_gs_op"]) for row in place.rows("star", "json")] == [
        (0, "Ann", "i"),
        (1, "Bob", "i"),
    ]
    assert sorted(row["id"] for row in place.rows("both", "json")) == ["a0", "a1", "a2", "a5", "a6", "b0", "b1", "b2"]
    assert [tuple(row.values()) for row in place.rows("deleting", "json")] == [
        (0, 0, "Ann", "i"),
        (2, 20, "Cem", "i"),
        (5, 50, "Bob", "u"),
        (6, 60, "Cem", "d"),
    ]


@pytest.mark.parametrize("settings", [{"EPOCH__ROWS": 3}, {"EPOCH__DRIVER_ROWS": 0}], ids=["driver", "executors"])
def test_rows_that_the_driver_reads_get_the_same_matches(place: Workspace, settings: dict[str, int]) -> None:
    """It joins them itself in small epochs: keys that are NULL or unknown, two lookups, an inner join, a UNION ALL."""
    write_tables(place)
    keys = [(0, "DE"), (1, "AT"), (2, None), (3, "XX"), (None, "DE"), (1, "DE")]
    lines = [json.dumps({"id": n, "customer": c, "country": d}) for n, (c, d) in enumerate(keys)]
    (place.directory / "orders.jsonl").write_text("\n".join(lines))
    joined = (
        "SELECT concat('a', o.id) AS id, c.name, d.title FROM orders o LEFT JOIN customers c ON o.customer = c.id"
        " LEFT JOIN countries d ON d.code = o.country UNION ALL"
        " SELECT concat('b', o.id), c.name, CAST(random() >= 0 AS TEXT) FROM orders o"
        " JOIN customers c ON o.customer = c.id WHERE o.id > 0"
    )
    place.write(
        f"""\
sources:
  orders:
    type: file
    path: orders.jsonl
    format: json
    primary_key: id
    mode: {{type: bounded}}
    schema: {{id: int64, customer: int64, country: string}}
transforms:
  customers: {{type: lookup, path: customers.csv, format: csv, primary_key: id}}
  countries: {{type: lookup, path: countries.jsonl, format: json, primary_key: code}}
{transform("joined", joined, "drop")}{sinks("joined")}"""
    )
    place.run(**settings).succeeded()
    names, titles = {0: "Ann", 1: "Bob", 2: "Cem"}, {"DE": "Germany", "AT": "Austria"}
    every = [(f"a{n}", names.get(c), titles.get(d)) for n, (c, d) in enumerate(keys)]  # type: ignore[call-overload]
    matched = [(f"b{n}", names[c], "true") for n, (c, _) in enumerate(keys) if n > 0 and c in names]
    rows = [(row["id"], row.get("name"), row.get("title")) for row in place.rows("joined", "json")]
    assert sorted(rows) == [*every, *matched]


def test_a_change_without_a_match_becomes_a_delete(place: Workspace) -> None:
    """Nobody has customer 1 and 2 any more."""
    write_tables(place)
    (place.directory / "customers.csv").write_text("id,name,country,active\n0,Ann,de,true\n")
    unused = "\n".join(line for line in ORDERS.splitlines() if "countries" not in line and "rates" not in line)
    place.write(f"{unused}\n{transform('deleting', DELETING, 'delete')}{sinks('deleting')}")
    place.run().succeeded()
    assert [tuple(row.values()) for row in place.rows("deleting", "json")] == [
        (0, 0, "Ann", "i"),
        (5, 50, None, "d"),
        (6, 60, None, "d"),
    ]


def test_a_large_lookup_is_joined_in_small_and_large_epochs(place: Workspace) -> None:
    """By a column of the stream, by a column of another query, and by a computed value."""
    rows = 200_000
    table = pa.table({"id": pa.array(range(rows)), "name": [f"a long name, of customer {i}" for i in range(rows)]})
    assert table.nbytes > 4 << 20
    pq.write_table(table, place.directory / "customers.parquet")
    place.write(
        f"""\
sources:
  orders: {{type: generator, rows: 1000, primary_key: id, columns: {{id: id, customer: id * 317}}}}
transforms:
  customers: {{type: lookup, path: customers.parquet, format: parquet, primary_key: id}}
{transform("plain", "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id", "drop")}\
{transform("next", "SELECT id, customer + 1 AS customer FROM orders WHERE id % 2 = 0", "drop")}\
{transform("behind", "SELECT o.id, c.name FROM next o LEFT JOIN customers c ON o.customer = c.id", "drop")}\
{transform("computed", "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer + 2 = c.id", "drop")}\
{sinks("plain", "behind", "computed", format_="parquet")}"""
    )

    def name(number: int) -> str | None:
        return f"a long name, of customer {number}" if number < rows else None

    for run, settings in enumerate(({"EPOCH__ROWS": 500}, {"EPOCH__DRIVER_ROWS": 0}), start=1):
        place.run(APPLICATION_ID=f"run_{run}", **settings).succeeded()
        for query, step, more in (("plain", 1, 0), ("behind", 2, 1), ("computed", 1, 2)):
            expected = {i: name(i * 317 + more) for i in range(0, 1000, step)}
            assert {row["id"]: row["name"] for row in place.rows(query, "parquet")} == expected, (query, settings)
            shutil.rmtree(place.directory / query)


def replace_file(place: Workspace, version: int) -> None:
    text = "id,version\n" + "".join(f"{key},{version}\n" for key in range(5))
    (place.directory / "next.csv").write_text(text)
    modified = time.time() - 1000 + version  # long ago: a file that was written just now may not be complete
    os.utime(place.directory / "next.csv", (modified, modified))
    (place.directory / "next.csv").rename(place.directory / "versions.csv")


def changing(place: Workspace, change: Callable[[int], None], run: Callable[[], object]) -> None:
    """Run while the file changes every half second, from the first rows on."""
    done = threading.Event()

    def work() -> None:
        number = 0
        while not done.wait(0.4):
            if any((place.directory / "one").glob("[!._]*")):
                number += 1
                change(number)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        run()
    finally:
        done.set()
        thread.join()


def test_all_rows_of_an_epoch_see_one_version_and_later_ones_the_next(place: Workspace) -> None:
    replace_file(place, 0)
    place.write(
        """\
sources:
  numbers: {type: generator, rows: 240, rate: 40, primary_key: id, columns: {id: id, key: id % 5}}
transforms:
  versions: {type: lookup, path: versions.csv, format: csv, primary_key: id, refresh_interval: 100ms}
  one: {type: sql, primary_key: id, sql: "SELECT n.id, v.version FROM numbers n LEFT JOIN versions v ON n.key = v.id"}
  two: {type: sql, primary_key: id, sql: "SELECT n.id, v.version FROM one n LEFT JOIN versions v ON n.id % 5 = v.id"}
"""
        + sinks("one", "two", format_="parquet")
    )
    changing(place, lambda number: replace_file(place, number), lambda: place.run(EPOCH__ROWS=12).succeeded())
    one, two = place.rows("one", "parquet"), place.rows("two", "parquet")
    assert [row["id"] for row in one] == list(range(240))
    assert [row["version"] for row in one] == [row["version"] for row in two]
    assert all(len(set(table.column("version").to_pylist())) == 1 for table in place.tables("one", "parquet"))
    seen = [row["version"] for row in one]
    assert seen == sorted(seen)
    assert len(set(seen)) > 1, seen


def test_a_lookup_that_becomes_unusable_keeps_its_rows_and_says_so(place: Workspace) -> None:
    replace_file(place, 0)
    place.write(
        """\
sources:
  numbers: {type: generator, rows: 120, rate: 20, primary_key: id, columns: {id: id, key: id % 5}}
transforms:
  versions: {type: lookup, path: versions.csv, format: csv, primary_key: id, refresh_interval: 100ms}
  one: {type: sql, primary_key: id, sql: "SELECT n.id, v.version FROM numbers n LEFT JOIN versions v ON n.key = v.id"}
"""
        + sinks("one")
    )

    def spoil(number: int) -> None:
        path = place.directory / "versions.csv"
        if number == 1:
            path.unlink(missing_ok=True)
        elif number == 3:
            (place.directory / "double.csv").write_text("id,version\n4,1\n7,1\n4,2\n")
            (place.directory / "double.csv").rename(path)

    finished: list[str] = []
    changing(place, spoil, lambda: finished.append(place.run(EPOCH__ROWS=3).succeeded().stderr))
    assert {row["version"] for row in place.rows("one", "json")} == {0}
    (log,) = finished
    assert "lookup versions: not refreshed, its rows stay those of version" in log
    assert "there is no file 'versions.csv'" in log
    assert "two rows of the lookup have the key id = 4" in log


def test_dead_letters_of_a_join_are_replayed_with_the_current_rows(place: Workspace) -> None:
    (place.directory / "divisors.csv").write_text("id,divisor\n0,1\n1,0\n")
    place.write(
        """\
sources:
  numbers: {type: generator, rows: 4, primary_key: id, columns: {id: id, key: id % 2}}
transforms:
  divisors: {type: lookup, path: divisors.csv, format: csv, primary_key: id}
  divided:
    type: sql
    primary_key: id
    on_error: dead_letter
    dead_letter: {type: file, path: letters}
    sql: SELECT n.id, n.id / d.divisor AS part FROM numbers n LEFT JOIN divisors d ON n.key = d.id
"""
        + sinks("divided")
    )
    place.run().succeeded()
    assert [row["id"] for row in place.rows("divided", "json")] == [0, 2]
    (place.directory / "divisors.csv").write_text("id,divisor\n0,1\n1,-1\n")
    place.run("dlq", "replay", "pipeline.yaml", "--all").succeeded()
    assert sorted((row["id"], row["part"]) for row in place.rows("divided", "json")) == [
        (0, 0),
        (1, -1),
        (2, 2),
        (3, -3),
    ]


def test_a_lookup_with_a_double_key_ends_the_start(place: Workspace) -> None:
    (place.directory / "customers.csv").write_text("id,name\n7,a\n8,b\n7,c\n")
    place.write(
        """\
sources:
  orders: {type: generator, rows: 3, primary_key: id}
transforms:
  customers: {type: lookup, path: customers.csv, format: csv, primary_key: id}
  joined: {type: sql, primary_key: id, sql: "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.id = c.id"}
sinks:
  out: {type: blackhole, from: joined}
"""
    )
    failed = place.run().failed()
    assert "two rows of the lookup have the key id = 7" in failed.stderr
    (place.directory / "customers.csv").unlink()
    assert "there is no file 'customers.csv'" in place.run().failed().stderr


def test_the_example_runs_as_it_is(place: Workspace) -> None:
    shutil.copytree(EXAMPLES, place.directory / "examples")
    rows = printed(place.write((EXAMPLES / "lookups.yaml").read_text()).run().succeeded().stdout)
    assert [(row["id"], row["name"], row["country"], row["total"]) for *_, row in rows[1:4]] == [
        (1, "Ben", "Austria", 120),
        (2, "Cora", "Germany", 238),
        (3, None, None, None),
    ]


@pytest.mark.servers
def test_a_query_of_postgres_is_joined_through_a_connection_of_its_own(
    place: Workspace, postgres: PostgresServer
) -> None:
    database = postgres.database()
    database.execute("CREATE TABLE users (id bigint PRIMARY KEY, name text)")
    database.execute("INSERT INTO users VALUES (1, 'Ann'), (2, 'Ben')")
    place.write(
        """\
sources:
  orders: {type: generator, rows: 4, primary_key: id}
transforms:
  users: {type: lookup, query: SELECT * FROM users, primary_key: id}
  joined: {type: sql, primary_key: id, sql: "SELECT o.id, u.name FROM orders o LEFT JOIN users u ON o.id = u.id"}
sinks:
  out: {type: postgres, from: joined, schema: public, table: joined}
"""
    )
    elsewhere = postgres.database()
    own = {name.replace("SINK__", "SINK_CONNECTIONS__USERS__"): value for name, value in database.settings().items()}
    place.run(**elsewhere.settings(), **own).succeeded()
    assert elsewhere.rows("SELECT id, name FROM joined ORDER BY id") == [(0, None), (1, "Ann"), (2, "Ben"), (3, None)]


@pytest.mark.parametrize("settings", [{}, {"EPOCH__DRIVER_ROWS": 0}], ids=["driver", "executors"])
def test_values_of_lookups_and_of_streams_are_looked_up_in_dynamic_tables(
    place: Workspace, settings: dict[str, object]
) -> None:
    write_tables(place)
    ones = "SELECT CAST(customer AS TEXT) AS value FROM orders WHERE customer = 1"
    query = (
        "SELECT o.id, c.name, dynamic_table_check('ones', CAST(o.customer AS TEXT)) AS one, "
        "dynamic_table_check('ones', c.name) AS named FROM orders o JOIN customers c ON o.customer = c.id "
        "WHERE dynamic_table_check('ones', CAST(c.id AS TEXT)) OR c.id = 2"
    )
    place.write(
        ORDERS
        + f"  ones: {{type: dynamic_table, backend_type: InMemory, backend_entity_name: ones, sql: '{ones}'}}\n"
        + transform("tested", query, "drop")
        + sinks("tested")
    )
    place.run(**settings).succeeded()
    assert [tuple(row.values()) for row in place.rows("tested", "json")] == [
        (1, "Bob", True, False, "i"),
        (2, "Cem", False, False, "i"),
        (5, "Bob", True, False, "u"),
        (6, "Cem", False, False, "d"),
    ]

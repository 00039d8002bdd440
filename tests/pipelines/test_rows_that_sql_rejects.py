"""Rows that a query cannot compute: the others arrive, in order, and these are skipped or stored with their reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.harness import Workspace

pytestmark = pytest.mark.spark

# Of 1,500 rows, three cannot be computed by the first query, and one by the second.
PIPELINE = """\
sources:
  numbers:
    type: generator
    rows: 1500
    primary_key: id
    columns:
      id: id
      text: "case when id = 17 then 'seventeen' when id = 1321 then '' else cast(id as string) end"
      part: "case when id = 500 then 0 else 1 end"
transforms:
  parsed:
    type: sql
    primary_key: id
    sql: SELECT id, cast(text AS BIGINT) AS n, 100 / part AS share FROM numbers
    {tolerant}
  shifted:
    type: sql
    primary_key: id
    sql: SELECT id, n, CAST(n * 4294967296 * CASE WHEN n = 1100 THEN 1000000000 ELSE 1 END AS BIGINT) AS big FROM parsed
    {tolerant}
sinks:
  first: {{type: file, from: parsed, path: first, format: parquet}}
  second: {{type: file, from: shifted, path: second, format: parquet}}
"""
LETTERS = "on_error: dead_letter\n    dead_letter: {type: file, path: letters}"
BAD = [17, 500, 1321]


def letters(place: Workspace) -> list[dict[str, Any]]:
    files = sorted((place.directory / "letters").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def ids(place: Workspace, sink: str) -> list[int]:
    return [n for table in place.tables(sink, "parquet") for n in table["id"].to_pylist()]


@pytest.mark.parametrize("driver_rows", [20_000, 0], ids=["small", "large"])
def test_all_other_rows_arrive_in_order_and_these_become_letters(place: Workspace, driver_rows: int) -> None:
    place.write(PIPELINE.format(tolerant=LETTERS))
    finished = place.run(EPOCH__DRIVER_ROWS=driver_rows).succeeded()
    assert "set aside: 4 rows" in finished.stderr
    assert ids(place, "first") == [n for n in range(1500) if n not in BAD]
    assert ids(place, "second") == [n for n in range(1500) if n not in (*BAD, 1100)]
    found = {letter["row"]["id"]: letter for letter in letters(place)}
    assert {id_: (letter["node"], letter["reason_code"]) for id_, letter in found.items()} == {
        17: ("parsed", "cast_error"),
        500: ("parsed", "arithmetic_error"),
        1321: ("parsed", "cast_error"),
        1100: ("shifted", "arithmetic_error"),
    }
    assert found[17]["row"] == {"id": 17, "text": "seventeen", "part": 1, "_gs_op": "i"}
    assert (found[17]["stage"], found[17]["node_type"]) == ("transform", "transform")
    assert "seventeen" in found[17]["reason_text"]


def test_skipped_rows_are_counted_and_the_first_of_each_reason_is_named(place: Workspace) -> None:
    place.write(PIPELINE.format(tolerant="on_error: skip"))
    finished = place.run().succeeded()
    assert len(ids(place, "second")) == 1496
    assert "node 'parsed' skipped 1 row (cast_error)" in finished.stderr
    assert "set aside: 4 rows" in finished.stderr
    assert letters(place) == []


def test_without_the_option_the_run_ends_and_says_what_can_be_done(place: Workspace) -> None:
    place.write(PIPELINE.format(tolerant="on_error: fail"))
    finished = place.run().failed()
    assert "a row cannot be computed" in finished.stderr
    assert "on_error" in finished.stderr


def test_more_bad_rows_than_allowed_end_the_run(place: Workspace) -> None:
    place.write(PIPELINE.format(tolerant=LETTERS.replace("letters}", "letters, max: 1}")))
    assert "an epoch has more than 1 bad row ('dead_letter.max')" in place.run().failed().stderr
    assert letters(place) == []


MANY = """\
sources:
  numbers:
    type: generator
    rows: 40000
    primary_key: id
    columns: {id: id, text: "case when id % 100 in (3, 4) then 'x' || id else cast(id as string) end"}
transforms:
  parsed:
    type: sql
    primary_key: id
    sql: SELECT id, cast(text AS BIGINT) AS n FROM numbers WHERE cast(text AS BIGINT) % 2 = 0
    on_error: dead_letter
    dead_letter: {type: file, path: letters}
sinks:
  out: {type: file, from: parsed, path: out, format: parquet}
"""


@pytest.mark.parametrize("driver_rows", [50_000, 0], ids=["small", "large"])
def test_many_bad_rows_are_found_each_with_its_own_reason(place: Workspace, driver_rows: int) -> None:
    """A search by halves would take some 15 Spark jobs for each of them."""
    place.write(MANY)
    place.run(EPOCH__DRIVER_ROWS=driver_rows, EPOCH__ROWS=50_000).succeeded()
    bad = [n for n in range(40_000) if n % 100 in (3, 4)]
    found = letters(place)
    assert [letter["row"]["id"] for letter in found] == bad
    assert all(f"'x{letter['row']['id']}'" in letter["reason_text"] for letter in found)
    assert ids(place, "out") == [n for n in range(40_000) if n % 2 == 0 and n % 100 != 4]


# Each row fails in a function of its own, except the first and the last.
FUNCTIONS = """\
sources:
  numbers:
    type: generator
    rows: 5
    primary_key: id
    columns:
      id: id
      month: "case when id = 1 then 13 else 1 end"
      name: "case when id = 2 then 'b' else 'a' end"
      key: "case when id = 3 then cast(null as string) else 'k' end"
transforms:
  computed:
    type: sql
    primary_key: id
    sql: >-
      SELECT id, make_date(2024, month, 1) AS day, map([name, 'b'], [1, 2]) AS named, map([key], [1]) AS keyed
      FROM numbers
    on_error: dead_letter
    dead_letter: {type: file, path: letters}
sinks:
  out: {type: file, from: computed, path: out, format: parquet}
"""


def test_a_value_that_a_function_refuses_is_a_fault_of_its_row(place: Workspace) -> None:
    place.write(FUNCTIONS)
    place.run().succeeded()
    assert ids(place, "out") == [0, 4]
    texts = {letter["row"]["id"]: letter["reason_text"] for letter in letters(place)}
    assert {id_: text.partition("[")[2].partition("]")[0] for id_, text in texts.items()} == {
        1: "DATETIME_FIELD_OUT_OF_BOUNDS.WITHOUT_SUGGESTION",
        2: "DUPLICATED_MAP_KEY",
        3: "NULL_MAP_KEY",
    }


# `both` reads two nodes with different columns; `all` reads it together with one of them.
UNIONS = """\
sources:
  a: {{type: generator, rows: 20, columns: {{id: id, text: "case when id = 3 then 'x' else '1' end"}}}}
  b: {{type: generator, rows: 20, columns: {{id: id + 100, part: id, text: "case when id = 5 then 'x' else '1' end"}}}}
transforms:
  both:
    type: sql
    primary_key: id
    sql: SELECT id, {n} AS n FROM a UNION ALL SELECT id, {n} + part AS n FROM b
    {tolerant}
  all:
    type: sql
    primary_key: id
    sql: SELECT id, n FROM both UNION ALL SELECT id, 0 AS n FROM a
sinks:
  out: {{type: file, from: all, path: out, format: parquet}}
"""


@pytest.mark.parametrize("driver_rows", [20_000, 0], ids=["small", "large"])
def test_a_replayed_row_enters_the_query_where_it_came_from(place: Workspace, driver_rows: int) -> None:
    place.write(UNIONS.format(tolerant=LETTERS, n="CAST(text AS BIGINT)"))
    place.run().succeeded()
    assert sorted(letter["input"] for letter in letters(place)) == ["a", "b"]
    before = len(ids(place, "out"))
    assert before == 20 + 19 + 19
    place.write(UNIONS.format(tolerant=LETTERS, n="CAST(replace(text, 'x', '7') AS BIGINT)"))
    replayed = place.run("dlq", "replay", "--all", EPOCH__DRIVER_ROWS=driver_rows).succeeded()
    assert "replayed 2 letters" in replayed.stdout
    rows = [(row["id"], row["n"]) for row in place.rows("out", "parquet")]
    assert len(rows) == before + 2
    assert {(3, 7), (105, 12)} <= set(rows)
    assert place.run("dlq", "replay", "--all").succeeded().stderr == "no open dead letters\n"

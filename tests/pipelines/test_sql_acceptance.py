"""SQL transforms and filters, end to end on Spark: what queries of users give, row by row.

Generated rows stand in for topics, JSON files for tables. A start is dear, so one pipeline holds nearly all cases.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamling.engine.preparation import check
from streamling.errors import InvalidPipeline
from streamling.plan.pipeline import Plan
from streamling.spec.settings import Settings
from support.harness import Finished, MakeWorkspace, Row, Workspace, printed

SOURCES = """\
sources:
  hundred:
    type: generator
    rows: 100
    primary_key: id
    columns: {id: id + 1, block: id + 1, data: "concat('data', id + 1)"}
  fifty:
    type: generator
    rows: 50
    primary_key: id
    columns: {id: id + 1, block: 10 * (id + 1), value: "concat('original_', id + 1)"}
  ten:
    type: generator
    rows: 10
    primary_key: id
    columns: {block: id + 1, id: "concat('id_', id + 1)", data: "concat('data', id + 1)"}
  itv:
    type: generator
    rows: 4
    primary_key: id
    columns:
      id: id
      value: concat('value_', id)
      timestamp: 1000 + id
      _gs_op: case when id = 2 then 'u' when id = 3 then 'd' else 'i' end
  nine:
    type: generator
    rows: 4
    primary_key: user_addr, token_id
    columns:
      user_addr: concat('0x', id)
      token_id: concat('t', id)
      name: case when id = 1 then 'one' end
      symbol: case when id = 2 then 'TWO' end
      note: case when id < 0 then 'never' end
      balance: case when id <> 3 then id * 7 end
      memo: concat('memo ', id)
      version: 100 + id
      deleted: id = 3
  sums:
    type: generator
    rows: 3
    primary_key: id
    columns:
      id: id
      whole: case id when 0 then 10 when 1 then 100 else -5 end
      part: case id when 0 then 0.5e0 when 1 then 2.25e0 else 1.5e0 end
  more.sums:
    type: generator
    rows: 2
    primary_key: id
    columns: {id: id, whole: case id when 0 then 10 else -3 end, part: case id when 0 then 0.5e0 else 2.25e0 end}
  casts:
    type: generator
    rows: 3
    primary_key: id
    columns: {id: id, n: case id when 0 then 42 when 1 then 0 else -7 end}
  triples:
    type: generator
    rows: 3
    primary_key: id
    columns: {id: 11 * (id + 1), half: id + 1.5e0}
  payloads:
    type: generator
    rows: 5
    primary_key: id
    columns: {id: id, data: "concat('payload_', id + 1)"}
  texts:
    type: generator
    rows: 1
    primary_key: id
    columns: {id: id, rocket: "'héllo🚀'", mixed: "'AbCdé'"}
  positive:
    type: generator
    rows: 6
    primary_key: id
    columns: {id: id, val: id + 1}
"""
TRANSFORMS = """\
transforms:
  sq01: {type: sql, primary_key: id, sql: SELECT * FROM hundred WHERE block <= 50}
  sq02:
    type: sql
    primary_key: id
    sql: SELECT id, block * 2 AS double_block, CONCAT('prefix_', value) AS prefixed FROM fifty
  sq03: {type: sql, primary_key: id, sql: "SELECT id, data FROM ten"}
  sq06:
    type: sql
    primary_key: id
    sql: |
      SELECT id, data, _gs_op FROM ten
      UNION ALL
      SELECT id, data, _gs_op FROM ten
  sq07.third: {type: sql, primary_key: id, sql: SELECT * FROM sq07.second}
  sq07.second:
    type: sql
    primary_key: id
    sql: |
      SELECT *, -- it's the second step — not 'sq07.third's
             concat('p_', data) AS prefixed_data
      FROM sq07.first
  sq07.first:
    type: sql
    primary_key: id
    sql: |
      -- don't read FROM sq07.third — that's later
      SELECT id, data, block * 2 AS double_block FROM ten
  sq09:
    type: sql
    primary_key: id
    sql: |
      SELECT * EXCEPT (timestamp, _gs_op), timestamp AS ts,
             CASE WHEN _gs_op = 'd' THEN 'd' ELSE 'i' END AS _gs_op
      FROM itv
  sq10:
    type: sql
    primary_key: user
    sql: |
      SELECT * EXCEPT (version, deleted, _gs_op, user_addr), user_addr AS user,
             CASE WHEN deleted THEN 'd' ELSE 'i' END AS _gs_op
      FROM nine
  sq11: {type: sql, primary_key: id, sql: "SELECT id, whole + part AS total FROM sums"}
  sq11.again: {type: sql, primary_key: id, sql: "SELECT id, whole + part AS total FROM more.sums"}
  sq12: {type: sql, primary_key: id, sql: "SELECT id, CAST(n AS VARCHAR) || '!' AS text FROM casts"}
  sq15: {type: sql, primary_key: id, sql: SELECT * FROM triples}
  sq16: {type: sql, primary_key: id, sql: "SELECT id, data AS renamed FROM payloads"}
  sq17: {type: sql, primary_key: id, sql: "SELECT id, rocket || '_x' AS longer FROM texts"}
  sq18: {type: sql, primary_key: id, sql: "SELECT id, UPPER(mixed) AS loud FROM texts"}
  fi08: {type: sql, primary_key: id, sql: SELECT * FROM positive WHERE val < 0}
  fi09: {type: sql, primary_key: id, sql: SELECT * FROM positive WHERE val >= 0}
"""
WRITTEN = (
    "sq01", "sq02", "sq06", "sq07.third", "sq09", "sq10", "sq11", "sq11.again", "sq12", "sq15", "sq16", "sq17", "sq18",
    "fi08", "fi09",
)  # fmt: skip
SINKS = "sinks:\n  lines: {type: print, from: sq03}\n" + "".join(
    f"  out.{name}: {{type: file, from: {name}, path: {name}, format: json}}\n" for name in WRITTEN
)


@pytest.fixture(scope="module")
def place(new_place: MakeWorkspace) -> Workspace:
    return new_place().write(SOURCES + TRANSFORMS + SINKS)


@pytest.fixture(scope="module")
def run(place: Workspace) -> Finished:
    return place.run().succeeded()


@pytest.fixture(scope="module")
def written(place: Workspace, run: Finished) -> dict[str, list[Row]]:
    """Rows by transform, as the lines of its files have them."""
    return {
        name: [json.loads(line) for file in place.files(name, "json") for line in file.read_text().splitlines()]
        for name in WRITTEN
    }


Written = dict[str, list[Row]]
spark = pytest.mark.spark


@spark
def test_sq_01_a_filter(written: Written) -> None:
    assert written["sq01"] == [{"id": n, "block": n, "data": f"data{n}", "_gs_op": "i"} for n in range(1, 51)]


@spark
def test_sq_02_computed_columns(written: Written) -> None:
    assert written["sq02"] == [
        {"id": n, "double_block": 20 * n, "prefixed": f"prefix_original_{n}", "_gs_op": "i"} for n in range(1, 51)
    ]


@spark
def test_sq_03_the_operation_is_carried_when_it_is_not_selected(run: Finished) -> None:
    assert printed(run.stdout) == [
        (n, 1, "Insert", {"id": f"id_{n}", "data": f"data{n}", "_gs_op": "i"}) for n in range(1, 11)
    ]


@spark
def test_sq_06_a_union_has_the_operation_once(place: Workspace, written: Written) -> None:
    row = [{"id": f"id_{n}", "data": f"data{n}", "_gs_op": "i"} for n in range(1, 11)]
    assert sorted(written["sq06"], key=lambda r: int(r["id"][3:])) == [r for r in row for _ in range(2)]
    first = place.files("sq06", "json")[0].read_text().splitlines()[0]
    assert first.count("_gs_op") == 1


@spark
def test_sq_07_comments_with_apostrophes_do_not_change_the_order(written: Written) -> None:
    assert written["sq07.third"] == [
        {
            "id": f"id_{n}",
            "data": f"data{n}",
            "double_block": 2 * n,
            "prefixed_data": f"p_data{n}",
            "_gs_op": "i",
        }
        for n in range(1, 11)
    ]


def test_sq_07_transforms_stand_behind_what_they_read(tmp_path: Path) -> None:
    names = [node.ref for node in checked(tmp_path, SOURCES + TRANSFORMS + SINKS).transforms]
    steps = [names.index(f"sq07.{step}") for step in ("first", "second", "third")]
    assert steps == sorted(steps)


@spark
def test_sq_09_all_columns_but_two_which_come_back_under_other_names(written: Written) -> None:
    assert written["sq09"] == [
        {"id": n, "value": f"value_{n}", "ts": 1000 + n, "_gs_op": "d" if n == 3 else "i"} for n in range(4)
    ]
    assert list(written["sq09"][0]) == ["id", "value", "ts", "_gs_op"]


@spark
def test_sq_10_many_columns_of_which_some_are_dropped_and_one_renamed(written: Written) -> None:
    assert written["sq10"] == [
        {
            "token_id": f"t{n}",
            "name": "one" if n == 1 else None,
            "symbol": "TWO" if n == 2 else None,
            "note": None,
            "balance": n * 7 if n != 3 else None,
            "memo": f"memo {n}",
            "user": f"0x{n}",
            "_gs_op": "d" if n == 3 else "i",
        }
        for n in range(4)
    ]


@spark
def test_sq_11_an_integer_plus_a_double(written: Written) -> None:
    assert [row["total"] for row in written["sq11"]] == [10.5, 102.25, -3.5]
    assert [row["total"] for row in written["sq11.again"]] == [10.5, -0.75]


@spark
def test_sq_12_an_integer_as_text(written: Written) -> None:
    assert [row["text"] for row in written["sq12"]] == ["42!", "0!", "-7!"]


@spark
def test_sq_15_a_star_keeps_all_columns(written: Written) -> None:
    assert written["sq15"] == [
        {"id": 11, "half": 1.5, "_gs_op": "i"},
        {"id": 22, "half": 2.5, "_gs_op": "i"},
        {"id": 33, "half": 3.5, "_gs_op": "i"},
    ]


@spark
def test_sq_16_a_renamed_column(written: Written) -> None:
    assert written["sq16"] == [{"id": n, "renamed": f"payload_{n + 1}", "_gs_op": "i"} for n in range(5)]


@spark
def test_sq_17_text_beyond_ascii_is_appended_to(written: Written) -> None:
    assert written["sq17"] == [{"id": 0, "longer": "héllo🚀_x", "_gs_op": "i"}]


@spark
def test_sq_18_capitals_beyond_ascii(written: Written) -> None:
    assert written["sq18"] == [{"id": 0, "loud": "ABCDÉ", "_gs_op": "i"}]


@spark
def test_fi_08_a_condition_that_no_row_meets(place: Workspace, written: Written, run: Finished) -> None:
    assert written["fi08"] == []
    assert "out.fi08 0" in run.stderr


@spark
def test_fi_09_a_condition_that_every_row_meets(written: Written) -> None:
    assert written["fi09"] == [{"id": n, "val": n + 1, "_gs_op": "i"} for n in range(6)]


# Runs of their own


@spark
def test_sq_08_text_functions_in_the_style_of_flink(new_place: MakeWorkspace) -> None:
    place = new_place().write("""\
sources:
  ten: {type: generator, rows: 10, primary_key: id, columns: {id: id + 1, data: "concat('data', id + 1)"}}
transforms:
  some:
    type: sql
    primary_key: id
    sql: |
      SELECT data, id, charLength(data) AS data_len, TRANSLATE(concat(data, 'a'), 'a', 'z') AS translated,
             REGEXP(data, '^data') AS matches_prefix
      FROM ten
sinks:
  out: {type: print, from: some}
""")
    rows = [row for *_, row in printed(place.run().succeeded().stdout)]
    assert rows == [
        {
            "data": f"data{n}",
            "id": n,
            "data_len": len(f"data{n}"),
            "translated": f"dztz{n}z",
            "matches_prefix": True,
            "_gs_op": "i",
        }
        for n in range(1, 11)
    ]


LONGS = (2**63 - 1, (2**63 - 1) // 2, 3_037_000_500)


@spark
@pytest.mark.parametrize("long", LONGS)
def test_sq_13_an_integer_never_wraps(long: int, new_place: MakeWorkspace) -> None:
    place = new_place().write(f"""\
sources:
  longs: {{type: generator, rows: 1, primary_key: id, columns: {{id: id, n: id + {long}}}}}
transforms:
  squares: {{type: sql, primary_key: id, sql: "SELECT id, n * n AS square FROM longs"}}
sinks:
  out: {{type: print, from: squares}}
""")
    finished = place.run().failed()
    assert finished.stdout == ""
    assert "[DATA_ERROR]" in finished.stderr
    assert "squares" in finished.stderr


# Filters of sources, as far as they are planned


def checked(directory: Path, text: str) -> Plan:
    file = directory / "pipeline.yaml"
    file.write_text(text)
    return check(file, Settings(), probe=False)


def filtered(directory: Path, condition: str) -> Plan:
    return checked(
        directory,
        f"""\
sources:
  rows:
    type: kafka
    topic: rows
    data_format: json
    primary_key: id
    schema: {{id: int64, block: int64, data: string, val: float64}}
    filter: {condition}
sinks:
  out: {{type: postgres, from: rows, schema: public, table: rows}}
""",
    )


@pytest.mark.parametrize(
    "condition", ["block > 60", "block > 5", "data = 'target_data'", "val > 100", "val < 0"],
    ids=["fi_01", "fi_02", "fi_03", "fi_05", "fi_06"],
)  # fmt: skip
def test_filters_of_sources_are_planned_without_a_broker(condition: str, tmp_path: Path) -> None:
    plan = filtered(tmp_path, condition)
    assert plan.node("rows").schema.names == ("block", "data", "id", "val", "_gs_op")


@pytest.mark.parametrize(
    ("condition", "code", "message"),
    [
        ("blok > 60", "SOURCE_FILTER", "No field named blok. Did you mean block?"),
        ("block + 60", "SQL_TYPES", "its type is int64, not boolean"),
        ("block > 60 AND", "SQL_SYNTAX", "the SQL does not parse"),
        ("sum(block) > 60", "SQL_UNSUPPORTED", "unsupported SQL: aggregate function `sum`"),
        ("block > DATE '2024-01-01'", "SQL_TYPES", "types int64 and date32 are not compatible"),
    ],
)
def test_filters_that_cannot_be_used_are_refused_with_their_source(
    condition: str, code: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        filtered(tmp_path, condition)
    (problem,) = caught.value.problems
    assert problem.code == code
    assert problem.message.startswith("kafka source 'rows': failed to create Kafka source: ")
    assert message in problem.message
    assert problem.where is not None and problem.where.line == 8

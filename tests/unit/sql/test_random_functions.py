"""`random()`, `uuid()` and `uuid7()`: values that follow from the epoch's seed, the call and the row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from streamling.connector import Projection
from streamling.plan.sql import Query, compile_expression, compile_query, parse
from streamling.plan.types import INT64, OPERATION_FIELD, Field, Schema, list_of
from support.spark_session import spark_session

pytestmark = pytest.mark.spark

NOW = dt.datetime(2024, 12, 31, 12, 30, tzinfo=dt.UTC)
MILLISECONDS = int(NOW.timestamp() * 1000)
INPUT = Schema((Field("id", INT64, nullable=False), Field("ns", list_of(INT64)), OPERATION_FIELD))
ROWS = 1000
PARTITIONS = 5


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with spark_session({"spark.master": "local[2]"}) as session:
        rows = session.range(0, ROWS, 1, PARTITIONS).selectExpr("id", "array(id, -id - 1) AS ns", "'i' AS _gs_op")
        rows.createOrReplaceTempView("in_t")
        yield session


@pytest.fixture(scope="module", params=["codegen", "interpreted"])
def spark(session: Any, request: pytest.FixtureRequest) -> Any:
    is_compiled = request.param == "codegen"
    session.conf.set("spark.sql.codegen.wholeStage", str(is_compiled).lower())
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if is_compiled else "NO_CODEGEN")
    return session


def compiled(sql: str, node: str = "test") -> Query:
    return compile_query(parse(sql, node=node), {"t": INPUT}, {"t": "in_t"})


def run(spark: Any, text: str, parameters: frozenset[str], seed: int) -> Any:
    values = {"epoch_now": NOW, "epoch_seed": seed}
    return spark.sql(text, args={name: values[name] for name in parameters} or None)


def rows(spark: Any, sql: str, *, seed: int = 7, node: str = "test") -> list[tuple[Any, ...]]:
    """The rows without the operation column."""
    query = compiled(sql, node)
    frame = run(spark, query.text, query.parameters, seed)
    assert tuple(frame.columns) == query.schema.names
    return [tuple(row)[:-1] for row in frame.collect()]


CALLS = "SELECT id, random() AS r, uuid() AS u, uuid7() AS v FROM t"


def test_the_same_seed_gives_the_same_values_and_another_seed_others(spark: Any) -> None:
    found = rows(spark, CALLS)
    assert rows(spark, CALLS) == found
    other = rows(spark, CALLS, seed=2**62 - 1)
    assert [row[0] for row in other] == [row[0] for row in found]
    assert not any(one in two[1:] for one, two in zip((r for row in found for r in row[1:]), other * 3, strict=True))


def test_every_call_and_every_node_has_values_of_its_own(spark: Any) -> None:
    found = rows(spark, "SELECT random() AS a, random() AS b FROM t")
    assert all(a != b for a, b in found)
    assert {a for a, _ in found}.isdisjoint(a for a, _ in rows(spark, "SELECT random() AS a, 1 AS b FROM t", node="o"))


def test_random_numbers_are_spread_over_the_interval(spark: Any) -> None:
    found = [r for (r,) in rows(spark, "SELECT random() AS r FROM t")]
    assert all(0 <= r < 1 for r in found)
    assert len(set(found)) == ROWS
    tenths = [sum(int(r * 10) == tenth for r in found) for tenth in range(10)]
    assert min(tenths) > 60 and max(tenths) < 140


def test_uuids_have_their_version_and_variant(spark: Any) -> None:
    for u, v in rows(spark, "SELECT uuid() AS u, uuid7() AS v FROM t"):
        assert (str(UUID(u)), UUID(u).version, UUID(u).variant) == (u, 4, RFC_4122)
        assert (str(UUID(v)), UUID(v).variant) == (v, RFC_4122)
        assert v[14] == "7"
        assert int(v.replace("-", "")[:12], 16) == MILLISECONDS


def test_uuids_are_distinct(spark: Any) -> None:
    wide = spark.range(0, 100_000, 1, 7).selectExpr("id", "array(id) AS ns", "'i' AS _gs_op")
    wide.createOrReplaceTempView("in_wide")
    sql = "SELECT uuid() AS u, uuid7() AS v FROM t UNION ALL SELECT uuid(), uuid7() FROM t"
    query = compile_query(parse(sql, node="test"), {"t": INPUT}, {"t": "in_wide"})
    table = run(spark, query.text, query.parameters, 7).toArrow()
    found = [value for name in ("u", "v") for value in table.column(name).to_pylist()]
    assert len(set(found)) == 400_000


def test_what_is_written_once_has_one_value_wherever_the_text_repeats_it(spark: Any) -> None:
    between = rows(spark, "SELECT r FROM (SELECT random() AS r FROM t) WHERE r BETWEEN 0.4 AND 0.6")
    assert 150 < len(between) < 250
    assert all(0.4 <= r <= 0.6 for (r,) in between)
    # Each bound is compared with a text of its own, and the second only where the first is met.
    assert len(rows(spark, "SELECT id FROM t WHERE random() BETWEEN 0.4 AND 0.6")) == len(between)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, CASE WHEN id % 3 = 0 THEN random() END AS r FROM t",
        "SELECT id, random() AS r FROM t WHERE id % 3 = 0",
        "SELECT id, r FROM (SELECT id, random() AS r FROM t) WHERE id % 3 = 0 AND r < 0.5",
        "SELECT id, coalesce(nullif(id % 3, 0) * 0.0, random()) AS r FROM t",
    ],
)
def test_a_row_has_the_value_it_would_have_without_conditions(spark: Any, sql: str) -> None:
    expected = dict(rows(spark, "SELECT id, random() AS r FROM t"))
    found = {id_: r for id_, r in rows(spark, sql) if r and id_ % 3 == 0}
    assert found == {id_: expected[id_] for id_ in found}
    assert len(found) > 100


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT split_part(uuid(), '-', 3) AS x FROM t",
        "SELECT substr(uuid(), 15, 4) AS x FROM t",
        "SELECT instr(uuid(), substr(uuid7(), 1, 1)) AS x FROM t",
        "SELECT _gs_conv_base(CAST(floor(random() * 1000) AS BIGINT), 10, 16) AS x FROM t",
        "SELECT array_position(make_array(uuid()), uuid()) AS x FROM t",
        "SELECT array_filter(_gs_zip_arrays(ns, ns), 'f0', CAST(random() * 10 AS BIGINT)) AS x FROM t",
        "WITH c AS (SELECT id, random() AS r FROM t) SELECT r, random() AS s FROM c WHERE random() < 0.5",
        "SELECT random() AS x FROM (SELECT unnest(ns) AS n FROM t) UNION ALL SELECT random() FROM t",
    ],
)
def test_calls_may_stand_anywhere_also_where_the_text_has_lambdas(spark: Any, sql: str) -> None:
    found = rows(spark, sql)
    assert found == rows(spark, sql)
    assert len(found) > 100


def test_a_common_table_expression_has_the_same_values_for_all_its_readers(spark: Any) -> None:
    found = rows(spark, "WITH c AS (SELECT id, uuid() AS u FROM t) SELECT * FROM c UNION ALL SELECT * FROM c")
    assert len(found) == 2 * ROWS
    assert found[:ROWS] == found[ROWS:]


def test_items_of_a_list_have_values_of_their_own(spark: Any) -> None:
    found = rows(spark, "SELECT id, unnest(ns) AS n, uuid() AS u FROM t WHERE random() < 0.5")
    kept = [id_ for id_, _ in rows(spark, "SELECT id, uuid() AS u FROM t WHERE random() < 0.5")]
    assert [(id_, n) for id_, n, _ in found] == [(id_, n) for id_ in kept for n in (id_, -id_ - 1)]
    assert len({u for *_, u in found}) == len(found)


def test_a_list_is_made_before_its_items_are_rows(spark: Any) -> None:
    found = rows(spark, "SELECT id, unnest(make_array(0.0, random())) AS n FROM t")
    assert [n for _, n in found[::2]] == [0.0] * ROWS
    assert len({n for _, n in found[1::2]}) == ROWS


def test_two_readers_of_a_node_agree_on_its_values(spark: Any) -> None:
    query = compiled("SELECT id, random() AS r, uuid() AS u FROM t WHERE id % 2 = 0")
    run(spark, query.text, query.parameters, 7).createOrReplaceTempView("node_1")
    whole = {row.id: row for row in spark.sql("SELECT * FROM node_1").collect()}
    for text in (
        "SELECT id, u FROM node_1 WHERE id > 500",
        "SELECT id, u, concat(u, u) AS w FROM node_1 WHERE r < 0.5",
        "SELECT id, u, explode(array(1, 2)) AS n FROM node_1",
    ):
        found = spark.sql(text).collect()
        assert len(found) > 100
        assert all(row.u == whole[row.id].u for row in found)


def test_a_filter_of_a_source_draws_too(spark: Any) -> None:
    condition = compile_expression("random() BETWEEN 0.4 AND 0.6", INPUT, node="events")
    projection = Projection((("`id`", "id"),), condition.text, parameters=condition.parameters)
    found = [run(spark, projection.query("in_t"), projection.parameters, seed).collect() for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert all(150 < len(part) < 250 for part in found)

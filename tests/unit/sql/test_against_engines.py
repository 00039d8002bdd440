"""Every expression of `expressions`, on Spark and on DataFusion: the values and types must agree.

DataFusion is the engine whose dialect we speak. Where we differ, `differences.yaml` says why. What it does not know is
in `expressions/results`, with the value that the first row gives.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

pytest.importorskip("pyarrow")

import pyarrow as pa

from streamling.plan.sql import compile_expression, compile_query, parse
from streamling.plan.sql.epoch import number_rows
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.sql.values import Value
from streamling.plan.sql.wide import comparison_key
from streamling.plan.types import OPERATION_FIELD, STRING, Schema
from support.engine_tables import COLUMNS, TABLES, carried, spark_schema
from support.spark_session import spark_session

pytestmark = pytest.mark.spark

FOLDER = Path(__file__).parent
Case = tuple[str, str]
"""A table and an expression over it."""


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


CASES: list[Case] = [
    (table, sql)
    for table in TABLES
    for file in sorted((FOLDER / "expressions" / table).glob("*.sql"))
    for sql in _lines(file)
]
FAILING = _lines(FOLDER / "expressions" / "failing.sql")
GIVEN: list[tuple[str, Any]] = [
    (sql, value)
    for file in sorted((FOLDER / "expressions" / "results").glob("*.yaml"))
    for sql, value in YAML(typ="safe").load(file)
]
DIFFERENCES: dict[str, str] = {
    sql: entry["differs"]
    for entry in YAML(typ="safe").load(FOLDER / "differences.yaml")
    for sql in entry["expressions"]
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session({"spark.master": "local[1]", "spark.sql.codegen.wholeStage": "false"}) as session:
        for name, table in TABLES.items():
            # Without a schema Spark reads timestamps without zone as instants.
            session.createDataFrame(carried(table), schema=spark_schema()).createOrReplaceTempView(name)
        yield session


@pytest.fixture(scope="module")
def datafusion() -> Any:
    engine = pytest.importorskip("datafusion")
    context = engine.SessionContext()
    for name, table in TABLES.items():
        context.register_record_batches(name, [table.to_batches()])
    return context


Result = tuple[list[Any], str]
"""Values and type of a column."""


def _compiled(sql: str) -> Any:
    return compile_expression(sql, COLUMNS, node="test")


def _on_spark(spark: Any, expressions: list[str], source: str) -> dict[str, Result]:
    listed = ", ".join(f"{_compiled(sql).text} AS `{number}`" for number, sql in enumerate(expressions))
    table, _, condition = source.partition(" ")
    frame = spark.sql(f"SELECT {listed} FROM {number_rows(table)} {condition}", args={"epoch_seed": 7})
    types = [field.dataType.simpleString() for field in frame.schema]
    columns = [_values(column) for column in frame.toArrow().columns]
    return {sql: (columns[n], types[n]) for n, sql in enumerate(expressions)}


def _values(column: Any) -> list[Any]:
    """Times in microseconds, as in Spark."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz))
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"))
    elif pa.types.is_time(kind):
        column = column.cast(pa.time64("us"))
    elif pa.types.is_date64(kind):
        column = column.cast(pa.date32())
    values: list[Any] = column.to_pylist()
    return values


def _on_datafusion(context: Any, table: str, sql: str) -> Result:
    column = context.sql(f"SELECT {sql} AS x FROM {table}").to_arrow_table().column(0)
    return _values(column), _logical(column.type)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=1e-12) and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, Decimal) and isinstance(right, int):  # uint64 is carried as a decimal
        return left == right
    return type(left) is type(right) and bool(left == right)


_PLAIN = {"bool": "boolean", "double": "float64", "float": "float32", "halffloat": "float16", "string_view": "string",
          "large_string": "string", "date32[day]": "date32", "date64[ms]": "date64"}  # fmt: skip


def _logical(kind: Any) -> str:
    """An Arrow type in the spelling of our types; the unit of a time is about its storage and is left out."""
    if pa.types.is_timestamp(kind):
        return f"timestamp({kind.tz})" if kind.tz else "timestamp"
    if pa.types.is_time(kind):
        return f"time{kind.bit_width}"
    if pa.types.is_duration(kind):
        return "duration"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return f"binary({kind.byte_width})"
    if pa.types.is_map(kind):
        return f"map<{_logical(kind.key_type)}, {_logical(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"list<{_logical(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name}: {_logical(field.type)}" for field in kind) + ">"
    return _PLAIN.get(str(kind), str(kind))


def _ours(sql: str) -> str:
    text = re.sub(r"timestamp\((?:s|ms|ns)\)", "timestamp", str(_compiled(sql).type))
    return re.sub(r"timestamp\((?:s|ms|ns), ", "timestamp(", text)


@pytest.fixture(scope="module")
def results(spark: Any) -> dict[Case, Result]:
    """All expressions over a table in one query."""
    found: dict[Case, Result] = {}
    for table in TABLES:
        expressions = [sql for name, sql in CASES if name == table]
        found |= {(table, sql): result for sql, result in _on_spark(spark, expressions, table).items()}
    return found


@pytest.fixture(scope="module")
def given_results(spark: Any) -> dict[str, Result]:
    return _on_spark(spark, [sql for sql, _ in GIVEN], "ordinary WHERE i = 7")


@pytest.fixture(scope="module")
def spark_names(spark: Any) -> dict[str, str]:
    """Spark's name of each type that our compiler gives to an expression."""
    types = sorted({spark_type(_compiled(sql).type) for sql in (*(s for _, s in CASES), *(s for s, _ in GIVEN))})
    listed = ", ".join(f"CAST(NULL AS {type_}) AS `{number}`" for number, type_ in enumerate(types))
    frame = spark.sql(f"SELECT {listed}")
    return {type_: field.dataType.simpleString() for type_, field in zip(types, frame.schema, strict=True)}


def test_there_are_enough_of_them() -> None:
    assert len(set(CASES)) == len(CASES) > 600
    assert len({sql for sql, _ in GIVEN}) == len(GIVEN) > 200
    assert set(DIFFERENCES) <= {sql for _, sql in CASES}


@pytest.mark.parametrize(("table", "sql"), CASES)
def test_spark_gives_the_type_we_say(
    table: str, sql: str, results: dict[Case, Result], spark_names: dict[str, str]
) -> None:
    values, type_ = results[table, sql]
    assert type_ == spark_names[spark_type(_compiled(sql).type)]
    assert _compiled(sql).nullable or None not in values


@pytest.mark.parametrize(("table", "sql"), [case for case in CASES if case[1] not in DIFFERENCES])
def test_both_engines_agree(table: str, sql: str, results: dict[Case, Result], datafusion: Any) -> None:
    expected, type_ = _on_datafusion(datafusion, table, sql)
    assert _same(results[table, sql][0], expected), f"Spark {results[table, sql][0]}, DataFusion {expected}"
    assert _ours(sql) == type_


@pytest.mark.parametrize(("table", "sql"), [case for case in CASES if case[1] in DIFFERENCES])
def test_listed_differences_are_still_there(table: str, sql: str, results: dict[Case, Result], datafusion: Any) -> None:
    try:
        other, type_ = _on_datafusion(datafusion, table, sql)
    except BaseException:  # a panic of the engine is no Exception
        assert DIFFERENCES[sql] == "error"
        return
    differing = (not _same(results[table, sql][0], other), _ours(sql) != type_)
    assert differing == {"values": (True, False), "type": (False, True), "both": (True, True)}[DIFFERENCES[sql]]


@pytest.mark.parametrize(("sql", "value"), GIVEN)
def test_what_only_we_have(sql: str, value: Any, given_results: dict[str, Result], spark_names: dict[str, str]) -> None:
    ((found,), type_) = given_results[sql]
    assert found == value
    assert type(found) is type(value)
    assert type_ == spark_names[spark_type(_compiled(sql).type)]
    assert _compiled(sql).nullable or found is not None


@pytest.mark.parametrize("sql", FAILING)
def test_a_row_that_cannot_be_computed_is_an_error(sql: str, spark: Any) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        _on_spark(spark, [sql], "ordinary")


QUERIES = {
    "SELECT i, unnest(ns) AS n FROM t WHERE i IN (7, 1)": [
        (7, 1, "u"), (7, 2, "u"), (7, 3, "u"), (1, None, "u"), (1, 5, "u"),
    ],
    "SELECT _gs_op, i FROM t WHERE i = 7 UNION ALL SELECT l FROM t WHERE i = 7": [("u", 7), ("u", 3)],
    "WITH c(x) AS (SELECT i FROM t WHERE t.i > 1) SELECT q.x + 1 AS y FROM (SELECT * FROM c) q": [(8, "u"), (3, "u")],
    "SELECT *, 'd' AS _gs_op FROM (SELECT i FROM (t) WHERE i = 2)": [(2, "d")],
    "SELECT s['A'] AS v, s.\"A\" AS w FROM (SELECT i, named_struct('A', l) AS s FROM t) WHERE i = 7": [(3, 3, "u")],
    "SELECT i, current_date AS c FROM t WHERE tz > now() - interval '2 days'": [(1, dt.date(2024, 12, 31), "u")],
    "SELECT current_time AS c, left(uuid7(), 15) AS u FROM t WHERE i = 7": [
        (dt.time(12, 30), "01941cb1-c540-7", "u"),
    ],
}  # fmt: skip
NOW = dt.datetime(2024, 12, 31, 12, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_run_on_spark(sql: str, spark: Any) -> None:
    schema = Schema((*COLUMNS.fields, OPERATION_FIELD))
    spark.sql("SELECT *, 'u' AS _gs_op FROM ordinary").createOrReplaceTempView("in_t")
    query = compile_query(parse(sql, node="test"), {"t": schema}, {"t": "in_t"})
    values = {"epoch_now": NOW, "epoch_seed": 7}
    frame = spark.sql(query.text, args={name: values[name] for name in query.parameters} or None)
    assert tuple(frame.columns) == query.schema.names
    rows = zip(*(_values(column) for column in frame.toArrow().columns), strict=True)
    expected = QUERIES[sql]
    assert [row[: len(expected[0])] for row in rows] == expected


def _numbers() -> list[str]:
    """Numbers as text, many of them halfway between two others or close to that."""
    chance = random.Random(7)
    found = []
    for _ in range(400):
        whole = "".join(chance.choices("0999123456789", k=chance.randint(1, 60)))
        fraction = "".join(chance.choices("0059", k=chance.randint(0, 45)))
        found.append(f"{chance.choice('+- ').strip()}{whole}.{fraction}")
    return found


def _rounded(number: str, scale: int) -> str:
    with decimal.localcontext(prec=200):
        value = Decimal(number).quantize(Decimal(1).scaleb(-scale), decimal.ROUND_HALF_EVEN)
    return f"{value:f}" if value else "0"


def test_wide_numbers_are_rounded_half_to_even(spark: Any) -> None:
    numbers: list[str | None] = [*_numbers(), None]
    scales = (0, 1, 2, 18, 44)
    spark.createDataFrame([(number,) for number in numbers], "t STRING").createOrReplaceTempView("numbers")
    found = _on_spark(spark, [f"t::decimal(120,{scale})" for scale in scales], "numbers")
    for scale in scales:
        assert found[f"t::decimal(120,{scale})"][0] == [number and _rounded(number, scale) for number in numbers]


def test_wide_numbers_of_any_scale_order_as_numbers_do(spark: Any) -> None:
    numbers = _numbers()
    spark.createDataFrame([(n, i) for i, n in enumerate(numbers)], "t STRING, i INT").createOrReplaceTempView("numbers")
    query = f"SELECT i FROM numbers ORDER BY {comparison_key(Value('t', STRING)).text}, i"
    found = [row.i for row in spark.sql(query).collect()]
    assert found == sorted(range(len(numbers)), key=lambda i: (Decimal(numbers[i]), i))

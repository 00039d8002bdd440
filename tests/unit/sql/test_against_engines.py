"""Every expression of a table, with edge values, on Spark and on DataFusion: the values and types must agree.

DataFusion is the engine whose dialect we speak. Where we differ on purpose, `DIFFERENCES` says why.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from streamling.plan.sql import SESSION_SETTINGS, compile_expression, compile_query, parse
from streamling.plan.sql.spark_types import spark_type
from streamling.plan.types import (
    BOOLEAN,
    DATE,
    FLOAT64,
    INT32,
    INT64,
    OPERATION_FIELD,
    STRING,
    TIMESTAMP,
    TIMESTAMP_UTC,
    Field,
    Schema,
    decimal,
    list_of,
)

pytestmark = pytest.mark.spark

COLUMNS = Schema(
    (
        Field("i", INT32),
        Field("l", INT64),
        Field("f", FLOAT64),
        Field("p", decimal(10, 2)),
        Field("t", STRING),
        Field("b", BOOLEAN),
        Field("d", DATE),
        Field("ts", TIMESTAMP),
        Field("tz", TIMESTAMP_UTC),
        Field("tags", list_of(STRING)),
        Field("ns", list_of(INT64)),
    )
)
TEXTS = ("Hello wORLD", "zażółć-gęślą_3x", "a\\b%\n", "")
TIMES = [
    dt.datetime.fromisoformat(text)
    for text in ("2024-05-15T12:34:56.789123", "1969-12-31T23:59:59", "2024-12-30T00:00:00.500", "2000-02-29T01:01:01")
]
ROWS: tuple[tuple[Any, ...], ...] = (
    (7, -7, 1, 2, None),
    (3, -2, 1, 4, None),
    (2.5, -0.5, float("nan"), float("inf"), None),
    (Decimal("10.25"), Decimal("-1.55"), Decimal("0.00"), Decimal("99.99"), None),
    (*TEXTS, None),
    (True, False, None, True, None),
    (dt.date(2024, 1, 31), dt.date(1969, 12, 31), dt.date(2024, 12, 30), dt.date(2000, 2, 29), None),
    (*TIMES, None),
    (*(time.replace(tzinfo=dt.UTC) for time in TIMES), None),
    (["a", "b", None], [TEXTS[1]], [], ["x,y", "😀"], None),
    ([1, 2, 3], [], [None, 5], [-1], None),
)
"""Five rows, the last of NULLs; one tuple per column."""

EXPRESSIONS = r"""
ts
tz
i + l
i - 1
i * i
i / l
i % l
-i
-(-9223372036854775808 + 1)
i / 2
-7 / 2
-7 % 3
f + 1
f * p
f / 0
0.0 / f
f / 0.0
0 / f
-1.0 / 0.0
f % 0.0
i / 2.0
f / l
p + 1
p - p
p * 2
p * p
p % 3
i = l
i <> 2
f > 2
p >= 10
p = 10.25
'3' = l
l < '4'
t = 'Hello wORLD'
d = '2024-01-31'
ts > '2024-01-01'
ts >= tz
tz < '2024-06-01T00:00:00Z'
d < ts
b AND i > 0
b OR i > 0
NOT b
b IS TRUE
b IS NOT FALSE
t IS NULL
t IS NOT NULL
i IS DISTINCT FROM 7
i IS NOT DISTINCT FROM l
i BETWEEN 0 AND 5
i NOT BETWEEN l AND 5
i IN (7, 1, NULL)
i NOT IN (7, 1)
i IN ('7', '1')
t LIKE 'H%o%'
t LIKE 'a\\b\%_'
t NOT LIKE 'a%'
t ILIKE 'hello%'
t ILIKE 'ZAŻ%'
t ~ 'w[A-Z]+$'
t ~* 'WORLD$'
t !~ '^\w+$'
t !~* 'hello'
t ~ '^\w+-'
t ~ '%$'
t ~ 'b.%'
t ~ '^[[:alpha:]]+ '
t || '-' || i
t || NULL
concat(t, i, NULL, b)
concat_ws('-', t, NULL, i)
CASE i WHEN 7 THEN 'seven' WHEN 1 THEN 'one' END
CASE WHEN i > 0 THEN i ELSE l END
CASE WHEN b THEN p ELSE 0 END
CAST(i AS BIGINT)
CAST(f AS TEXT) IS NULL
CAST(p AS DOUBLE)
CAST(p AS INT)
CAST(p AS DECIMAL(10,1))
CAST(i AS DECIMAL(12,3))
CAST(i AS TEXT)
CAST(p AS TEXT)
CAST(b AS TEXT)
CAST(b AS INT)
CAST(d AS TEXT)
CAST(ts AS TEXT)
CAST(tz AS TEXT)
CAST(ts AS DATE)
CAST(d AS TIMESTAMP)
CAST(' 12 ' AS INT)
CAST('1e3' AS DOUBLE)
CAST('2024-01-01T00:00:00+02:00' AS TIMESTAMP)
CAST('yes' AS BOOLEAN)
TRY_CAST(t AS INT)
TRY_CAST('12' AS INT)
TRY_CAST(t AS TIMESTAMP)
TRY_CAST(t AS DATE)
i::text
t::bytea
tags[1]
tags[-1]
tags[0]
tags[9]
ns[i]
named_struct('a', i, 'b', t)['b']
struct(i, t)
get_field(named_struct('a', i), 'a')
make_array(i, l)
[1, i]
array_length(tags)
cardinality(ns)
array_has(ns, 2)
array_has(tags, 'z')
array_contains(ns, i)
array_element(ns, -1)
array_to_string(tags, ',')
array_to_string(ns, '-', 'none')
d + interval '1 month'
d - interval '1 day'
ts + interval '1 month'
ts - interval '1 day 2 hours'
tz + interval '5' minute
ts - interval '1.5 hours'
ts - timestamp '2024-01-01 00:00:00'
d - date '2024-01-01'
upper(t)
lower(t)
length(t)
char_length('é😀')
octet_length(t)
trim('  a  ')
btrim(t, 'Hx')
ltrim(t, 'Ha')
rtrim('axx', 'x')
trim(leading 'H' from t)
substr(t, 2)
substr(t, 0)
substr(t, -1, 3)
substr(t, 2, 3)
substr(t, i)
substr('hello world', i, 2)
substr(t, l, 1 + 1) IS NULL
substring(t from 2 for 2)
left(t, 2)
left(t, -2)
left(t, i)
right(t, 3)
right(t, -3)
right(t, i)
replace(t, 'l', 'LL')
replace(t, '', 'x')
reverse(t)
repeat('ab', i)
lpad(t, 3)
lpad('ab', 5, 'xy')
rpad('ab', 5, 'xy')
rpad('ab', i, '.')
lpad('ab', 5, '')
split_part(t, ' ', 1)
split_part(t, ' ', 2)
split_part('a,b,c', ',', -1)
split_part('a,b', '', 1)
starts_with(t, 'H')
ends_with(t, '3x')
strpos(t, 'o')
strpos(t, '')
position('g' in t)
initcap(t)
to_hex(i)
to_hex(-1)
ascii(t)
ascii('😀')
chr(65)
chr(128512)
abs(i)
abs(f)
abs(p)
ceil(f)
floor(f)
ceil(i)
floor(p)
ceil(p)
round(f)
round(p, 1)
round(2.675, 2)
round(i, -1)
trunc(f)
trunc(p)
sqrt(abs(f))
power(i, 2)
power(2, 0.5)
exp(f)
ln(f)
ln(0)
log10(100)
log2(8)
log(100)
log(2, 8)
log(10, 1000)
signum(f)
coalesce(i, l, 0)
coalesce(t, 'none')
nullif(i, 7)
nullif(t, '')
nvl(i, 0)
ifnull(t, 'x')
nvl2(t, i, 0)
greatest(i, l, NULL)
least(i, l)
greatest(t, 'M')
date_trunc('month', ts)
date_trunc('week', ts)
date_trunc('day', tz)
date_trunc('hour', d)
date_trunc('millisecond', ts)
date_part('year', ts)
date_part('quarter', d)
date_part('week', ts)
date_part('second', ts)
date_part('millisecond', ts)
date_part('microsecond', ts)
date_part('dow', d)
date_part('isodow', d)
date_part('doy', d)
date_part('isoyear', d)
date_part('epoch', ts)
date_part('epoch', tz)
date_part('hour', d)
extract(day from ts)
to_timestamp('2024-01-01T00:00:00Z')
to_timestamp(l)
to_timestamp(1.5)
to_timestamp_seconds(l)
to_timestamp_millis(l)
to_timestamp_micros(l)
to_timestamp_millis('2024-01-01T00:00:00.789123')
to_unixtime(ts)
to_unixtime(d)
to_date('2024-01-01')
to_date(ts)
to_date(i)
from_unixtime(l)
regexp_like(t, 'HELLO', 'i')
regexp_like(t, 'o$')
regexp_replace('abab', 'a', 'X')
md5(t)
sha256(t)
sha512('a')
'it''s \n \\ "x" ${env:HOME} é😀'
""".strip().split("\n")

FAILING = r"""
i / 0
i % 0
p / 0
9223372036854775807 + l
CAST(9223372036854775807 AS BIGINT) * l
abs(-9223372036854775808 - 0 * l)
CAST(l * 1000000 AS SMALLINT)
CAST(t AS INT)
CAST(t AS TIMESTAMP)
CAST('abc' AS BOOLEAN)
CAST(p * 100000000 AS DECIMAL(4,2))
substr(t, 2, l - 100)
sqrt(-1)
chr(-1)
split_part('a', ',', 0)
l = t
""".strip().split("\n")

DIFFERENCES = {
    "regexp_replace('abab', 'a', 'X')": "all matches are replaced here, the first one there",
    "ceil(f)": "the sign of a zero is lost",
    "trunc(f)": "the sign of a zero is lost",
    "rpad('ab', i, '.')": "a negative length is a panic there",
    "nvl2(t, i, 0)": "there the first argument has a say in the type of the result",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.sql.codegen.wholeStage", "false")
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    # Without a schema Spark reads timestamps without zone as instants.
    ddl = ", ".join(f"{field.name} {spark_type(field.type)}" for field in COLUMNS)
    session.createDataFrame(_table(), schema=ddl).createOrReplaceTempView("t")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def datafusion() -> Any:
    engine = pytest.importorskip("datafusion")
    context = engine.SessionContext()
    context.register_record_batches("t", [_table().to_batches()])
    return context


def _table() -> Any:
    import pyarrow as pa

    types = [
        pa.int32(), pa.int64(), pa.float64(), pa.decimal128(10, 2), pa.string(), pa.bool_(), pa.date32(),
        pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.list_(pa.string()), pa.list_(pa.int64()),
    ]  # fmt: skip
    arrays = [pa.array(column, type) for column, type in zip(ROWS, types, strict=True)]
    return pa.table(arrays, names=list(COLUMNS.names))


def _compiled(sql: str) -> Any:
    return compile_expression(sql, COLUMNS, node="test")


def _on_spark(spark: Any, expressions: list[str]) -> dict[str, tuple[list[Any], str]]:
    listed = ", ".join(f"{_compiled(sql).text} AS `{number}`" for number, sql in enumerate(expressions))
    frame = spark.sql(f"SELECT {listed} FROM t")
    types = [field.dataType.simpleString() for field in frame.schema]
    columns = [column.to_pylist() for column in frame.toArrow().columns]
    return {sql: (columns[n], types[n]) for n, sql in enumerate(expressions)}


def _on_datafusion(context: Any, sql: str) -> tuple[list[Any], str]:
    import pyarrow as pa

    column = context.sql(f"SELECT {sql} AS x FROM t").to_arrow_table().column(0)
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz))
    if pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"))
    return column.to_pylist(), str(kind)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=1e-12) and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and bool(left == right)


@pytest.fixture(scope="module")
def results(spark: Any) -> dict[str, tuple[list[Any], str]]:
    return _on_spark(spark, EXPRESSIONS)


@pytest.mark.parametrize("sql", EXPRESSIONS)
def test_spark_gives_the_type_we_say(sql: str, results: dict[str, tuple[list[Any], str]], spark: Any) -> None:
    declared = spark.sql(f"SELECT CAST(NULL AS {spark_type(_compiled(sql).type)}) AS x").schema[0].dataType
    assert results[sql][1] == declared.simpleString()


@pytest.mark.parametrize("sql", EXPRESSIONS)
def test_spark_gives_null_only_where_we_say(sql: str, results: dict[str, tuple[list[Any], str]]) -> None:
    assert _compiled(sql).nullable or None not in results[sql][0]


@pytest.mark.parametrize("sql", [sql for sql in EXPRESSIONS if sql not in DIFFERENCES])
def test_both_engines_give_the_same_values(
    sql: str, results: dict[str, tuple[list[Any], str]], datafusion: Any
) -> None:
    expected, _ = _on_datafusion(datafusion, sql)
    assert _same(results[sql][0], expected), f"Spark {results[sql][0]}, DataFusion {expected}"


@pytest.mark.parametrize("sql", DIFFERENCES)
def test_known_differences_are_still_there(
    sql: str, results: dict[str, tuple[list[Any], str]], datafusion: Any
) -> None:
    try:
        other, _ = _on_datafusion(datafusion, sql)
    except BaseException as error:  # a panic of the engine is no Exception
        assert "Panic" in type(error).__name__
    else:
        assert not _same(results[sql][0], other)


@pytest.mark.parametrize("sql", FAILING)
def test_a_row_that_cannot_be_computed_is_an_error(sql: str, spark: Any) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        _on_spark(spark, [sql])


QUERIES = {
    "SELECT i, unnest(ns) AS n FROM t WHERE i IN (7, 1)": [
        (7, 1, "u"), (7, 2, "u"), (7, 3, "u"), (1, None, "u"), (1, 5, "u"),
    ],
    "SELECT _gs_op, i FROM t WHERE i = 7 UNION ALL SELECT l FROM t WHERE i = 7": [("u", 7), ("u", 3)],
    "WITH c(x) AS (SELECT i FROM t WHERE t.i > 1) SELECT q.x + 1 AS y FROM (SELECT * FROM c) q": [(8, "u"), (3, "u")],
    "SELECT * EXCEPT (l, f, p, t, b, d, ts, tz, tags, ns, _gs_op), 'd' AS _gs_op FROM t WHERE i = 2": [(2, "d")],
    "SELECT s['A'] AS v, s.\"A\" AS w FROM (SELECT i, named_struct('A', l) AS s FROM t) WHERE i = 7": [(3, 3, "u")],
    "SELECT i, current_date AS c FROM t WHERE tz > now() - interval '1 day'": [(1, dt.date(2024, 12, 31), "u")],
}  # fmt: skip


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_run_on_spark(sql: str, spark: Any) -> None:
    schema = Schema((*COLUMNS.fields, OPERATION_FIELD))
    spark.sql("SELECT *, 'u' AS _gs_op FROM t").createOrReplaceTempView("in_t")
    query = compile_query(parse(sql, node="test"), {"t": schema}, {"t": "in_t"})
    now = dt.datetime(2024, 12, 31, tzinfo=dt.UTC)
    frame = spark.sql(query.text, args={"epoch_now": now}) if query.uses_now else spark.sql(query.text)
    assert tuple(frame.columns) == query.schema.names
    assert [tuple(row) for row in frame.collect()] == QUERIES[sql]

"""Queries with one typing mistake: what another engine's parser refuses, ours must refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("datafusion")

import pyarrow as pa
from datafusion import SessionContext

from streamling.plan.sql.dialect import tokenize
from support.sql_samples import problems

QUERIES = """
SELECT a, b FROM pair
SELECT * FROM pair WHERE a > 5
SELECT a AS x, upper(b) AS u FROM pair WHERE a > 1.5 AND b LIKE 'a%'
SELECT CASE WHEN a > 5 THEN 'a' WHEN a < 3 THEN 'b' ELSE 'c' END AS c FROM pair
SELECT CASE a WHEN 5 THEN 'a' END AS c, a FROM pair
SELECT a, cast(b AS bigint) AS n FROM pair
SELECT a::text || b AS t FROM pair
SELECT a, b FROM pair UNION ALL SELECT a, 'x' AS y FROM pair
WITH c AS (SELECT a FROM pair), d AS (SELECT a FROM c) SELECT a FROM d
SELECT q.a FROM (SELECT a, b FROM pair WHERE a IN (1, 2, 3)) AS q WHERE q.a BETWEEN 1 AND 5
SELECT * EXCEPT (b), lower(b) AS b FROM pair
SELECT "a" AS uid FROM pair WHERE b IS NOT NULL OR NOT (a = 3)
SELECT a FROM pair WHERE b NOT IN ('a', 'b') AND a NOT BETWEEN 3 AND 4
SELECT [a, 2][1] AS first, [1, 2, 3][1:2] AS firsts FROM pair
SELECT extract(year FROM now()) AS y, now() + interval '1 hour' AS later FROM pair
SELECT coalesce(b, _gs_op, 'none') AS n, -a AS neg, (a + 1) * 2 % 3 AS calc FROM pair
SELECT pair.a, pair.b FROM pair WHERE b IS DISTINCT FROM 'x'
SELECT trim(both 'x' FROM b) AS t, substring(b FROM 2 FOR 3) AS s, position('a' IN b) AS p FROM pair
SELECT a FROM pair WHERE b ILIKE '%a' ESCAPE '!' AND a >= -1e3
SELECT unnest([a, 1]) AS x, a FROM pair
SELECT try_cast(b AS decimal(10, 2)) AS d, 'd' AS _gs_op FROM pair AS t WHERE t.a <> 3
""".strip().split("\n")


@pytest.fixture(scope="module")
def engine() -> SessionContext:
    context = SessionContext()
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("_gs_op", pa.string())])
    context.from_arrow(pa.Table.from_pylist([], schema=schema), name="pair")
    return context


def slips(sql: str) -> Iterator[str]:
    """The query with one token left out, doubled, or a stray one before it."""
    for token in tokenize(sql):
        yield f"{sql[: token.start]} {sql[token.end + 1 :]}"
        yield f"{sql[: token.end + 1]} {sql[token.start :]}"
        for stray in (",", ")", "AS", "@", ":", "=", "5", "END", "FROM"):
            yield f"{sql[: token.start]} {stray} {sql[token.start :]}"


def does_not_parse(engine: SessionContext, sql: str) -> bool:
    try:
        engine.sql(sql)
    except Exception as error:
        return "ParserError" in str(error) or "TokenizerError" in str(error)
    return False


@pytest.mark.parametrize("sql", QUERIES)
def test_a_slip_is_not_overlooked(engine: SessionContext, sql: str) -> None:
    assert not problems(sql)
    assert [slip for slip in slips(sql) if does_not_parse(engine, slip) and not problems(slip)] == []

"""The shapes of query that are accepted. Every refusal contains `unsupported` and the name of the construct."""

from __future__ import annotations

import pytest

from support.sql_samples import compiled, problems

ACCEPTED = """
SELECT a, b FROM pair
SELECT a + 1 AS c, CASE WHEN a > 1 THEN b END AS d FROM pair WHERE a > 1 OR b IS NULL
SELECT * FROM pair
SELECT p.* FROM pair p
SELECT * EXCEPT (a) FROM pair
SELECT * EXCLUDE (a), a + 1 AS a FROM pair
SELECT unnest(tags) AS tag FROM orders
SELECT x FROM (SELECT a AS x FROM pair) AS q
SELECT x FROM (SELECT a FROM pair) AS q(x)
WITH c AS (SELECT a FROM pair) SELECT a FROM c
WITH c AS (WITH d AS (SELECT * FROM pair) SELECT * FROM d) SELECT a FROM c
SELECT a FROM pair UNION ALL SELECT id FROM orders
(SELECT a FROM pair) UNION ALL (SELECT a FROM pair WHERE a > 1) UNION ALL SELECT a FROM shop.pair
SELECT a FROM (SELECT a FROM pair UNION ALL SELECT a FROM pair) u
SELECT a FROM (pair)
SELECT p.a FROM (pair) AS p
SELECT *, 'd' AS _gs_op FROM pair
SELECT a FROM pair; -- done
""".strip().split("\n")

REFUSED = {
    "SELECT a FROM pair UNION SELECT a FROM pair": ["UNION without ALL"],
    "SELECT a FROM pair INTERSECT SELECT a FROM pair": ["INTERSECT"],
    "SELECT a FROM pair EXCEPT SELECT a FROM pair": ["EXCEPT"],
    "SELECT a FROM pair UNION ALL BY NAME SELECT a FROM pair": ["BY NAME"],
    "SELECT a FROM pair JOIN orders ON a = id": ["JOIN"],
    "SELECT a FROM pair LEFT JOIN orders ON a = id": ["LEFT JOIN"],
    "SELECT a FROM pair CROSS JOIN orders": ["CROSS JOIN"],
    "SELECT a FROM pair, orders": ["several items in FROM"],
    "SELECT a FROM orders, UNNEST(tags)": ["UNNEST in FROM"],
    "SELECT a FROM UNNEST([1, 2])": ["UNNEST in FROM"],
    "SELECT a FROM pair, LATERAL (SELECT 1)": ["LATERAL"],
    "SELECT a FROM generate_series(1, 2)": ["table function"],
    "SELECT a FROM pair TABLESAMPLE (10)": ["TABLESAMPLE"],
    "SELECT a FROM pair GROUP BY a HAVING a > 1": ["GROUP BY"],
    "SELECT count(*) FROM pair": ["aggregate function `count`"],
    "SELECT upper(max(b)) FROM pair": ["aggregate function `max`"],
    "SELECT a FROM pair WHERE sum(a) > 1": ["aggregate function `sum`"],
    "SELECT json_arrayagg_null_on_null(b) FROM pair": ["aggregate function `json_arrayagg_null_on_null`"],
    "SELECT count(a) FILTER (WHERE a > 1) FROM pair": ["FILTER"],
    "SELECT DISTINCT a FROM pair": ["DISTINCT"],
    "SELECT a FROM pair ORDER BY a LIMIT 1 OFFSET 2": ["ORDER BY", "LIMIT", "OFFSET"],
    "SELECT row_number() OVER (ORDER BY a) FROM pair": ["window function `row_number`"],
    "SELECT sum(a) OVER () FROM pair": ["window function `sum`"],
    "SELECT a FROM pair WHERE a IN (SELECT id FROM orders)": ["subquery inside an expression"],
    "SELECT a FROM pair WHERE EXISTS (SELECT 1)": ["EXISTS"],
    "SELECT (SELECT 1) AS x FROM pair": ["subquery inside an expression"],
    "SELECT upper((SELECT b FROM pair)) FROM pair": ["subquery inside an expression"],
    "SELECT a FROM pair WHERE a = ANY (SELECT 1)": ["ANY"],
    "SELECT 1": ["SELECT without FROM"],
    "SELECT 1 UNION ALL SELECT a FROM pair": ["SELECT without FROM"],
    "VALUES (1)": ["VALUES"],
    "WITH RECURSIVE c AS (SELECT a FROM pair UNION ALL SELECT a FROM c) SELECT a FROM c": ["recursive WITH"],
    "CREATE TABLE x (a INT)": ["CREATE"],
    "INSERT INTO x VALUES (1)": ["INSERT"],
    "UPDATE pair SET a = 1": ["UPDATE"],
    "DELETE FROM pair": ["DELETE"],
    "EXPLAIN SELECT a FROM pair": ["EXPLAIN"],
    "SELECT a FROM pair; SELECT b FROM pair": ["several statements"],
    "SELECT a FROM pair FOR UPDATE": ["FOR UPDATE"],
    "SELECT unnest(tags), unnest(tags) AS x FROM orders": ["more than one unnest"],
    "SELECT upper(unnest(tags)) AS x FROM orders": ["unnest inside an expression"],
    "SELECT id FROM orders WHERE unnest(tags) = 'x'": ["unnest inside an expression"],
    "SELECT * REPLACE (1 AS a) FROM pair": ["* REPLACE"],
    "SELECT a FROM pair AS p(x, y)": ["column names after the alias"],
    # every branch and every nested query
    "SELECT a FROM pair UNION ALL SELECT a FROM pair ORDER BY a": ["ORDER BY"],
    "SELECT a FROM pair UNION ALL (SELECT a FROM pair LIMIT 1)": ["LIMIT"],
    "SELECT a FROM pair UNION ALL SELECT DISTINCT a FROM pair UNION ALL SELECT max(a) FROM pair": ["DISTINCT", "max"],
    "SELECT a FROM (SELECT a FROM pair GROUP BY a) q": ["GROUP BY"],
    "WITH c AS (SELECT a FROM pair, orders) SELECT a FROM c": ["several items"],
    "WITH unused AS (SELECT max(a) FROM pair) SELECT a FROM pair": ["max"],
    # expressions outside of the allow-list
    "SELECT a & 1 AS x FROM pair": ["bitwise and"],
    "SELECT a # 1 AS x FROM pair": ["bitwise xor"],
    "SELECT b -> 'x' AS x FROM pair": ["operator `->`"],
    'SELECT b COLLATE "C" AS x FROM pair': ["collate"],
    "SELECT (a, b) AS x FROM pair": ["row value"],
    "SELECT $1 AS x FROM pair": ["parameter"],
    "SELECT a FROM pair WHERE a = :x": ["parameter"],
    "SELECT b LIKE ANY ('a', 'b') AS x FROM pair": ["ANY"],
    "SELECT tags[1:2:1] AS x FROM orders": ["slice with a step"],
    "SELECT a::uuid AS x FROM pair": ["UUID"],
    "SELECT b ~ '(?=x)' AS x FROM pair": ["(?=x"],
}


@pytest.mark.parametrize("sql", ACCEPTED)
def test_accepted(sql: str) -> None:
    assert compiled(sql).schema.names.count("_gs_op") == 1


@pytest.mark.parametrize("sql", REFUSED)
def test_refused_by_name(sql: str) -> None:
    found = problems(sql)
    assert [problem.code for problem in found] == ["SQL_UNSUPPORTED"] * len(REFUSED[sql])
    for problem, construct in zip(found, REFUSED[sql], strict=True):
        assert "unsupported" in problem.message
        assert construct in problem.message
        assert problem.node == "n"
        assert problem.where is not None


def test_all_problems_of_a_statement_are_found_in_order() -> None:
    found = problems("SELECT count(*) FROM pair, orders GROUP BY a ORDER BY a LIMIT 3")
    assert [problem.message.removeprefix("unsupported SQL: ").partition(" (in")[0] for problem in found] == [
        "several items in FROM",
        "GROUP BY",
        "ORDER BY",
        "LIMIT",
    ]

"""Queries: the Spark text, the columns, the operation column."""

from __future__ import annotations

import pytest

from streamling.errors import BugError
from streamling.plan.sql import Function, Value, compile_expression, compile_query, parse
from streamling.plan.types import FLOAT64, INT64, Field, Schema
from support.sql_samples import INPUTS, ORDERS, VIEWS, codes, columns, compiled, problems

TEXTS = {
    "SELECT a FROM pair": "SELECT `a`, `_gs_op` FROM `in_1`",
    "SELECT * FROM pair WHERE a > 1": "SELECT `a`, `b`, `_gs_op` FROM `in_1` WHERE (`a` > 1L)",
    "SELECT a AS \"A\" FROM a.b.c": "SELECT `a` AS `A`, `_gs_op` FROM `in_4`",
    "SELECT unnest(tags) AS tag FROM orders": "SELECT explode(`tags`) AS `tag`, `_gs_op` FROM `in_0`",
    "SELECT x FROM (SELECT a AS x FROM pair) q": (
        "SELECT `x`, `_gs_op` FROM (SELECT `a` AS `x`, `_gs_op` FROM `in_1`)"
    ),
    "WITH c AS (SELECT a FROM pair) SELECT * FROM c": "SELECT `a`, `_gs_op` FROM (SELECT `a`, `_gs_op` FROM `in_1`)",
    "SELECT a FROM pair UNION ALL SELECT qty FROM orders": (
        "(SELECT `a`, `_gs_op` FROM `in_1`) UNION ALL "
        "(SELECT CAST(`qty` AS BIGINT) AS `a`, `_gs_op` FROM (SELECT `qty`, `_gs_op` FROM `in_0`))"
    ),
}  # fmt: skip

COLUMNS = {
    # the operation column
    "SELECT a FROM pair": ["a int64!", "_gs_op string!"],
    "SELECT _gs_op, a FROM pair": ["_gs_op string!", "a int64!"],
    "SELECT * FROM pair": ["a int64!", "b string", "_gs_op string!"],
    "SELECT *, a AS c FROM pair": ["a int64!", "b string", "_gs_op string!", "c int64!"],
    "SELECT *, _gs_op FROM pair": ["a int64!", "b string", "_gs_op string!"],
    "SELECT _gs_op, * FROM pair": ["_gs_op string!", "a int64!", "b string"],
    "SELECT * EXCEPT (_gs_op) FROM pair": ["a int64!", "b string", "_gs_op string!"],
    "SELECT * EXCEPT (_gs_op), 'd' AS _gs_op FROM pair": ["a int64!", "b string", "_gs_op string!"],
    "SELECT *, 'd' AS _gs_op FROM pair": ["a int64!", "b string", "_gs_op string!"],
    "SELECT 'd' AS _gs_op, a FROM pair": ["_gs_op string!", "a int64!"],
    "SELECT b AS _GS_OP, a FROM pair": ["_gs_op string", "a int64!"],
    "SELECT x FROM (SELECT a AS x FROM pair WHERE a > 1) q": ["x int64!", "_gs_op string!"],
    "SELECT * FROM (SELECT _gs_op, a FROM pair) q": ["_gs_op string!", "a int64!"],
    "WITH c AS (SELECT a FROM pair) SELECT b.a FROM c b": ["a int64!", "_gs_op string!"],
    "WITH c(x) AS (SELECT a FROM pair) SELECT * FROM c": ["x int64!", "_gs_op string!"],
    "WITH c(x, y) AS (SELECT a, _gs_op FROM pair) SELECT * FROM c": ["x int64!", "y string!", "_gs_op string!"],
    "WITH c(x, _gs_op) AS (SELECT a, b FROM pair) SELECT * FROM c": ["x int64!", "_gs_op string"],
    "SELECT _gs_op AS op FROM pair": ["op string!", "_gs_op string!"],
    "SELECT unnest(tags) FROM orders": ["unnest(tags) string", "_gs_op string!"],
    # UNION ALL
    "SELECT a FROM pair UNION ALL SELECT a FROM pair": ["a int64!", "_gs_op string!"],
    "SELECT a, _gs_op FROM pair UNION ALL SELECT a FROM pair": ["a int64!", "_gs_op string!"],
    "SELECT _gs_op, a FROM pair UNION ALL SELECT qty FROM orders": ["_gs_op string!", "a int64"],
    "SELECT a FROM pair UNION ALL SELECT 'd' AS _gs_op, a FROM pair": ["a int64!", "_gs_op string!"],
    "SELECT a AS x FROM pair UNION ALL SELECT NULL FROM pair": ["x int64", "_gs_op string!"],
    "SELECT qty AS x FROM orders UNION ALL SELECT rate FROM orders": ["x float64", "_gs_op string!"],
    "SELECT price AS x FROM orders UNION ALL SELECT qty FROM orders": ["x decimal(12,2)", "_gs_op string!"],
    # names
    "SELECT a::text, upper(b), a + 1, (b) FROM pair": [
        "a string!", "upper(b) string", "a + 1 int64!", "b string", "_gs_op string!",
    ],
    'SELECT "userId", address."Zip", address[\'city\'] FROM orders': [
        "userId string", "Zip string", "address['city'] string", "_gs_op string!",
    ],
    "SELECT A, PAIR.B FROM pair": ["a int64!", "b string", "_gs_op string!"],
    "SELECT shop.pair.a, pair.b FROM shop.pair": ["a int64!", "b string", "_gs_op string!"],
    "SELECT o.address.city FROM orders o": ["city string", "_gs_op string!"],
    "SELECT shop.pair.* FROM shop.pair": ["a int64!", "b string", "_gs_op string!"],
}  # fmt: skip

ERRORS = {
    "SELECT a, a FROM pair": ["SQL_DUPLICATE_COLUMN"],
    "SELECT *, a FROM pair": ["SQL_DUPLICATE_COLUMN"],
    "SELECT _gs_op, 'd' AS _gs_op FROM pair": ["SQL_DUPLICATE_COLUMN"],
    "SELECT 1 AS _gs_op FROM pair": ["SQL_TYPES"],
    "SELECT a FROM pair UNION ALL SELECT a, b FROM pair": ["SQL_TYPES"],
    "SELECT a, _gs_op FROM pair UNION ALL SELECT a, 'd' FROM pair": ["SQL_TYPES"],
    "SELECT a FROM pair UNION ALL SELECT paid FROM orders": ["SQL_TYPES"],
    "SELECT x FROM (SELECT a FROM pair) q(x, y)": ["SQL_TYPES"],
    "SELECT x FROM (SELECT a, b FROM pair) q(x, x)": ["SQL_TYPES"],
    "SELECT _gs_op FROM (SELECT a FROM pair) q(_gs_op)": ["SQL_TYPES"],
    "SELECT a FROM pear": ["NODE_NOT_FOUND"],
    "SELECT nope FROM pair": ["SQL_UNKNOWN_COLUMN"],
    "SELECT p.a FROM pair q": ["SQL_UNKNOWN_COLUMN"],
    "SELECT pair.a FROM pair q": ["SQL_UNKNOWN_COLUMN"],
    "SELECT p.* FROM pair q": ["SQL_TYPES"],
    "SELECT * EXCEPT (nope) FROM pair": ["SQL_UNKNOWN_COLUMN"],
    "SELECT address.street FROM orders": ["SQL_UNKNOWN_COLUMN"],
    "SELECT a AS x FROM pair WHERE x > 1": ["SQL_UNKNOWN_COLUMN"],
    "SELECT a FROM pair WHERE b": ["SQL_TYPES"],
    "SELECT interval '1 month' AS x FROM pair": ["SQL_TYPES"],
    "SELECT foo(a) FROM pair": ["SQL_UNKNOWN_FUNCTION"],
    "SELECT nope, foo(a), upper(a) FROM pair WHERE nil > 1": [
        "SQL_UNKNOWN_COLUMN", "SQL_UNKNOWN_FUNCTION", "SQL_TYPES", "SQL_UNKNOWN_COLUMN",
    ],
}  # fmt: skip


@pytest.mark.parametrize("sql", TEXTS)
def test_text(sql: str) -> None:
    assert compiled(sql).text == TEXTS[sql]


@pytest.mark.parametrize("sql", COLUMNS)
def test_columns(sql: str) -> None:
    assert columns(sql) == COLUMNS[sql]


@pytest.mark.parametrize("sql", ERRORS)
def test_errors(sql: str) -> None:
    assert codes(sql) == ERRORS[sql]


def test_an_unknown_column_comes_with_a_suggestion_and_the_valid_names() -> None:
    (problem,) = problems("SELECT userid FROM orders")
    assert problem.message.startswith('No field named userid. Did you mean "userId"? Valid fields are id, qty, ')
    assert "attributes, _gs_op." in problem.message
    assert problem.message.count("userId") == 2


def test_an_unknown_node_comes_with_the_nearest_one() -> None:
    (problem,) = problems("SELECT a FROM paer")
    assert "Did you mean `pair`?" in problem.message


def test_an_unknown_function_comes_with_the_nearest_one() -> None:
    (problem,) = problems("SELECT uper(b) FROM pair")
    assert problem.message.startswith("function `uper` is not known or not supported yet. Did you mean `upper`?")


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT a FROM pair", set()),
        ("SELECT ':epoch_now' AS x FROM pair", set()),
        ("SELECT now() AS x FROM pair", {"epoch_now"}),
        ("SELECT a FROM (SELECT a, current_date AS d FROM pair) q", {"epoch_now"}),
        ("SELECT a FROM pair UNION ALL SELECT a FROM pair WHERE now() > '2024-01-01'", {"epoch_now"}),
        ("WITH unused AS (SELECT now() AS n FROM pair) SELECT a FROM pair", set()),
        ("SELECT random() AS x FROM pair", {"epoch_seed"}),
        ("SELECT a FROM pair WHERE random() < 0.5", {"epoch_seed"}),
        ("SELECT uuid7() AS x FROM pair", {"epoch_now", "epoch_seed"}),
    ],
)
def test_a_query_knows_which_parameters_its_text_has(sql: str, parameters: set[str]) -> None:
    query = compiled(sql)
    assert query.parameters == parameters
    text = query.text.replace("':epoch_now'", "")
    assert {name for name in ("epoch_now", "epoch_seed") if f":{name}" in text} == parameters


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT a FROM pair", {"pair": {"a", "_gs_op"}}),
        ("SELECT *, 'd' AS _gs_op FROM pair", {"pair": {"a", "b"}}),
        ("SELECT * EXCEPT (b) FROM pair", {"pair": {"a", "_gs_op"}}),
        ("SELECT 'd' AS _gs_op FROM pair", {"pair": set()}),
        ("SELECT a FROM pair WHERE b = 'x'", {"pair": {"a", "b", "_gs_op"}}),
        ("SELECT '`b`' AS x FROM pair", {"pair": {"_gs_op"}}),
        ("SELECT a AS b FROM pair", {"pair": {"a", "_gs_op"}}),
        ("SELECT orders.address.city AS c, unnest(tags) AS t FROM orders", {"orders": {"address", "tags", "_gs_op"}}),
        ("SELECT x FROM (SELECT a AS x, b FROM pair) q", {"pair": {"a", "b", "_gs_op"}}),
        ("SELECT name AS id FROM (SELECT a AS name FROM pair) q", {"pair": {"a", "_gs_op"}}),
        (
            "SELECT a FROM pair UNION ALL SELECT qty FROM orders UNION ALL SELECT 1 FROM pair WHERE b IS NULL",
            {"pair": {"a", "b", "_gs_op"}, "orders": {"qty", "_gs_op"}},
        ),
        ("WITH u AS (SELECT id FROM orders) SELECT a FROM pair", {"orders": set(), "pair": {"a", "_gs_op"}}),
        ("SELECT * FROM shop.pair", {"shop.pair": {"a", "b", "_gs_op"}}),
    ],
)
def test_a_query_knows_the_columns_it_reads_of_each_table(sql: str, reads: dict[str, set[str]]) -> None:
    assert compiled(sql).reads == reads


def test_an_expression_knows_the_columns_it_reads() -> None:
    assert compile_expression("qty > 1 AND name <> '`userId`'", ORDERS, node="n").reads == {"qty", "name"}


def test_a_caller_can_add_a_function() -> None:
    dice = Function("dice()", (), lambda _: Value("rand(7)", FLOAT64, nullable=False))
    statement = parse("SELECT dice() AS r FROM pair", node="n")
    query = compile_query(statement, INPUTS, VIEWS, functions={"dice": dice})
    assert query.text == "SELECT rand(7) AS `r`, `_gs_op` FROM `in_1`"
    assert codes("SELECT dice() AS r FROM pair") == ["SQL_UNKNOWN_FUNCTION"]


def test_names_are_quoted_so_that_no_name_is_code() -> None:
    inputs = {"t": Schema((Field("a`b; --", INT64), *INPUTS["pair"].fields))}
    query = compile_query(parse('SELECT "a`b; --" FROM t', node="n"), inputs, {"t": "v`w"})
    assert query.text == "SELECT `a``b; --`, `_gs_op` FROM `v``w`"


def test_an_input_without_operation_column_is_a_fault_of_ours() -> None:
    with pytest.raises(BugError):
        compile_query(parse("SELECT a FROM t", node="n"), {"t": Schema((Field("a", INT64),))}, {"t": "v"})

"""Parsing: syntax, names of inputs, positions of errors."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import streamling.plan.sql
from streamling.errors import SQL_SYNTAX, UserError
from streamling.plan.sql import Function, Parameter, Value, check_statement, parse
from streamling.plan.types import INT64
from support.sql_samples import codes, compiled, in_file, problems


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT a FROM pair", ["pair"]),
        ("select a from PAIR;", ["pair"]),
        ('SELECT a FROM "Pair" -- a comment', ["pair"]),
        ("SELECT a /* FROM x */ FROM user.events", ["user.events"]),
        ("SELECT a FROM orders.events", ["orders.events"]),
        ("SELECT a FROM select.from.where", ["select.from.where"]),
        ("SELECT a FROM values.lateral x", ["values.lateral"]),
        ("SELECT a FROM a.b.c", ["a.b.c"]),
        ("SELECT a FROM a.b.c.d.e", ["a.b.c.d.e"]),
        ('SELECT a FROM "a.b.c"', ["a.b.c"]),
        ('SELECT a FROM "a"."b"', ["a.b"]),
        ("SELECT a FROM `a-b`.c", ["a-b.c"]),
        ("SELECT a FROM y UNION ALL SELECT a FROM x UNION ALL SELECT a FROM y", ["y", "x"]),
        ("WITH c AS (SELECT a FROM x) SELECT a FROM c", ["x"]),
        ("WITH c AS (SELECT a FROM c) SELECT a FROM c", ["c"]),
        ("WITH c AS (SELECT a FROM x), d AS (SELECT a FROM c) SELECT a FROM (SELECT * FROM d) q", ["x"]),
        ('WITH "C" AS (SELECT a FROM x) SELECT a FROM c', ["x", "c"]),
        ("SELECT 'FROM secret', a FROM x WHERE b = 'FROM y'", ["x"]),
    ],
)
def test_tables_are_the_inputs_in_order_of_appearance(sql: str, tables: list[str]) -> None:
    assert list(parse(sql, node="n").tables) == tables


@pytest.mark.parametrize(
    "sql",
    ["", ";", "-- nothing", "SELECT", "SELECT a FROM", "SELECT a FROM pair WHERE", "SELECT a FRM pair x", "FOO BAR",
     "SELECT 'open FROM pair", "SELECT (a FROM pair", "SELECT a FROM pair) x", "SELECT 1_000 FROM pair"],
)  # fmt: skip
def test_text_that_does_not_parse_is_a_syntax_error(sql: str) -> None:
    assert codes(sql) == ["SQL_SYNTAX"]


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("SELECT a\nFROM pair\nWHERE a = = 1", "p.yaml:3:11"),
        ("SELECT a FROM pair\nORDER BY a", "p.yaml:2:10"),
        ("SELECT a,\n  nope FROM pair", "p.yaml:2:3"),
        ("SELECT a,\n  upper(a) FROM pair", "p.yaml:2:9"),
        ("SELECT a,\n  upper(b, b) FROM pair", "p.yaml:2:3"),
        ("SELECT a, b,\n  FROM pair", "p.yaml:2:3"),
        ("SELECT a FROM pair;\nSELECT b FROM pair", "p.yaml:2:1"),
        ("SELECT 'open", "p.yaml:1:8"),
        ("SELECT a FROM\n  missing", "p.yaml:2:3"),
    ],
)
def test_errors_point_into_the_users_file(sql: str, place: str) -> None:
    assert [str(problem.where) for problem in problems(sql)] == [place]


def test_messages_quote_the_line_and_name_the_node() -> None:
    (problem,) = problems("SELECT a,\n  nope AS x\nFROM pair")
    assert problem.quote == "in the SQL of 'n', line 2: `nope AS x`"


def test_a_long_line_is_quoted_around_the_place() -> None:
    (problem,) = problems("SELECT " + ", ".join(f"a AS c{n}" for n in range(200)) + ", nope FROM pair")
    assert "`" in (problem.quote or "")
    assert "nope FROM pair`" in (problem.quote or "")
    assert len(problem.quote or "") < 300


@pytest.mark.parametrize(
    ("sql", "checks"),
    [
        ("SELECT a FROM x", []),
        ("SELECT a FROM x WHERE dynamic_table_check('Seen', b)", [("seen", False, "p.yaml:1:23")]),
        ("SELECT a FROM x WHERE NOT (Dynamic_Table_Check('s', b))", [("s", True, "p.yaml:1:28")]),
        (
            "SELECT a FROM x WHERE NOT (dynamic_table_check('s', b) AND a = 1)\nUNION ALL\n"
            "SELECT try_cast(dynamic_table_check('r', b) AS text) LIKE 't%' AS l FROM (SELECT * FROM y) q",
            [("s", False, "p.yaml:1:28"), ("r", False, "p.yaml:3:17")],
        ),
        ("SELECT 'dynamic_table_check(''x'', a)' AS t FROM x", []),
    ],
)
def test_dynamic_tables_are_found_anywhere(sql: str, checks: list[tuple[str, bool, str]]) -> None:
    found = parse(sql, node="n", locate=in_file).checked_tables
    assert [(check.table, check.negated, str(check.where)) for check in found] == checks


def test_a_dynamic_table_named_by_a_column_is_known_when_rows_are() -> None:
    query = compiled("SELECT a FROM pair WHERE dynamic_table_check(b, b)")
    assert query.dynamic_tables == ()
    assert query.text.endswith("WHERE `#call_0`")
    assert [(call.table, call.name, call.value.text) for call in query.call_levels[0].calls] == [(None, "`b`", "`b`")]


@pytest.mark.parametrize(
    "sql", ["SELECT DISTINCT a FROM x", "SELECT a FROM x ORDER BY a", "SELECT max(a) FROM x", "DROP x"]
)
def test_a_refusal_ends_with_what_alone_is_supported(sql: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(sql, node="n", only="only so much is supported")
    assert caught.value.message.endswith("; only so much is supported")


def test_a_query_says_which_dynamic_tables_it_asks() -> None:
    query = compiled("SELECT a FROM pair WHERE NOT dynamic_table_check('Blocked', b)")
    assert [(check.table, check.negated) for check in query.dynamic_tables] == [("blocked", True)]
    assert query.text.endswith("WHERE (NOT `#call_0`)")


def test_unknown_functions_are_found_before_the_inputs_are_known() -> None:
    sql = "SELECT uper(x), lower(y), foo(bar(z)) AS f, unnest(w) AS u FROM nobody\nWHERE keccak(a) = 1"
    found = check_statement(parse(sql, node="n", locate=in_file))
    assert [(str(error.where), error.code) for error in found] == [
        ("p.yaml:1:8", "SQL_UNKNOWN_FUNCTION"),
        ("p.yaml:1:27", "SQL_UNKNOWN_FUNCTION"),
        ("p.yaml:1:31", "SQL_UNKNOWN_FUNCTION"),
        ("p.yaml:2:7", "SQL_UNKNOWN_FUNCTION"),
    ]
    added = {"keccak": Function("keccak(text)", (Parameter("any", lambda value: value),), lambda _: Value("1", INT64))}
    assert len(check_statement(parse(sql, node="n"), added)) == 3


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT upper(x, y) AS u FROM n", [("SQL_TYPES", "p.yaml:1:8")]),
        ("SELECT x::uuid AS u, cast(y AS nope) AS v FROM n", [("SQL_UNSUPPORTED", f"p.yaml:1:{c}") for c in (8, 27)]),
        ("SELECT x, y AS x FROM n", [("SQL_DUPLICATE_COLUMN", "p.yaml:1:11")]),
        ("SELECT *, x FROM n", []),
        ("SELECT x FROM n UNION ALL SELECT x, y FROM n", [("SQL_TYPES", "p.yaml:1:34")]),
        ("SELECT x, _gs_op FROM n UNION ALL SELECT x FROM n UNION ALL SELECT * FROM n", []),
        ("SELECT x, 1 AS _gs_op FROM n", [("SQL_TYPES", "p.yaml:1:11")]),
        ("SELECT x FROM n WHERE (1)", [("SQL_TYPES", "p.yaml:1:24")]),
        ("SELECT x FROM n WHERE x", []),
    ],
)
def test_what_needs_no_types_is_found_before_the_inputs_are_known(sql: str, found: list[tuple[str, str]]) -> None:
    errors = check_statement(parse(sql, node="n", locate=in_file))
    assert [(error.code, str(error.where)) for error in errors] == found


@pytest.mark.parametrize(
    ("sql", "places"),
    [
        ("SELECT a\n b FROM pair", ["p.yaml:2:2"]),
        ("SELECT a AS b FROM pair", []),
        ("SELECT a x FROM pair", []),
        ("SELECT upper(b) a FROM pair", []),
    ],
)
def test_a_rename_to_another_column_without_as_is_suspicious(sql: str, places: list[str]) -> None:
    assert [str(where) for _, where in compiled(sql).cautions] == places


def test_errors_name_the_node() -> None:
    with pytest.raises(UserError) as caught:
        parse("SELECT", node="totals")
    assert (caught.value.condition, caught.value.node, caught.value.where) == (SQL_SYNTAX, "totals", None)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM pair WHERE " + " OR ".join(f"a = {n}" for n in range(2000)),
        "SELECT " + " + ".join(["a"] * 2000) + " AS x FROM pair",
        "SELECT " + " || ".join(["b"] * 2000) + " AS x FROM pair",
        " UNION ALL ".join(["SELECT a FROM pair"] * 500),
    ],
    ids=["OR", "+", "||", "UNION ALL"],
)
def test_long_chains_compile(sql: str) -> None:
    assert compiled(sql).text


def test_deep_nesting_is_an_error_of_the_user() -> None:
    assert codes("SELECT " + "(" * 3000 + "a" + ")" * 3000 + " AS x FROM pair") == ["SQL_UNSUPPORTED"]


def test_the_package_imports_neither_spark_nor_arrow() -> None:
    package = Path(streamling.plan.sql.__file__).parent
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in ("pyspark", "pyarrow")], file

"""Parsing: syntax, names of inputs, places of errors."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from sql_samples import codes, compiled, problems

import streamling.plan.sql
from streamling.errors import SQL_SYNTAX, UserError
from streamling.plan.sql import parse


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
        ("SELECT a,\n  upper(a) FROM pair", "p.yaml:2:3"),
        ("SELECT a FROM pair;\nSELECT b FROM pair", "p.yaml:2:1"),
        ("SELECT 'open", "p.yaml:1:8"),
        ("SELECT a FROM\n  missing", "p.yaml:2:3"),
    ],
)
def test_errors_point_into_the_users_file(sql: str, place: str) -> None:
    assert [str(problem.where) for problem in problems(sql)] == [place]


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

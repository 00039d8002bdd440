"""Queries look values up in dynamic tables and fill them; both have rules."""

from __future__ import annotations

import pytest

from streamling.connector import kinds
from streamling.errors import InvalidPipeline, StreamlingError
from streamling.plan.pipeline import Plan, make_plan
from streamling.spec.pipeline import load_pipeline

HEAD = """\
sources:
  orders: {type: generator, primary_key: id, columns: {id: id, name: "concat('n', id)"}}
  others: {type: generator, primary_key: id, columns: {id: id, name: "concat('n', id)"}}
transforms:
"""
TAIL = """\
sinks:
  out: {type: blackhole, from: asking}
  raw: {type: blackhole, from: orders}
  rest: {type: blackhole, from: others}
"""


def table(more: str = "", name: str = "seen") -> str:
    return f"  {name}: {{type: dynamic_table, backend_type: InMemory, backend_entity_name: t{more}}}\n"


def asking(condition: str, source: str = "orders") -> str:
    return f'  asking: {{type: sql, primary_key: id, sql: "SELECT * FROM {source} WHERE {condition}"}}\n'


def planned(transforms: str) -> Plan:
    return make_plan(load_pipeline(HEAD + transforms + TAIL, "p.yaml", kinds.kinds()))


def problem(transforms: str) -> StreamlingError:
    with pytest.raises(InvalidPipeline) as caught:
        planned(transforms)
    (only,) = caught.value.problems
    return only


def test_a_table_without_a_query_may_be_asked_by_any_input() -> None:
    plan = planned(table() + asking("dynamic_table_check('SEEN', name)", "others"))
    assert plan.cautions == ()
    assert plan.node("asking").asks == ("seen",)
    assert [t.ref for t in plan.dynamic_tables] == ["seen"]


def test_a_table_may_have_the_name_of_a_stream() -> None:
    plan = planned(table(name="orders") + asking("dynamic_table_check('orders', name)"))
    assert plan.node("orders").spec.role.value == "source"
    assert plan.dynamic_table("orders").spec.role.value == "transform"


def test_nobody_has_to_ask_a_table_and_its_query_counts_as_a_reader() -> None:
    text = HEAD + table(", sql: SELECT name FROM orders") + "sinks:\n  rest: {type: blackhole, from: others}\n"
    plan = make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))
    assert plan.dynamic_table("seen").inputs == ("orders",)


def test_a_table_that_is_asked_must_be_defined() -> None:
    error = problem(table(name="vips") + asking("dynamic_table_check('vip', name)"))
    assert (error.code, error.node, error.hint) == ("DYNAMIC_TABLE", "asking", "did you mean 'vips'?")
    assert "not defined in pipeline topology" in error.message
    assert error.where is not None and (error.where.line, error.where.column) == (6, 73)


def test_a_call_is_found_wherever_it_stands() -> None:
    hidden = "TRY_CAST(CASE WHEN dynamic_table_check('nope', name) THEN 1 END AS TEXT) LIKE 'x'"
    assert problem(asking(hidden)).code == "DYNAMIC_TABLE"


def test_a_table_and_who_asks_it_must_read_one_input() -> None:
    filled = table(", sql: SELECT name FROM others")
    error = problem(filled + asking("dynamic_table_check('seen', name)"))
    assert error.code == "DYNAMIC_TABLE"
    assert "'orders'" in error.message and "'others'" in error.message
    assert error.hint is not None and "same_input: false" in error.hint


def test_other_inputs_are_allowed_on_demand_with_a_warning() -> None:
    filled = table(", same_input: false, sql: SELECT name FROM others")
    (caution,) = planned(filled + asking("dynamic_table_check('seen', name)")).cautions
    assert "may be ahead of the rows of" in caution.message


def test_a_negated_question_to_a_table_that_has_the_answer_already_is_warned_of() -> None:
    filled = table(", sql: SELECT name FROM orders")
    (caution,) = planned(filled + asking("NOT (dynamic_table_check('seen', name))")).cautions
    assert (caution.code, caution.hint) == ("DYNAMIC_TABLE", "set 'populate: after' on the table")
    after = table(", populate: after, sql: SELECT name FROM orders")
    assert planned(after + asking("NOT dynamic_table_check('seen', name)")).cautions == ()
    assert planned(filled + asking("dynamic_table_check('seen', name)")).cautions == ()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM orders",
        "SELECT o.name FROM orders o WHERE o.id > 3",
        "SELECT upper(name) AS n, _gs_op FROM orders",
        "SELECT n FROM (SELECT name AS n FROM orders) x",
    ],
)
def test_a_query_may_fill_a_table_with_one_column_of_text(query: str) -> None:
    assert planned(table(f', sql: "{query}"') + asking("dynamic_table_check('seen', name)")).cautions == ()


@pytest.mark.parametrize(
    ("query", "fragment"),
    [
        ("SELECT id, name FROM orders", "it gives 2: id, name"),
        ("SELECT * FROM orders", "it gives 2: id, name"),
        ("SELECT id FROM orders", "must be text, but it is int64"),
        ("SELECT unnest(string_to_array(name, ',')) AS x FROM orders", "only Projection and Filter SQL queries"),
        ("SELECT name FROM orders UNION ALL SELECT name FROM orders", "only Projection and Filter SQL queries"),
        ("SELECT name FROM orders UNION ALL SELECT name FROM others", "only Projection and Filter SQL queries"),
    ],
)
def test_other_queries_cannot_fill_a_table(query: str, fragment: str) -> None:
    error = problem(table(f', sql: "{query}"') + asking("id > 1"))
    assert (error.code, error.node) == ("DYNAMIC_TABLE", "seen")
    assert fragment in error.message


def test_a_table_cannot_be_read_as_a_table() -> None:
    error = problem(table() + asking("true", "seen"))
    assert (error.code, error.node) == ("SQL_UNSUPPORTED", "asking")
    assert "is a dynamic table and cannot be read" in error.message


def test_what_an_author_should_know_of_a_cache_is_said_without_a_query() -> None:
    cached = "  seen: {type: dynamic_table, backend_type: Postgres, backend_entity_name: t, cache: true}\n"
    (caution,) = planned(cached + asking("dynamic_table_check('seen', name)")).cautions
    assert "time_column" in caution.message


AFTER = table(", populate: after, sql: SELECT name FROM orders")
NESTED = asking("dynamic_table_check('seen', name)", "(SELECT * FROM orders) o")


def test_rows_that_are_tested_one_after_the_other_must_be_those_of_the_input() -> None:
    error = problem(AFTER + NESTED)
    assert "must be looked up in a SELECT that reads 'orders' itself" in error.message
    planned(table(", sql: SELECT name FROM orders") + NESTED)
    nested = ", populate: after, sql: SELECT name FROM (SELECT name FROM orders) o"
    assert "must be one SELECT over the input" in problem(table(nested) + asking("id > 0")).message


def test_a_table_cannot_be_filled_from_the_rows_that_it_selects() -> None:
    filled = ", same_input: false, sql: SELECT name FROM asking"
    error = problem(table(filled) + asking("dynamic_table_check('seen', name)"))
    assert "which is filled from its own rows" in error.message
    own = ", sql: \"SELECT name FROM orders WHERE dynamic_table_check('seen', name)\""
    assert "which is filled from its own rows" in problem(table(own) + asking("id > 0")).message
    later = ", populate: after, same_input: false, sql: SELECT name FROM asking"
    assert planned(table(later) + asking("NOT dynamic_table_check('seen', name)")).nodes


def test_a_table_is_filled_before_it_is_asked() -> None:
    first = '  zz: {type: sql, primary_key: id, sql: "SELECT * FROM others"}\n'
    filled = table(", same_input: false, sql: SELECT name FROM zz")
    names = [node.spec.name for node in planned(first + filled + asking("dynamic_table_check('seen', name)")).nodes]
    assert names.index("seen") < names.index("asking")


def customers(columns: str) -> str:
    more = f"type: dynamic_table, backend_type: Postgres, backend_entity_name: c, columns: {columns}"
    return f"  customers: {{{more}}}\n"


def test_a_fetched_column_has_the_declared_type() -> None:
    columns = "id, dynamic_table_get('CUSTOMERS', name, 'n') AS n"
    query = f'  asking: {{type: sql, primary_key: id, sql: "SELECT {columns} FROM orders"}}\n'
    plan = planned(customers("{n: int64}") + query)
    assert [(f.name, str(f.type), f.nullable) for f in plan.node("asking").schema][1] == ("n", "int64", True)
    assert plan.node("asking").asks == ("customers",)
    error = problem(customers("{m: int64}") + query)
    assert "the dynamic table 'CUSTOMERS' declares no column 'n'; its columns: m" in error.message


def test_only_columns_that_postgres_can_give_are_declared() -> None:
    assert "cannot be fetched from Postgres" in problem(customers("{n: [string]}") + asking("id > 0")).message
    in_memory = table(", columns: {n: int64}")
    assert "is only allowed with 'backend_type: Postgres'" in problem(in_memory + asking("id > 0")).message


def test_a_filter_of_a_source_cannot_look_values_up() -> None:
    head = HEAD.replace("name: \"concat('n', id)\"}", "name: \"dynamic_table_check('seen', 'x')\"}", 1)
    with pytest.raises(InvalidPipeline) as caught:
        make_plan(load_pipeline(head + table() + asking("id > 0") + TAIL, "p.yaml", kinds.kinds()))
    assert "`dynamic_table_check` outside of the query of a transform" in caught.value.problems[0].message

"""A pipeline file becomes a plan, or a list of all problems between its nodes."""

from __future__ import annotations

import pytest

from streamling.connector import kinds
from streamling.errors import InvalidPipeline, StreamlingError
from streamling.plan.pipeline import Plan, make_plan
from streamling.spec.pipeline import load_pipeline

NUMBERS = """  numbers: {type: generator, primary_key: id, columns: {id: id, name: "concat('n', id)"}}\n"""


def planned(text: str, **more: bool) -> Plan:
    return make_plan(load_pipeline(text, "p.yaml", kinds.kinds()), **more)


def problems(text: str, **more: bool) -> list[StreamlingError]:
    with pytest.raises(InvalidPipeline) as caught:
        planned(text, **more)
    return list(caught.value.problems)


def problem(text: str, **more: bool) -> StreamlingError:
    (found,) = problems(text, **more)
    return found


def pipeline(transforms: str = "", sinks: str = "  out: {type: blackhole, from: numbers}\n") -> str:
    """The source `numbers` and these transforms and sinks, one node per line."""
    return f"sources:\n{NUMBERS}" + (f"transforms:\n{transforms}" if transforms else "") + f"sinks:\n{sinks}"


def sql(name: str, text: str, more: str = "primary_key: id") -> str:
    return f'  {name}: {{type: sql, {more}, sql: "{text}"}}\n'


# Contents of a plan


def test_nodes_stand_behind_what_they_read() -> None:
    plan = planned(
        pipeline(
            sql("last", "SELECT id FROM middle")
            + sql("middle", "SELECT id FROM first")
            + sql("first", "SELECT id FROM numbers"),
            "  out: {type: blackhole, from: last}\n",
        )
    )
    assert [n.ref for n in plan.nodes] == ["numbers", "first", "middle", "last", "out"]
    assert [n.inputs for n in plan.nodes] == [(), ("numbers",), ("first",), ("middle",), ("last",)]


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("SELECT id FROM numbers", {"id", "_gs_op"}),
        ("SELECT * FROM numbers", {"id", "name", "_gs_op"}),
        ("SELECT id FROM numbers WHERE name <> 'n3'", {"id", "name", "_gs_op"}),
        ("SELECT id FROM numbers UNION ALL SELECT id FROM numbers", {"id", "_gs_op"}),
        ("WITH w AS (SELECT id AS i FROM numbers) SELECT i AS id FROM w", {"id", "_gs_op"}),
        ("SELECT id, '`name`' AS label FROM numbers", {"id", "_gs_op"}),
        ("SELECT id, id AS name FROM numbers", {"id", "_gs_op"}),
    ],
)
def test_a_node_knows_which_of_its_columns_are_read(query: str, read: set[str]) -> None:
    assert (
        planned(pipeline(sql("some", query), "  out: {type: blackhole, from: some}\n")).columns_read("numbers") == read
    )


def test_all_columns_are_read_where_a_sink_takes_the_rows() -> None:
    sinks = "  out: {type: blackhole, from: some}\n  all: {type: blackhole, from: numbers}\n"
    plan = planned(pipeline(sql("some", "SELECT id FROM numbers"), sinks))
    assert plan.columns_read("numbers") == {"id", "name", "_gs_op"}


def test_transforms_that_could_stand_anywhere_stand_by_name() -> None:
    text = "".join(sql(name, "SELECT id FROM numbers") for name in ("c", "a", "b"))
    plan = planned(pipeline(text, "".join(f"  o{n}: {{type: blackhole, from: {n}}}\n" for n in "cab")))
    assert [n.ref for n in plan.transforms] == ["a", "b", "c"]
    assert [n.ref for n in plan.sinks] == ["oc", "oa", "ob"]


def test_the_roles_and_the_readers_of_a_node_can_be_asked_for() -> None:
    plan = planned(
        pipeline(
            sql("some", "SELECT id FROM numbers"),
            "  a: {type: blackhole, from: numbers}\n  b: {type: blackhole, from: some}\n",
        )
    )
    assert [n.ref for n in plan.sources] == ["numbers"]
    assert [n.ref for n in plan.consumers("numbers")] == ["some", "a"]
    assert plan.node("some").schema.names == ("id", "_gs_op")
    assert plan.node("b").schema == plan.node("some").schema


def test_no_two_nodes_have_one_view() -> None:
    plan = planned(
        pipeline(sql("a", "SELECT id FROM numbers") + sql("b", "SELECT id FROM a"), "  o: {type: blackhole, from: b}\n")
    )
    assert len({n.view for n in plan.nodes}) == len(plan.nodes)
    assert plan.node("a").view in plan.node("b").query.text


def test_names_ignore_case_and_may_have_dots() -> None:
    plan = planned(
        "sources:\n  Shop.Numbers: {type: generator, primary_key: id}\n"
        "transforms:\n" + sql("Big", "SELECT id FROM SHOP.numbers") + "sinks:\n  Out: {type: blackhole, from: bIG}\n"
    )
    assert [n.ref for n in plan.nodes] == ["shop.numbers", "big", "out"]
    assert [n.inputs for n in plan.nodes] == [(), ("shop.numbers",), ("big",)]


def test_a_query_may_read_several_nodes() -> None:
    plan = planned(
        pipeline(
            sql("one", "SELECT id FROM numbers") + sql("both", "SELECT id FROM one UNION ALL SELECT id FROM numbers"),
            "  out: {type: blackhole, from: both}\n",
        )
    )
    assert plan.node("both").inputs == ("one", "numbers")


# Problems


def test_all_problems_are_reported_at_once_in_the_order_of_their_lines() -> None:
    text = """\
sources:
  numbers: {type: generator, primary_key: nope}
  lonely: {type: generator, primary_key: id}
transforms:
  broken: {type: sql, primary_key: id, sql: SELECT missing FROM numbers}
  lost:
    type: sql
    primary_key: id
    sql: SELECT id FROM nowhere
sinks:
  out:
    type: blackhole
    from: nobody
  kept: {type: blackhole, from: broken}
  more: {type: blackhole, from: lost}
"""
    found = [(p.code, p.where.line if p.where else None, p.node) for p in problems(text)]
    assert found == [
        ("PRIMARY_KEY", 2, "numbers"),
        ("NO_CONSUMERS", 3, "lonely"),
        ("SQL_UNKNOWN_COLUMN", 5, "broken"),
        ("NODE_NOT_FOUND", 9, "lost"),
        ("NODE_NOT_FOUND", 13, "out"),
    ]


def test_a_sink_that_reads_a_node_that_does_not_exist() -> None:
    error = problem(pipeline(sinks="  a: {type: blackhole, from: numbers}\n  b: {type: blackhole, from: Nobody}\n"))
    assert (error.code, error.node, str(error.where)) == ("NODE_NOT_FOUND", "b", "p.yaml:5:30")
    assert error.message == "blackhole sink 'b': there is no source or transform named 'Nobody'"
    assert error.context == "blackhole sink 'b': plan 'Nobody' not found"
    assert "numbers" in (error.hint or "")


def test_a_query_that_reads_a_table_that_does_not_exist() -> None:
    text = sql("some", "SELECT n.id FROM numbers n UNION ALL SELECT id FROM Nobody")
    error = problem(pipeline(text, "  out: {type: blackhole, from: some}\n"))
    assert (error.code, error.node) == ("NODE_NOT_FOUND", "some")
    assert "there is no source or transform named 'nobody'" in error.message


def test_a_sink_cannot_be_read() -> None:
    error = problem(pipeline(sinks="  a: {type: blackhole, from: numbers}\n  b: {type: blackhole, from: a}\n"))
    assert error.code == "NODE_NOT_FOUND"


@pytest.mark.parametrize("name", ["numbers", "some"])
def test_a_node_that_nobody_reads(name: str) -> None:
    text = pipeline(sql("some", "SELECT id FROM other"), "  out: {type: blackhole, from: other}\n").replace(
        NUMBERS, NUMBERS + "  other: {type: generator, primary_key: id}\n"
    )
    error = next(p for p in problems(text) if p.node == name)
    assert error.code == "NO_CONSUMERS"
    assert error.message.endswith(f"'{name}' has no consumers")
    assert error.where is not None


def test_a_node_that_was_meant_by_a_misspelt_name_is_not_called_unread() -> None:
    text = pipeline(sql("Some", "SELECT id FROM numbers"), "  out: {type: blackhole, from: soem}\n")
    assert [(p.code, p.hint) for p in problems(text)] == [("NODE_NOT_FOUND", "did you mean 'Some'?")]


def test_a_query_that_does_not_parse_reads_what_it_mentions_and_nothing_else() -> None:
    broken = sql("some", 'SELECT id FROM Shop.\\"Other\\" numbers WHERE (')
    text = pipeline(broken, "  out: {type: blackhole, from: some}\n")
    text = text.replace(NUMBERS, NUMBERS + "  shop.other: {type: generator}\n  other: {type: generator}\n")
    assert [(p.code, p.node) for p in problems(text)] == [("NO_CONSUMERS", "other"), ("SQL_SYNTAX", "some")]


def test_transforms_that_read_each_other_in_a_circle() -> None:
    text = sql("a", "SELECT id FROM b") + sql("b", "SELECT id FROM c") + sql("c", "SELECT id FROM a")
    text += sql("behind", "SELECT id FROM a")
    error = problem(pipeline(text, "  o: {type: blackhole, from: behind}\n  p: {type: blackhole, from: numbers}\n"))
    assert error.code == "CYCLE"
    assert "'a', 'b', 'c'" in error.message
    assert "behind" not in error.message
    assert error.where is not None and error.where.line == 4


def test_a_transform_that_reads_itself_is_a_circle() -> None:
    text = pipeline(
        sql("a", "SELECT id FROM a"), "  o: {type: blackhole, from: a}\n  p: {type: blackhole, from: numbers}\n"
    )
    assert problem(text).code == "CYCLE"


# Keys


def test_a_key_column_that_the_node_does_not_have() -> None:
    error = problem(pipeline(sql("some", "SELECT id AS n FROM numbers"), "  out: {type: blackhole, from: some}\n"))
    assert (error.code, error.node) == ("PRIMARY_KEY", "some")
    assert error.message == (
        "sql transform 'some': Primary key validation failed for node 'some': columns [id] "
        "not found in schema. Available columns: [n, _gs_op]"
    )
    assert str(error.where) == "p.yaml:4:34"


def test_a_sink_without_a_key_has_that_of_what_it_reads() -> None:
    plan = planned(
        pipeline(
            sql("some", "SELECT id, name FROM numbers", "primary_key: 'name, id'"),
            "  a: {type: blackhole, from: some}\n  b: {type: blackhole, from: numbers}\n"
            "  c: {type: blackhole, from: some, primary_key: id}\n",
        )
    )
    assert [plan.node(ref).primary_key for ref in "abc"] == [("name", "id"), ("id",), ("id",)]
    assert plan.cautions == ()


NO_KEY = "sources:\n  numbers: {type: generator}\nsinks:\n  out: {type: blackhole, from: numbers}\n"


def test_nodes_without_any_key_are_warned_of() -> None:
    assert [(c.code, c.message, c.where and c.where.line) for c in planned(NO_KEY).cautions] == [
        ("NO_KEY", "generator source 'numbers' has no primary key, and no node upstream of it has one", 2),
        ("NO_KEY", "blackhole sink 'out' has no primary key, and no node upstream of it has one", 4),
    ]


def test_nodes_without_any_key_are_errors_if_keys_are_enforced() -> None:
    found = problems(NO_KEY, enforce_primary_keys=True)
    assert [(p.code, p.node) for p in found] == [("NO_KEY", "numbers"), ("NO_KEY", "out")]


# Fingerprint


def fingerprint(query: str) -> str:
    return planned(pipeline(sql("some", query), "  out: {type: blackhole, from: some}\n")).fingerprint


BASE = "SELECT id, name FROM numbers WHERE id > 1"


@pytest.mark.parametrize(
    "same",
    [
        "select  id, name\\n from numbers where id > 1",
        "SELECT id, name FROM numbers WHERE id > 1 -- a word\\n",
        "SELECT id, name FROM Numbers WHERE (id > 1);",
        "SELECT numbers.id, numbers.name FROM numbers WHERE id > 1",
    ],
)
def test_another_spelling_of_a_query_has_the_same_fingerprint(same: str) -> None:
    assert fingerprint(same) == fingerprint(BASE)


@pytest.mark.parametrize(
    "other",
    [
        "SELECT id, name FROM numbers WHERE id > 2",
        "SELECT id, name FROM numbers WHERE id >= 1",
        "SELECT name, id FROM numbers WHERE id > 1",
        "SELECT id, name AS title FROM numbers WHERE id > 1",
        "SELECT id, upper(name) AS name FROM numbers WHERE id > 1",
        "SELECT id, name, 'd' AS _gs_op FROM numbers WHERE id > 1",
    ],
)
def test_a_query_with_other_rows_has_another_fingerprint(other: str) -> None:
    assert fingerprint(other) != fingerprint(BASE)


def test_another_source_has_another_fingerprint() -> None:
    assert planned(pipeline()).fingerprint != planned(pipeline().replace("'n'", "'m'")).fingerprint


def test_how_a_sink_batches_does_not_change_the_fingerprint() -> None:
    batched = pipeline(sinks="  out: {type: blackhole, from: numbers, batch_size: 5}\n")
    assert planned(batched).fingerprint == planned(pipeline()).fingerprint


# Nodes around nodes with problems


def test_a_query_is_checked_although_its_node_lacks_a_field() -> None:
    text = pipeline('  some: {type: sql, sql: "SELECT nope FROM numbers"}\n', "  out: {type: blackhole, from: some}\n")
    assert [(p.code, p.node) for p in problems(text)] == [("MISSING_FIELD", "some"), ("SQL_UNKNOWN_COLUMN", "some")]


def test_what_a_broken_node_reads_is_read_and_what_it_is_called_exists() -> None:
    text = pipeline(
        "  odd: {type: banana, from: numbers}\n" + sql("next", "SELECT id FROM odd"),
        "  out: {type: blackhole, from: next, batch_size: many}\n  more: {type: blackhole, from: odd}\n",
    )
    assert [(p.code, p.node) for p in problems(text)] == [("KIND_NOT_AVAILABLE", "odd"), ("WRONG_TYPE", "out")]


def test_a_node_that_is_no_map_exists_all_the_same() -> None:
    text = pipeline(sinks="  out: {type: blackhole, from: odd}\n  raw: {type: blackhole, from: numbers}\n")
    text = text.replace("sinks:", "transforms:\n  odd: SELECT 1\nsinks:")
    assert [(p.code, p.node) for p in problems(text)] == [("WRONG_TYPE", "odd")]


def test_a_wrong_query_hides_nothing_behind_it() -> None:
    text = pipeline(
        sql("first", "SELECT nope FROM numbers") + sql("second", "SELECT uper(x) FROM first"),
        "  out: {type: blackhole, from: second, primary_key: y}\n",
    )
    found = [(p.code, p.node) for p in problems(text)]
    assert found == [("SQL_UNKNOWN_COLUMN", "first"), ("SQL_UNKNOWN_FUNCTION", "second")]


def test_a_type_error_names_the_sinks_that_would_get_the_rows() -> None:
    text = pipeline(
        sql("first", "SELECT id, name + 1 AS x FROM numbers") + sql("second", "SELECT * FROM first"),
        "  b: {type: blackhole, from: second}\n  a: {type: blackhole, from: first}\n"
        "  c: {type: blackhole, from: numbers}\n",
    )
    error = problem(text)
    assert (error.code, error.context) == ("SQL_TYPES", "SQL validation failed for sink [a, b]")


# Rules between options and columns


def test_several_streams_of_a_sink_need_a_key() -> None:
    text = NO_KEY.replace("type: blackhole", "type: webhook, url: 'http://h', parallelism: 2")
    error = problem(text)
    assert (error.code, error.node, error.where and error.where.line) == ("KEY_REQUIRED", "out", 4)


def test_a_sink_that_needs_a_key_says_so() -> None:
    error = problem(NO_KEY.replace("type: blackhole", "type: kafka, topic: t, data_format: json"))
    assert (error.code, error.message) == ("MESSAGE_KEY", "kafka sink 'out': requires a primary key")


@pytest.mark.parametrize(
    ("column", "wrong"),
    [("id", None), ("at", None), ("name", "is string"), ("nope", "does not exist")],
)
def test_an_event_time_column_that_cannot_be_used_is_warned_of(column: str, wrong: str | None) -> None:
    node = "numbers: {type: generator, primary_key: id, columns: {id: id, name: \"'x'\", at: now()}, telemetry: "
    text = f"sources:\n  {node}{{event_time: {{column: {column}, unit: seconds}}}}}}\n"
    plan = planned(text + "sinks:\n  out: {type: blackhole, from: numbers}\n")
    found = [c.message for c in plan.cautions if c.code == "EVENT_TIME"]
    assert len(found) == (wrong is not None)
    assert wrong is None or wrong in found[0]

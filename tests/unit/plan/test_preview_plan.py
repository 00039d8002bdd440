"""What can be planned of an unfinished pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.engine.preparation import check_unfinished
from streamling.errors import InvalidPipeline
from streamling.plan.preview import PreviewPlan
from streamling.spec.pipeline import PipelineText
from streamling.spec.settings import Settings

SOURCE = "sources: {numbers: {type: generator, columns: {id: id, name: \"concat('n', id)\"}}}\n"


def planned(text: str) -> PreviewPlan:
    return check_unfinished(PipelineText(text, "p.yaml"), Settings())


def names(plan: PreviewPlan) -> set[str]:
    return {node.spec.name for node in plan.plan.nodes}


def reasons(plan: PreviewPlan) -> dict[str, str]:
    return {spec.name: reason for spec, reason in (plan.left_out or {}).items()}


def test_neither_sinks_nor_keys_nor_readers_are_needed() -> None:
    plan = planned(SOURCE + "transforms: {a: {type: sql, sql: SELECT id FROM numbers}}\nsinks: []\n")
    assert names(plan) == {"numbers", "a"}
    assert (plan.problems, plan.cautions, plan.left_out) == ((), (), {})
    assert plan.plan.node("a").primary_key == ()


def test_a_node_that_needs_a_wrong_one_is_left_out_however_it_needs_it() -> None:
    plan = planned(
        SOURCE
        + """\
transforms:
  wrong: {type: sql, sql: SELECT nope FROM numbers}
  reads: {type: sql, sql: SELECT * FROM wrong}
  further: {type: sql, sql: SELECT * FROM reads}
  filled: {type: dynamic_table, backend_type: InMemory, backend_entity_name: t, sql: SELECT name FROM wrong,
           same_input: false}
  asks: {type: sql, sql: "SELECT id FROM numbers WHERE dynamic_table_check('filled', name)"}
  absent: {type: lookup, path: none.csv, format: csv, primary_key: id}
  joins: {type: sql, sql: SELECT n.id FROM numbers n JOIN absent a ON n.id = a.id}
  fine: {type: sql, sql: SELECT id FROM numbers}
"""
    )
    assert names(plan) == {"numbers", "fine"}
    why = reasons(plan)
    assert "nope" in why["wrong"]
    assert why["reads"] == why["filled"] == "it needs 'wrong', which is left out"
    assert why["further"] == "it needs 'reads', which is left out"
    assert why["asks"] == "it needs 'filled', which is left out"
    assert set(why) == {"wrong", "reads", "further", "filled", "asks", "absent", "joins"}


def test_cycles_and_unknown_types_are_left_out() -> None:
    plan = planned(
        SOURCE
        + """\
transforms:
  a: {type: sql, sql: SELECT * FROM b}
  b: {type: sql, sql: SELECT * FROM a}
  c: {type: sqll, sql: SELECT * FROM numbers}
  d: text
"""
    )
    assert names(plan) == {"numbers"}
    assert set(reasons(plan)) == {"a", "b", "c", "d"}
    assert {problem.code for problem in plan.problems} == {"CYCLE", "KIND_NOT_AVAILABLE", "WRONG_TYPE"}


NODES = """\
sources:
  numbers: {type: generator}
  # those of today
transforms:
  before: {type: sql, sql: SELECT id FROM numbers}
  typed:
    type: sql
    BROKEN
  behind: {type: sql, sql: SELECT id FROM typed}
  after: {type: sql, sql: SELECT id FROM before}
sinks:
  out: {type: print, from: after}
"""


@pytest.mark.parametrize(
    ("broken", "line", "column"),
    [
        ("sq", 8, 5),
        ('sql: "SELECT', 8, 10),
        ("sql: SELECT id AS a: b", 8, 24),
        ("columns: {id: [", 8, 20),
        ("sql: SELECT 1\n    sql: SELECT 2", 9, 5),
        ("\tsql: SELECT 1", 8, 5),
        (" sql: SELECT 1\n   from: a", 8, 6),
    ],
)
def test_a_node_that_breaks_the_yaml_hides_only_those_that_need_it(broken: str, line: int, column: int) -> None:
    text = NODES.replace("BROKEN", broken)
    wrapped = "definition:\n" + "".join(f"  {part}\n" for part in text.splitlines())
    for written, lines, columns in ((text, 0, 0), (text.replace("\n", "\r\n"), 0, 0), (wrapped, 1, 2)):
        plan = planned(written)
        assert names(plan) == {"numbers", "before", "after"}
        (problem,) = plan.problems
        assert reasons(plan) == {"typed": problem.message, "behind": "it needs 'typed', which is left out"}
        assert problem.message.startswith("transform 'typed': invalid YAML: ")
        assert (problem.code, problem.node) == ("INVALID_YAML", "typed")
        assert problem.where is not None
        assert (problem.where.line, problem.where.column) == (line + lines, column + columns)


HANDLER = "type: handler\n    from: numbers\n    url: http://localhost:1/x"


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ("sql: |\n      SELECT id FROM before\n  WHERE id > 1000000", 10),
        ("sql: |\n      SELECT id FROM before\nWHERE id > 1000000", 10),
        ("sql: |\n      SELECT id FROM before\nWHERE name = 'a: b'", 10),
        (f"{HANDLER}\n\theaders: {{X-Env: test}}", 10),
        (f"{HANDLER}\n timeout_ms: 5", 10),
        ("sql: [\n  }", 9),
        ("sql: |\n      SELECT id FROM before\nWHERE\n      id > 1000000", 10),
        ("sql: |\n      SELECT id FROM before\n  WHERE\n      id > 1000000", 10),
        ("sql: |\n      SELECT id FROM before\nWHERE\nid > 1000000", 10),
        (f"{HANDLER}\n  w\n    headers: {{X-Env: test}}", 10),
        ("sql: |\r\n      SELECT id FROM before\r\n  WHERE\r\n      id > 1000000\r", 10),
        ("sql: SELECT id\n      FROM before\n  WHERE\n    id > 5", 10),
        ("sql: |\n      SELECT id FROM before\nWHERE\n      id::text = '5'", 10),
        ("sql: |\n      SELECT id FROM before\n# the new ones\n  WHERE\n      id > 5", 11),
    ],
)
def test_a_node_is_left_out_if_a_part_of_it_is_not_indented_enough(broken: str, line: int) -> None:
    """Without that part a query would have no filter, and a handler would send requests without its headers."""
    plan = planned(NODES.replace("type: sql\n    BROKEN", broken if "type:" in broken else f"type: sql\n    {broken}"))
    assert names(plan) == {"numbers", "before", "after"}
    (problem,) = plan.problems
    assert set(reasons(plan)) == {"typed", "behind"}
    assert (problem.node, problem.where and problem.where.line) == ("typed", line)


def test_what_is_pasted_between_nodes_hides_none_of_them() -> None:
    pasted = "SELECT\n" + "".join(f"c{n},\n" for n in range(30)) + "FROM x\n"
    plan = planned(NODES.replace("BROKEN", "sql: SELECT id FROM before").replace("  behind:", f"{pasted}  behind:"))
    assert names(plan) == {"numbers", "before", "typed", "behind", "after"}
    assert [(problem.node, problem.where and problem.where.line) for problem in plan.problems] == [(None, 9)]


def test_a_word_beside_the_sections_is_no_end_of_a_section_unless_it_is_nearly_one() -> None:
    text = NODES.replace("BROKEN", "sql: SELECT id FROM before")
    assert names(planned(text.replace("  behind:", "w\n  behind:"))) == set(names(planned(text)))
    plan = planned(text.replace("transforms:", "transforms"))
    assert names(plan) == {"numbers"}
    assert "'transforms' has no ':' after it" in plan.problems[0].message


def test_a_node_may_have_an_odd_name() -> None:
    text = NODES.replace("BROKEN", "sql: SELECT id FROM before").replace(
        "  behind:", "  black list:\n    type: [\n  behind:"
    )
    plan = planned(text)
    assert names(plan) == {"numbers", "before", "typed", "behind", "after"}
    (problem,) = plan.problems
    assert problem.where is not None and problem.where.line >= 9


def test_keys_of_other_tools_may_have_blanks() -> None:
    text = NODES.replace("BROKEN", "sql: SELECT id FROM before")
    plan = planned(f"created by: somebody\n{text}")
    assert not plan.problems


def test_a_table_whose_query_reads_an_unknown_node_is_left_out_with_what_asks_it() -> None:
    """It would be empty, and the query would give every row."""
    plan = planned("""\
sources:
  numbers: {type: generator, columns: {id: id, name: "concat('n', id)"}}
transforms:
  blocked:
    {type: dynamic_table, backend_type: InMemory, backend_entity_name: b, sql: SELECT name FROM nubmers,
     same_input: false}
w
  open: {type: sql, sql: "SELECT id FROM numbers WHERE NOT dynamic_table_check('blocked', name)"}
sinks: {out: {type: print, from: open}}
""")
    assert names(plan) == {"numbers"}


def test_a_bracket_may_be_closed_on_a_line_of_its_own() -> None:
    plan = planned(
        NODES.replace("type: sql\n    BROKEN", "{type: sql, sql: [\n  }").replace("FROM numbers}", "FROM numbers\n  }")
    )
    assert names(plan) == {"numbers", "before", "after"}
    assert [problem.node for problem in plan.problems] == ["typed"]


def test_several_nodes_may_break_the_yaml_and_so_may_sinks() -> None:
    text = NODES.replace("BROKEN", "sq").replace("  after:", "  open: {type: sql, sql: [\n  after:")
    plan = planned(text.replace("print, from: after}", "print, from").replace("  numbers:", "  half\n  numbers:"))
    assert names(plan) == {"numbers", "before", "after"}
    assert [(problem.node, problem.where and problem.where.line) for problem in plan.problems] == [
        ("half", 2),
        ("typed", 9),
        ("open", 11),
    ]


def test_of_nodes_with_one_name_the_first_is_shown() -> None:
    plan = planned(NODES.replace("BROKEN", "sql: SELECT id FROM before").replace("behind", "typed"))
    assert names(plan) == {"numbers", "before", "typed", "after"}
    assert [problem.message for problem in plan.problems] == ["invalid YAML: duplicate key 'typed', first in line 6"]


@pytest.mark.parametrize(
    "text", ["a: {\n" + SOURCE, SOURCE + SOURCE, "sources: {a: {", "x: 1\n---\n" + SOURCE, "", "[]"]
)
def test_without_nodes_that_break_it_yaml_that_is_not_valid_is_an_error(text: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        planned(text)
    assert [problem.code for problem in caught.value.problems] == ["INVALID_YAML"]


@settings(deadline=None)
@given(st.integers(0, len(NODES)))
def test_every_beginning_of_a_file_is_shown_as_far_as_it_can_be_read(length: int) -> None:
    text = NODES.replace("BROKEN", "sql: >\n      SELECT id\n      FROM before")[:length]
    plan = planned(text) if "sources:" in text else None
    for name in ("numbers", "before"):
        if plan is not None and f"{name}: " in text and "}" in text.partition(f"{name}: ")[2]:
            assert name in names(plan)


def test_one_node_keeps_what_it_needs_and_the_problems_that_concern_it() -> None:
    plan = planned(
        SOURCE
        + """\
transforms:
  wrong: {type: sql, sql: SELECT nope FROM numbers}
  behind: {type: sql, sql: SELECT * FROM wrong}
  known: {type: dynamic_table, backend_type: InMemory, backend_entity_name: t, sql: SELECT name FROM numbers}
  asks: {type: sql, sql: "SELECT id FROM numbers WHERE dynamic_table_check('known', name)"}
"""
    )
    asks = plan.only(["asks"])
    assert names(asks) == {"numbers", "known", "asks"}
    assert asks.problems == ()
    behind = plan.only(["behind"])
    assert names(behind) == set()
    assert [problem.node for problem in behind.problems] == ["wrong"]


def test_a_node_that_fails_later_takes_its_readers_with_it() -> None:
    plan = planned(
        SOURCE
        + """\
transforms:
  a: {type: sql, sql: SELECT id FROM numbers}
  b: {type: sql, sql: SELECT id FROM a}
"""
    )
    left = plan.without(plan.plan.node("a"), "no")
    assert names(left) == {"numbers"}
    assert reasons(left) == {"a": "no", "b": "it needs 'a', which is left out"}


def test_a_file_is_read_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(SOURCE + "transforms: {a: {type: sql, sql: SELECT x FROM numbers}}\n")
    (problem,) = check_unfinished(file, Settings()).problems
    assert problem.where is not None
    assert (problem.where.file, problem.where.line) == (str(file), 2)

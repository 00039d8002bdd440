"""The plan of a replay has the node of the letters and what is behind it; nothing else gives rows."""

from __future__ import annotations

import pytest

from streamling.connector import kinds
from streamling.plan.pipeline import Plan, make_plan
from streamling.plan.replay import ReplayPlan, replay_plan
from streamling.spec.pipeline import load_pipeline
from streamling.spec.pipeline.options import OnError

# a ─► one ─► all ─► table, screen       b ─► all       a ─► direct
PIPELINE = """\
sources:
  a: {type: generator, columns: {id: id, x: id, unused: id}}
  b: {type: generator, columns: {id: id, x: id}}
transforms:
  one: {type: sql, primary_key: id, sql: "SELECT id, x FROM a"}
  all: {type: sql, primary_key: id, sql: "SELECT id, x FROM one UNION ALL SELECT id, x FROM b"}
sinks:
  table: {type: postgres, from: all, schema: s, table: t, on_error: skip}
  screen: {type: print, from: all}
  direct: {type: blackhole, from: a}
"""


@pytest.fixture
def plan() -> Plan:
    return make_plan(load_pipeline(PIPELINE, "p.yaml", kinds.kinds()))


def edges(reduced: ReplayPlan) -> dict[str, tuple[str, ...]]:
    return {node.ref: node.inputs for node in reduced.plan.nodes}


def test_letters_of_a_source_go_to_all_its_readers(plan: Plan) -> None:
    reduced = replay_plan(plan, plan.node("a"), None)
    assert edges(reduced) == {
        "__letters:a": (),
        "__empty:b": (),
        "one": ("__letters:a",),
        "all": ("one", "__empty:b"),
        "table": ("all",),
        "screen": ("all",),
        "direct": ("__letters:a",),
    }
    assert reduced.node is reduced.entry


def test_letters_of_a_transform_replace_its_input_only_for_it(plan: Plan) -> None:
    reduced = replay_plan(plan, plan.node("one"), None)
    assert edges(reduced) == {
        "__letters:one": (),
        "__empty:b": (),
        "one": ("__letters:one",),
        "all": ("one", "__empty:b"),
        "table": ("all",),
        "screen": ("all",),
    }
    assert reduced.columns.names == ("id", "x", "_gs_op")
    assert reduced.entry.view == plan.node("a").view  # the compiled query reads this view


def test_letters_of_a_union_enter_at_the_input_they_came_from(plan: Plan) -> None:
    reduced = replay_plan(plan, plan.node("all"), "b")
    assert edges(reduced) == {
        "__letters:all:b": (),
        "__empty:one": (),
        "all": ("__empty:one", "__letters:all:b"),
        "table": ("all",),
        "screen": ("all",),
    }


def test_letters_of_a_sink_go_to_that_sink_only_and_stay_letters_whatever_it_does_now(plan: Plan) -> None:
    reduced = replay_plan(plan, plan.node("table"), None)
    assert edges(reduced) == {"__letters:table": (), "table": ("__letters:table",)}
    assert reduced.node.spec.options.on_error is OnError.DEAD_LETTER
    assert reduced.columns == plan.node("all").schema

"""A dynamic table may have the name of a stream; counts and policies belong to one of them."""

from __future__ import annotations

import pytest

from streamling.connector import BadRow, kinds
from streamling.engine.execution import nodes_by_name
from streamling.engine.protocol.bad_rows import BadRows
from streamling.engine.protocol.progress import Progress
from streamling.letters.letter import RejectStage
from streamling.plan.pipeline import Plan, make_plan
from streamling.spec.pipeline import Role, load_pipeline
from streamling.spec.pipeline.options import OnError
from streamling.telemetry.meters import RowCounts

TABLE = "Dynamic table numbers"


@pytest.fixture
def plan() -> Plan:
    text = """
    sources:
      Numbers: {type: generator, primary_key: id, on_error: skip}
    transforms:
      numbers: {type: dynamic_table, backend_type: InMemory, backend_entity_name: n, sql: SELECT id::text FROM numbers}
    sinks:
      out: {type: blackhole, from: numbers}
    """
    return make_plan(load_pipeline(text, "p.yaml", kinds.kinds()))


def test_every_node_of_a_plan_has_an_id_of_its_own(plan: Plan) -> None:
    assert [node.id for node in plan.nodes] == ["numbers", TABLE, "out"]
    assert [plan.node_by_id(node.id) for node in plan.nodes] == list(plan.nodes)
    assert plan.node_by_id("numbers").spec.role is Role.SOURCE


def test_progress_counts_each_of_them(plan: Plan) -> None:
    progress = Progress()
    progress.set_plan(plan)
    progress.meter("numbers").count(RowCounts(rows_out=5))
    progress.meter("numbers").reject("rows_skipped", 2, stage="decode", reason="odd")
    progress.meter(TABLE).count(RowCounts(rows_in=5))
    source, table, _ = progress.snapshot().nodes
    assert (source.role, source.rows_out, source.rejected) == (Role.SOURCE, 5, 2)
    assert (table.type, table.rows_in, table.rows_out, table.rejected) == ("dynamic_table", 5, None, 0)


def test_bad_rows_are_dealt_with_as_their_own_node_says(plan: Plan) -> None:
    progress = Progress()
    progress.set_plan(plan)
    rows = BadRows(plan, "app", progress, {})
    assert (rows.policy("numbers"), rows.policy(TABLE)) == (OnError.SKIP, OnError.FAIL)
    rows.count("numbers", RejectStage.DECODE, 3, [BadRow("decode_error", "no number", {})])
    assert (rows.rejected("numbers"), rows.rejected(TABLE)) == (3, 0)
    rows.finalized()
    assert [node.rejected for node in progress.snapshot().nodes] == [3, 0, 0]


def test_an_error_of_the_stream_stands_where_the_stream_does(plan: Plan) -> None:
    names = nodes_by_name(plan)
    assert names["numbers"].role is Role.SOURCE
    assert names["Numbers"].role is Role.SOURCE

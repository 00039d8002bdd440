"""How many rows each node has given: counted, or found from the rows of its neighbours."""

from __future__ import annotations

import pytest

from streamling.connector import kinds
from streamling.engine.data.row_accounts import RowAccounts
from streamling.engine.protocol.delivery import Flushed
from streamling.engine.protocol.epoch_metrics import Rate
from streamling.engine.protocol.steps import sink_counts
from streamling.plan.pipeline import Plan, make_plan
from streamling.spec.pipeline import load_pipeline
from streamling.telemetry.meters import RowCounts

FILTER, KEEP, UNNEST = (
    "SELECT n FROM {} WHERE n > 1",
    "SELECT n FROM {}",
    "SELECT unnest(make_array(n, n)) AS n FROM {}",
)


def plan(*queries: str, sinks: tuple[str, ...] = ()) -> Plan:
    """Queries a, b, .. one after the other; the last one has a sink, and so have those named."""
    names = ["src", *"abcdef"[: len(queries)]]
    text = "sources: {src: {type: generator, columns: {n: id}}}\ntransforms:\n"
    for name, input_, query in zip(names[1:], names, queries, strict=False):
        text += f"  {name}: {{type: sql, primary_key: n, sql: '{query.format(input_)}'}}\n"
    text += "sinks:\n" + "".join(f"  to_{one}: {{type: blackhole, from: {one}}}\n" for one in {names[-1], *sinks})
    pipeline = load_pipeline(text, "p.yaml", kinds.kinds())
    assert not pipeline.problems, pipeline.problems
    return make_plan(pipeline)


@pytest.mark.parametrize(
    ("queries", "uncounted"),
    [
        ([FILTER], set()),
        ([KEEP, KEEP, FILTER], set()),
        ([FILTER, KEEP], set()),
        ([FILTER, FILTER], {"a"}),
        ([FILTER, KEEP, FILTER], {"a"}),
        ([FILTER, FILTER, FILTER], {"a", "b"}),
        ([UNNEST, FILTER], {"a"}),
        ([KEEP, UNNEST], set()),
    ],
)
def test_spark_counts_only_what_nothing_else_tells(queries: list[str], uncounted: set[str]) -> None:
    found = plan(*queries)
    accounts = RowAccounts(found, filtered_sources=(), processed=())
    needed = {node.id for node in found.nodes}
    assert accounts.uncounted(needed, large=False) == uncounted
    assert accounts.uncounted(needed, large=True) == uncounted


def test_rows_follow_from_those_of_neighbours_and_differences_are_filtered() -> None:
    accounts = RowAccounts(plan(FILTER, KEEP, FILTER), (), ())
    counts = accounts.counts({"src": 100}, {"src": 100, "a": 60, "c": 20}, {"b": 2})
    assert counts == {
        "src": RowCounts(None, 100),
        "a": RowCounts(100, 60, filtered=40),
        "b": RowCounts(60, 58),
        "c": RowCounts(58, 20, filtered=38),
    }


def test_the_filter_of_a_source_counts_as_its_own() -> None:
    accounts = RowAccounts(plan(KEEP), ["src"], ())
    assert accounts.counts({"src": 100}, {"a": 90}, {})["src"] == RowCounts(None, 90, filtered=10)


def test_a_row_that_nothing_explains_is_unaccounted() -> None:
    accounts = RowAccounts(plan(KEEP), (), ())
    assert accounts.counts({"src": 10}, {"src": 10, "a": 9}, {})["a"] == RowCounts(10, 9, unaccounted=1)
    more = RowAccounts(plan(UNNEST), (), ()).counts({"src": 10}, {"src": 10, "a": 20}, {})
    assert more["a"] == RowCounts(10, 20)


def test_a_sink_accounts_for_all_rows_of_its_input() -> None:
    assert sink_counts(Flushed(10, 9, 7, skipped=1), 10) == RowCounts(10, 7, filtered=2)
    assert sink_counts(Flushed(10, 9, 9), 10) == RowCounts(9, 9, unaccounted=1)
    assert sink_counts(Flushed(10, 0, 0), 10) == RowCounts(0, 0, unaccounted=10)
    assert sink_counts(Flushed(10, 0, 0), 10, replayed=True) == RowCounts(0, 0), "it had the epoch already"


def test_a_rate_is_that_of_the_last_seconds() -> None:
    now = 0.0
    rate = Rate(now=lambda: now)
    assert rate.per_second() == 0
    for second in range(1, 21):
        now = float(second)
        rate.add(100 * second)
    assert rate.per_second() == 100
    now = 22.0
    assert rate.per_second() == 60
    now = 30.0
    assert rate.per_second() == 0


def test_a_rate_that_begins_later_leaves_out_the_rows_before() -> None:
    now = 0.0
    rate = Rate(500, now=lambda: now)
    now = 1.0
    rate.add(510)
    assert rate.per_second() == 10
    assert rate.last == (1.0, 510)

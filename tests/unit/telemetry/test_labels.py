"""The labels of the metrics of a node: what it reads or writes."""

from __future__ import annotations

import pytest

from streamling.clients.http_endpoint import recorder
from streamling.connector import kinds
from streamling.spec.pipeline import load_pipeline
from streamling.telemetry.labels import node_labels
from streamling.telemetry.meters import NodeMeter
from streamling.telemetry.metrics import Metrics

TABLE = "source_type: clickhouse, table_name"
HYBRID = f"bounded_sources: [{{source_type: file, path: old, format: jsonl}}, {{{TABLE}: a}}, {{{TABLE}: b}}]"
AGGREGATE = "schema: stats, landing_table: l, agg_table: totals, aggregate: {n: {fn: count}}"


@pytest.mark.parametrize(
    ("node", "labels"),
    [
        ("sources: {x: {type: clickhouse, table_name: blocks}}", {"table": "blocks"}),
        (
            f"sources: {{x: {{type: hybrid, {HYBRID}, unbounded_source: {{source_type: kafka, topic: t}}}}}}",
            {"table": "a", "topic": "t"},
        ),
        ("sources: {x: {type: kafka, topic: t}}", {"topic": "t"}),
        ("sources: {x: {type: file, path: in, format: json}}", {"path": "in"}),
        (f"sinks: {{x: {{type: postgres_aggregate, from: s, {AGGREGATE}}}}}", {"table": "totals"}),
        ("sinks: {x: {type: webhook, from: s, url: 'http://u:secret@h/x'}}", {"url": "http://u:*****@h/x"}),
    ],
)
def test_a_node_says_what_it_reads_or_writes(node: str, labels: dict[str, str]) -> None:
    spec = next(spec for spec in load_pipeline(node, "p.yaml", kinds.kinds()).nodes if spec.name == "x")
    found = node_labels(spec)
    assert {name: found[name] for name in labels} == labels
    assert set(found) == {"id", "topology_node_type", "operator_type", *labels}


def test_every_kind_has_the_labels_that_it_names() -> None:
    for kind in kinds.all_kinds():
        for label in kind.options.identity_labels:
            assert label in kind.options.model_fields or hasattr(kind.options, label), (kind.name, label)


def test_labels_of_the_file_do_not_replace_those_of_a_metric() -> None:
    """Otherwise its series would become one: rows of every stage and reason, requests of every outcome."""
    names = ("stage", "reason", "outcome", "status_class", "state")
    mine = ", ".join(f"{name}: mine" for name in names)
    text = f"sinks: {{x: {{type: webhook, from: s, url: 'http://h/x', telemetry: {{labels: {{{mine}}}}}}}}}"
    (spec,) = load_pipeline(text, "p.yaml", kinds.kinds()).nodes
    metrics = Metrics()
    meter, record = NodeMeter(node_labels(spec), metrics), recorder(spec, lambda: metrics)
    for reason in ("missing_field", "too_long"):
        meter.reject("rows_skipped", 1, stage="write", reason=reason)
    meter.wait("starved", 5)
    record("success", "2xx", 3)
    record("retriable_error", "5xx", 3)
    found = {
        (one.name.removeprefix("streamling_"), *(dict(one.labels)[n] for n in names)) for one in metrics.snapshot()
    }
    assert found == {
        ("rows_skipped", "write", "missing_field", "mine", "mine", "mine"),
        ("rows_skipped", "write", "too_long", "mine", "mine", "mine"),
        ("node_wait", "mine", "mine", "mine", "mine", "starved"),
        ("http_requests", "mine", "mine", "success", "2xx", "mine"),
        ("http_requests", "mine", "mine", "retriable_error", "5xx", "mine"),
        ("http_request_latency", "mine", "mine", "success", "2xx", "mine"),
        ("http_request_latency", "mine", "mine", "retriable_error", "5xx", "mine"),
        ("http_retries", "mine", "mine", "mine", "5xx", "mine"),
    }

"""The columns that a Kafka source with a filter hands to Spark."""

from __future__ import annotations

import pytest

from streamling.connector import kinds
from streamling.sources.kafka.source import KafkaSource
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings


def planned(condition: str, read: list[str]) -> KafkaSource:
    text = f"""\
sources:
  events:
    type: kafka
    topic: events
    data_format: json
    schema: {{n: int64, text: string, more: string}}
    filter: "{condition}"
sinks: {{out: {{type: blackhole, from: events}}}}
"""
    node = load_pipeline(text, "p.yaml", kinds.kinds()).sources[0]
    source = kinds.build(node, Settings.model_validate({"kafka_source": {"brokers": "localhost:1"}}))
    assert isinstance(source, KafkaSource)
    source.prepare(node.options.output_schema(node), read)  # type: ignore[attr-defined]
    return source


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("more IS NULL", ("more", "n", "_gs_op")),
        ("more = 'in `text`'", ("more", "n", "_gs_op")),
        ("n > 1", ("n", "_gs_op")),
    ],
)
def test_a_filter_has_the_columns_it_looks_at(condition: str, columns: tuple[str, ...]) -> None:
    source = planned(condition, ["n"])
    assert source.columns.names == columns
    assert source.select is not None
    assert source.select.reads == set(columns)
    assert [name for _, name in source.select.columns] == ["n", "_gs_op"]

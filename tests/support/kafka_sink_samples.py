"""Kafka sinks over topics of a test, driven as the engine does it: write, commit, abort; and what their topics hold."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import fastavro
import httpx
from confluent_kafka import Consumer, TopicPartition

from streamling.connector import Epoch, Report, SinkContext, Slice, kinds
from streamling.dev.topics import Message
from streamling.plan.types import Schema
from streamling.sinks.kafka.sink import KafkaSink
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from support.postgres_samples import ITEMS, LOOSE, TASK, batch


@contextmanager
def sink(
    brokers: str,
    topic: str,
    more: str = ", data_format: json",
    *,
    columns: Schema = ITEMS,
    key: tuple[str, ...] = ("id",),
    generation: str = "g",
    application: str | None = None,
    registry_url: str = "http://localhost:1",
    record_batch_size: int = 1000,
    **connection: str,
) -> Iterator[KafkaSink]:
    """A sink called `out`, opened. Its positions are apart from those of other topics, unless `application` is set."""
    made = build(brokers, topic, more, registry_url=registry_url, record_batch_size=record_batch_size, **connection)
    try:
        made.open(SinkContext("out", application or f"app-{topic}", generation, columns, key))
        yield made
    finally:
        made.close()


def build(
    brokers: str, topic: str, more: str, *, registry_url: str = "", record_batch_size: int = 1000, **connection: str
) -> KafkaSink:
    text = (
        "sources: {rows: {type: generator, columns: {id: id}, primary_key: id}}\n"
        f"sinks: {{out: {{type: kafka, from: rows, topic: {topic}{more}}}}}"
    )
    pipeline = load_pipeline(text, "p.yaml", kinds.kinds())
    assert not pipeline.problems, pipeline.problems
    settings = {
        "kafka_sink": {"brokers": brokers, "schema_registry_url": registry_url, **connection},
        "record_batch_size": record_batch_size,
    }
    made = kinds.build(pipeline.sinks[0], Settings.model_validate(settings))
    assert isinstance(made, KafkaSink)
    return made


def write(sink: KafkaSink, rows: Sequence[tuple[Any, ...]], into: Epoch = LOOSE, columns: Schema = ITEMS) -> Report:
    """Written and committed; returns the report."""
    report = sink.writer().write(into, TASK, [batch(rows, columns)] if rows else [])
    sink.commit(into, [report])
    return report


def many_keys(start: int, end: int, keys: Sequence[str], id_: str) -> Epoch:
    """An epoch with a slice of each of these state keys."""
    position = [{"offset": n, "updated_at": 1_700_000_000_000 + n} for n in (start, end)]
    slices = tuple(Slice("rows", key, position[0] if start else None, position[1], (), 1) for key in keys)
    return Epoch(id_, 1, "app", "g", 0, 0, slices)


def committed(brokers: str, topic: str) -> list[Message]:
    """What a consumer of committed messages sees, each partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "reading",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        messages, left = [], set(partitions)
        while left:
            message = consumer.poll(20)
            assert message is not None, "the broker does not answer"
            if message.error() is not None:
                left.discard(message.partition())
                continue
            headers = tuple(message.headers() or ())
            place = message.partition(), message.offset(), message.timestamp()[1]
            messages.append(Message(message.value(), message.key(), headers, *place))
        return messages
    finally:
        consumer.close()


def rows_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The values of JSON messages."""
    return [json.loads(message.value or b"") for message in messages]


def decoded(registry_url: str, messages: Sequence[Message]) -> list[Any]:
    """The values of Avro messages, by an independent reader, with the schemas that they name."""
    schemas: dict[int, Any] = {}
    rows = []
    for message in messages:
        value = message.value or b""
        id_ = int.from_bytes(value[1:5])
        if id_ not in schemas:
            text = httpx.get(f"{registry_url}/schemas/ids/{id_}", timeout=20).raise_for_status().json()["schema"]
            schemas[id_] = fastavro.parse_schema(json.loads(text))
        body = io.BytesIO(value[5:])
        rows.append(fastavro.schemaless_reader(body, schemas[id_], None))
        assert not body.read(), "there are bytes behind the value"
    return rows

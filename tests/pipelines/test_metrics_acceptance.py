"""Metrics of pipelines from Kafka, as an OTLP receiver gets them: rows, epochs, event time, and who waits for whom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from streamling.telemetry.catalog import METRICS
from support.harness import Finished, Workspace
from support.http_server import Answer, recording_server
from support.kafka_broker import KafkaBroker
from support.otlp_receiver import Receiver, http_receiver
from support.postgres_server import Database, PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.servers]


DECODE, ENCODE = "kafka_consumer.msg_decode_latency", "kafka_producer.msg_encode_latency"


class Metered:
    """Runs pipelines over a topic of its own until the last row is written, and has what was exported."""

    def __init__(self, place: Workspace, kafka: KafkaBroker, database: Database, receiver: Receiver) -> None:
        self._place = place
        self._kafka = kafka
        self.database = database
        self.receiver = receiver

    def run(
        self, rows: list[dict[str, Any]], nodes: str, *, limit: int, more: str = "", **settings: object
    ) -> Finished:
        topic = self.topic()
        self._kafka.produce(topic, [json.dumps(row) for row in rows])
        columns = "id: int64, block: int64, text: string, tags: list<string>, at: int64"
        source = f"type: kafka, topic: {topic}, data_format: json, primary_key: id, schema: {{{columns}}}{more}"
        self._place.write(f"sources: {{src: {{{source}}}}}\n{nodes}")
        return self._place.run(
            **{
                "KAFKA_SOURCE__BROKERS": self._kafka.brokers,
                "KAFKA_SINK__BROKERS": self._kafka.brokers,
                "OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT": self.receiver.endpoint,
                "OPEN_TELEMETRY_METRICS__BATCH_INTERVAL_SECS": 1,
                "APPLICATION_ID": topic,
                "NUM_RECORDS_BEFORE_STOP": limit,
                **self.database.settings(),
                **settings,
            }
        ).succeeded()

    def topic(self) -> str:
        return self._kafka.topic("metered")

    def value(self, name: str, **labels: str) -> float | None:
        return self.receiver.value(f"streamling_{name}", **labels)

    def histogram(self, name: str, **labels: str) -> tuple[int, float]:
        """Samples and their sum."""
        (found,) = self.receiver.series(f"streamling_{name}", **labels)
        return found.count, found.value


@pytest.fixture
def metered(place: Workspace, kafka: KafkaBroker, postgres: PostgresServer) -> Iterator[Metered]:
    with http_receiver() as receiver:
        yield Metered(place, kafka, postgres.database(), receiver)


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": n, "block": n, "text": f"t{n}", "tags": ["a", "b"], "at": 1000 + n, **more} for n in range(1, count + 1)
    ]


INTO_TABLE = "sinks: {out: {type: postgres, schema: public, table: t, primary_key: id, from: src}}"


def test_rows_epochs_and_the_instance_of_a_topic_into_a_table(metered: Metered) -> None:
    """ME-01, ME-02, ME-03, ME-08."""
    metered.run(rows(50), INTO_TABLE, limit=50, CHECKPOINT_INTERVAL_SEC=1, **metered.database.state_settings())
    assert metered.database.rows("SELECT count(*) FROM t") == [(50,)]
    (source,) = metered.receiver.series("streamling_output_rows", id="src")
    assert source.value == 50
    assert source.resource["service.instance.id"] == source.labels["topic"], "the application is named like the topic"
    assert source.labels["operator_type"] == "kafka"
    assert metered.value("input_rows", id="out", table="t") == 50
    assert metered.value("output_rows", id="out", topology_node_type="sink") == 50
    assert metered.value("kafka_consumer.row_kind_count", id="src", kind="i") == 50
    epochs = metered.value("checkpoint_epochs_succeeded")
    assert epochs is not None and epochs >= 1
    for name in ("markers_sent", "acks_received", "finalizers_sent"):
        assert metered.value(f"checkpoint_{name}", id="checkpoint_coordinator") == epochs
    assert metered.value("checkpoint_epochs_in_flight") == 0
    assert metered.histogram("checkpoint_sink_flush", id="out")[0] == epochs
    assert metered.histogram("checkpoint_per_sink_ack_latency", sink_id="out")[0] == epochs
    for node in ("src", "out"):
        assert metered.histogram("elapsed_compute", id=node)[0] == epochs
        assert metered.histogram("output_rows_latency", id=node)[0] == epochs
        assert metered.value("output_rows_rate", id=node) is not None
    names = {one.name for one in metered.receiver.series()}
    assert not any("event_time" in name for name in names)
    assert "streamling_rows_unaccounted" not in names
    assert names <= {f"streamling_{info.name}" for info in METRICS}, "the table of metrics has all of them"


def test_event_time_of_source_transform_and_sink(metered: Metered) -> None:
    """ME-06, ME-10: a filter of the source comes after it."""
    clock = "telemetry: {event_time: {column: at, unit: seconds}}"
    nodes = f"""
transforms: {{t: {{type: sql, primary_key: id, sql: 'SELECT id, at FROM src WHERE id > 2', {clock}}}}}
sinks: {{out: {{type: postgres, schema: public, table: t, primary_key: id, from: t, {clock}}}}}
"""
    metered.run(rows(10), nodes, limit=7, more=f", filter: id <> 10, {clock}")
    for node, count, last in (("src", 10, 1_010_000), ("t", 7, 1_009_000), ("out", 7, 1_009_000)):
        assert metered.histogram("event_time_lag", id=node)[0] == count, node
        assert metered.value("event_time_watermark", id=node) == last, node
    assert metered.value("output_rows", id="src") == 9
    assert metered.value("rows_filtered", id="src") == 1
    assert metered.value("input_rows", id="t") == 9
    assert metered.value("rows_filtered", id="t") == 2


def test_a_wrong_event_time_column_only_warns(metered: Metered) -> None:
    """ME-09."""
    done = metered.run(rows(5), INTO_TABLE, limit=5, more=", telemetry: {event_time: {column: nope, unit: seconds}}")
    assert metered.database.rows("SELECT count(*) FROM t") == [(5,)]
    assert metered.value("event_time_watermark") is None
    assert done.stderr.count("event-time instrumentation is skipped") == 1


def test_a_filter_shows_in_the_counters_and_a_query_in_its_compute_time(metered: Metered) -> None:
    """ME-12, ME-13."""
    sql = "SELECT id, block, length(repeat(text, 8000)) AS n FROM src WHERE block % 2 = 0"
    nodes = f"""
transforms: {{even: {{type: sql, primary_key: id, sql: '{sql}'}}}}
sinks: {{out: {{type: blackhole, from: even}}}}
"""
    metered.run(rows(100), nodes, limit=50)
    assert metered.value("input_rows", id="even") == 100
    assert metered.value("output_rows", id="even") == 50
    assert metered.value("rows_filtered", id="even") == 50
    samples, total = metered.histogram("elapsed_compute", id="even")
    assert total >= 2
    assert samples < 50


def test_unnested_rows_are_more_than_the_input(metered: Metered) -> None:
    """ME-14."""
    nodes = """
transforms: {each: {type: sql, primary_key: id, sql: 'SELECT id, unnest(tags) AS tag FROM src'}}
sinks: {out: {type: blackhole, from: each}}
"""
    metered.run(rows(10), nodes, limit=20)
    assert (metered.value("input_rows", id="each"), metered.value("output_rows", id="each")) == (10, 20)
    assert metered.value("rows_unaccounted", id="each") is None


def test_blocked_time_points_at_the_slow_consumer(metered: Metered) -> None:
    """ME-15, ME-16, ME-17."""
    with recording_server(lambda request: Answer(delay=0.1)) as slow:
        nodes = f"""
transforms:
  shared: {{type: sql, primary_key: id, sql: SELECT * FROM src}}
  fast: {{type: sql, primary_key: id, sql: 'SELECT id, text FROM shared'}}
  slow: {{type: sql, primary_key: id, sql: 'SELECT id, text FROM shared'}}
sinks:
  table: {{type: postgres, schema: public, table: t, primary_key: id, from: fast}}
  hook: {{type: webhook, url: '{slow.url}/x', from: slow, one_row_per_request: true}}
"""
        metered.run(rows(30), nodes, limit=30)
    assert metered.database.rows("SELECT count(*) FROM t") == [(30,)]
    assert metered.value("output_rows", id="src") == 30

    def blocked(node: str, downstream: str) -> float:
        return metered.value("node_wait", state="blocked", id=node, downstream_id=downstream) or 0.0

    assert blocked("shared", "slow") >= 50
    assert blocked("shared", "slow") > blocked("shared", "fast")
    assert blocked("src", "shared") > 0
    assert blocked("slow", "hook") >= 50
    assert blocked("slow", "hook") > blocked("fast", "table")
    requests = metered.value("http_requests", id="hook", outcome="success", status_class="2xx")
    assert requests == 30


@pytest.mark.parametrize("driver_rows", [20_000, 0])
def test_a_sample_per_batch_that_is_decoded_and_encoded_if_they_are_not_denied(
    metered: Metered, driver_rows: int
) -> None:
    """The default denies them. In the driver a batch is an epoch here, and in executors a part of one."""
    sink = f"sinks: {{out: {{type: kafka, topic: {metered.topic()}, data_format: json, from: src, primary_key: id}}}}"
    allowed = {"OPEN_TELEMETRY_METRICS__METRIC_DENY_LIST": "event_time_lag", "EPOCH__DRIVER_ROWS": driver_rows}
    done = metered.run(rows(50), sink, limit=50, **allowed)
    epochs = done.stderr.count("Epoch finalized")
    samples, total = metered.histogram(DECODE, id="src", operator_type="kafka", topology_node_type="source")
    assert 0 < total < 60_000
    assert samples == epochs if driver_rows else samples >= epochs
    samples, total = metered.histogram(ENCODE, id="out", topology_node_type="sink")
    assert samples == epochs
    assert 0 < total < 60_000


def test_nothing_is_measured_of_what_is_denied(metered: Metered) -> None:
    sink = f"sinks: {{out: {{type: kafka, topic: {metered.topic()}, data_format: json, from: src, primary_key: id}}}}"
    metered.run(rows(5), sink, limit=5)
    names = {one.name for one in metered.receiver.series()}
    assert {f"streamling_{DECODE}", f"streamling_{ENCODE}"}.isdisjoint(names)


def test_waits_empty_batches_and_buffers_of_every_node(metered: Metered) -> None:
    """A webhook that takes its time, a query that gives nothing, a source that reads ahead."""
    with recording_server(lambda request: Answer(delay=0.15)) as slow:
        nodes = f"""
transforms:
  none: {{type: sql, primary_key: id, sql: 'SELECT id FROM src WHERE id < 0'}}
  all: {{type: sql, primary_key: id, sql: 'SELECT id, text FROM src'}}
sinks:
  nothing: {{type: blackhole, from: none}}
  hook: {{type: webhook, url: '{slow.url}/x', from: all}}
"""
        done = metered.run(rows(30), nodes, limit=30, BACKPRESSURE_EVENT_THRESHOLD_MS=120)
    epochs = done.stderr.count("Epoch finalized")
    native = {"execution_kind": "native"}
    for node in ("src", "none", "all", "nothing", "hook"):
        assert metered.histogram("node_idle_wait", id=node, **native)[0] == epochs
    for node in ("src", "all"):
        samples, total = metered.histogram("node_backpressure_wait", id=node, **native)
        assert samples == epochs
        assert total >= 150 * epochs
        assert metered.value("node_backpressure_events", id=node, **native) == epochs
    assert metered.receiver.series("streamling_node_backpressure_wait", id="hook") == []
    for node in ("none", "nothing"):
        assert metered.value("node_empty_batch", id=node, **native) == epochs
        assert metered.value("node_empty_streak", id=node, **native) == epochs
    for node in ("src", "all", "hook"):
        assert metered.value("node_empty_batch", id=node) is None
        assert metered.value("node_empty_streak", id=node, **native) == 0
    assert metered.value("node_inflight_buffered", id="src", **native) == 0
    assert metered.value("df_input_rows", id="none") == metered.value("input_rows", id="none") == 30
    assert metered.receiver.series("streamling_df_input_rows", id="hook") == []
    assert metered.value("pipeline_ready", id="checkpoint_coordinator", bounded="false") is not None

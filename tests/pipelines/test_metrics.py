"""The metrics of whole pipelines, as an OTLP receiver gets them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from streamling.telemetry.event_time import EventTimeColumn
from support.clickhouse_server import ClickHouseServer
from support.harness import Workspace
from support.hybrid_samples import History, source
from support.kafka_broker import KafkaBroker
from support.otlp_receiver import Receiver, http_receiver
from support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.spark


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as one:
        yield one


def settings(receiver: Receiver, protocol: str = "", **more: object) -> dict[str, object]:
    return {
        "OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT": receiver.endpoint,
        "OPEN_TELEMETRY_METRICS__ENDPOINT_PROTOCOL": protocol,
        "OPEN_TELEMETRY_METRICS__BATCH_INTERVAL_SECS": 1,
        "APPLICATION_ID": "metered",
        **more,
    }


CHAIN = """
sources:
  numbers:
    type: file
    path: numbers.jsonl
    format: json
    mode: {type: bounded}
    schema: {n: int64, at: int64}
    primary_key: n
    telemetry: {labels: {team: a}, event_time: {column: at, unit: seconds}}
transforms:
  even: {type: sql, primary_key: n, sql: "SELECT n, at FROM numbers WHERE n % 2 = 0"}
  named:
    type: sql
    primary_key: n
    sql: "SELECT n, at, concat('x', cast(n AS string)) AS x FROM even"
    telemetry: {event_time: {column: at, unit: seconds}}
  few: {type: sql, primary_key: n, sql: "SELECT n, at FROM named WHERE n > 10"}
sinks:
  out: {type: blackhole, from: few, telemetry: {event_time: {column: at, unit: seconds}}}
"""
NUMBERS = list(range(100))
EVEN = [n for n in NUMBERS if n % 2 == 0]
FEW = [n for n in EVEN if n > 10]


def write_chain(place: Workspace) -> Workspace:
    rows = "".join(f'{{"n": {n}, "at": {1000 + n}}}\n' for n in range(100))
    (place.directory / "numbers.jsonl").write_text(rows)
    return place.write(CHAIN)


def by_node(receiver: Receiver, name: str) -> dict[str, int]:
    return {one.labels["id"]: int(one.value) for one in receiver.series(f"streamling_{name}")}


@pytest.mark.parametrize("driver_rows", [20_000, 0])
def test_every_node_counts_its_rows_also_queries_between_queries(
    place: Workspace, receiver: Receiver, driver_rows: int
) -> None:
    done = write_chain(place).run(**settings(receiver, EPOCH__DRIVER_ROWS=driver_rows)).succeeded()
    assert by_node(receiver, "output_rows") == {
        "numbers": len(NUMBERS),
        "even": len(EVEN),
        "named": len(EVEN),
        "few": len(FEW),
        "out": len(FEW),
    }, done.stderr
    assert by_node(receiver, "input_rows") == {
        "even": len(NUMBERS),
        "named": len(EVEN),
        "few": len(EVEN),
        "out": len(FEW),
    }
    filtered = {"even": len(NUMBERS) - len(EVEN), "few": len(EVEN) - len(FEW)}
    assert by_node(receiver, "rows_filtered") == filtered
    assert receiver.series("streamling_rows_unaccounted") == []
    assert by_node(receiver, "output_rows_delta") == by_node(receiver, "output_rows")
    assert by_node(receiver, "event_time_watermark") == {"numbers": 1_099_000, "named": 1_098_000, "out": 1_098_000}
    lags = {one.labels["id"]: one.count for one in receiver.series("streamling_event_time_lag")}
    assert lags == {"numbers": 100, "named": len(EVEN), "out": len(FEW)}
    computed = {one.labels["id"] for one in receiver.series("streamling_elapsed_compute")}
    assert computed == {"numbers", "even", "named", "few", "out"}


@pytest.mark.servers
def test_phases_of_a_hybrid_source_count_their_rows_under_their_own_names(
    place: Workspace,
    receiver: Receiver,
    clickhouse: ClickHouseServer,
    kafka: KafkaBroker,
    schema_registry: SchemaRegistry,
) -> None:
    history = History(clickhouse, kafka, schema_registry)
    history.insert(0, 10)
    history.table("later")
    history.insert(100, 7, "later")
    history.produce(200, 5)
    clock = "    telemetry: {labels: {team: shop}, event_time: {column: timestamp, unit: seconds}}\n"
    nodes = "sinks:\n  out: {type: file, from: s, path: out, format: parquet, batch_flush_interval: 200ms}\n"
    place.write(source(history, "blocks", "later", more=clock) + nodes)
    run = place.start_warm(KAFKA_SOURCE__LAG_REPORT_INTERVAL_MS=500, **settings(receiver), **history.settings())
    run.until(lambda: place.count("out", "parquet") >= 22, "all rows")
    lag = "streamling_kafka_consumer.messages_lag"
    run.until(lambda: any(one.value == 0 for one in receiver.series(lag)), "that nothing is left to read")
    run.stop().succeeded()
    phases = {"s_bounded_0": 10, "s_bounded_1": 7, "s_unbounded": 5}
    assert by_node(receiver, "output_rows") == {**phases, "out": 22}
    assert by_node(receiver, "output_rows_delta") == {**phases, "out": 22}
    assert by_node(receiver, "input_rows") == {"out": 22}
    assert receiver.series("streamling_rows_unaccounted") == []
    assert by_node(receiver, "event_time_watermark") == {
        "s_bounded_0": 90_000,
        "s_bounded_1": 1_060_000,
        "s_unbounded": 2_040_000,
    }
    for one in receiver.series("streamling_output_rows", topology_node_type="source"):
        assert one.labels["team"] == "shop"
        assert (one.labels["operator_type"], one.labels["table"]) == ("hybrid", "blocks")
        assert one.labels["topic"] == history.topic
    assert "s_unbounded" in by_node(receiver, "output_rows_rate")
    assert by_node(receiver, "node_inflight_buffered")["s_unbounded"] == 0
    assert [one.labels["id"] for one in receiver.series(lag)] == ["s_unbounded"]


LABELLED = """
import pyarrow as pa

from streamling.plugin import TransformPlugin, register_transform


@register_transform("labelled")
class Labelled(TransformPlugin):
    def output_schema(self):
        return self.context.input_schema

    def labels(self):
        return {"zone": "of the plugin", "owner": "plugin", "id": "mine", "__secret": "x"}

    def process_batch(self, batch):
        self.context.metrics.record_count("seen", batch.num_rows, [("zone", "of the call"), ("own", "tag")])
        return batch.slice(0, batch.num_rows // 2)
"""


@pytest.mark.parametrize("driver_rows", [20_000, 0])
def test_labels_of_a_plugin_are_on_its_row_counters(place: Workspace, receiver: Receiver, driver_rows: int) -> None:
    """Global tags < labels of the file < labels of the plugin; reserved keys are refused."""
    nodes = "transforms: {half: {type: labelled, from: numbers, telemetry: {labels: {zone: file, team: b}}}}\n"
    sinks = "sinks: {out: {type: blackhole, from: half}}\n"
    head = CHAIN[: CHAIN.index("transforms:")]
    write_chain(place).write(head + nodes + sinks, plugin=LABELLED)
    tags = {"OPEN_TELEMETRY_METRICS__GLOBAL_TAGS": "zone:global,team:global,region:eu,id:global"}
    done = place.run(**settings(receiver, EPOCH__DRIVER_ROWS=driver_rows), **tags).succeeded()
    expected = {
        "zone": "of the plugin",
        "team": "b",
        "owner": "plugin",
        "region": "eu",
        "id": "half",
        "type": "labelled",
    }
    for name, value in {"input_rows": 100, "output_rows": 50, "rows_filtered": 50, "seen": 100}.items():
        (found,) = receiver.series(f"streamling_{name}", id="half")
        assert found.value == value, name
        assert {key: found.labels.get(key) for key in expected} == expected, name
        assert (found.labels["operator_type"], "__secret" in found.labels) == ("plugin", False)
    (seen,) = receiver.series("streamling_seen")
    assert seen.labels["own"] == "tag"
    (waits,) = receiver.series("streamling_node_idle_wait", id="half")
    assert waits.labels["execution_kind"] == "plugin"
    (source_rows,) = receiver.series("streamling_output_rows", id="numbers")
    assert (source_rows.labels["zone"], source_rows.labels["team"]) == ("global", "a")
    for key in ("id", "__secret"):
        assert f"the plugin's label '{key}' is dropped" in done.stderr
    assert "sets the label 'zone' to 'of the plugin', which replaces 'file'" in done.stderr


DYING = """
import os
import signal
from pathlib import Path

from streamling.plugin import TransformPlugin, register_transform


@register_transform("dying")
class Dying(TransformPlugin):
    stateless = True

    def output_schema(self):
        return self.context.input_schema

    def process_batch(self, batch):
        died = Path(self.options["died"])
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch
"""
SHARED = """
sources:
  src: {{type: generator, rows: 1000, primary_key: id, columns: {{id: id, at: 1000 + id}}}}
transforms:
  kept:
    type: sql
    primary_key: id
    sql: SELECT id, at FROM src WHERE id % 10 <> 0
    telemetry: {{event_time: {{column: at, unit: seconds}}}}
  some:
    type: sql
    primary_key: id
    sql: SELECT id, at FROM kept WHERE id % 3 = 0 UNION ALL SELECT id, at FROM kept WHERE id % 3 = 1
  dies: {{type: dying, from: some, died: '{died}'}}
sinks:
  out: {{type: file, from: dies, path: out, format: json, batch_flush_interval: 100ms}}
"""


def test_rows_that_executors_keep_are_counted_although_a_worker_dies(place: Workspace, receiver: Receiver) -> None:
    """The second attempt finds the rows of the query already computed."""
    place.write(SHARED.format(died=place.directory / "died"), plugin=DYING)
    done = place.run(**settings(receiver, EPOCH__DRIVER_ROWS=0)).succeeded()
    assert "lost an executor or a Python worker" in done.stderr
    assert by_node(receiver, "output_rows") == {"src": 1000, "kept": 900, "some": 600, "dies": 600, "out": 600}
    assert by_node(receiver, "input_rows") == {"kept": 1000, "some": 900, "dies": 600, "out": 600}
    assert [one.count for one in receiver.series("streamling_event_time_lag")] == [900]
    assert receiver.series("streamling_rows_unaccounted") == []


REJECTING = """
sources:
  src:
    type: file
    path: rows.jsonl
    format: json
    mode: {type: bounded}
    schema: {n: int64}
    primary_key: n
    on_error: skip
    telemetry: {event_time: {column: n, unit: seconds}}
transforms:
  odd:
    type: sql
    primary_key: n
    sql: SELECT n + 0 * (1 / (n % 9)) AS n FROM src UNION ALL SELECT n FROM src WHERE n < 0
    on_error: skip
sinks:
  out: {type: blackhole, from: odd}
"""


def test_what_executors_have_read_is_counted_although_a_query_rejects_rows(
    place: Workspace, receiver: Receiver
) -> None:
    """The query is computed again without these rows, and the source is not read again."""
    lines = [f'{{"n": {n}}}' for n in range(90)] + ["{broken"] * 3
    (place.directory / "rows.jsonl").write_text("\n".join(lines))
    done = place.write(REJECTING).run(**settings(receiver, EPOCH__DRIVER_ROWS=0)).succeeded()
    assert by_node(receiver, "rows_skipped") == {"src": 3, "odd": 10}, done.stderr
    assert by_node(receiver, "output_rows") == {"src": 90, "odd": 80, "out": 80}
    assert [one.count for one in receiver.series("streamling_event_time_lag")] == [90]
    assert receiver.series("streamling_rows_unaccounted") == []


MOST = (1 << 63) - 1
ODD = [MOST, MOST - 700, -1, -MOST - 1, -MOST // 1000, 0, 1999, 9_007_199_254_740_993, MOST // 1000, MOST // 1000 + 1]


@pytest.mark.parametrize("driver_rows", [20_000, 0])
def test_event_times_of_any_value_are_measured_alike_in_the_driver_and_in_executors(
    place: Workspace, receiver: Receiver, driver_rows: int
) -> None:
    """Also of the columns of a generator that one query reads."""
    values = ", ".join(map(str, ODD))
    text = f"""
sources:
  src: {{type: generator, rows: {len(ODD)}, primary_key: id, columns: {{id: id, n: "make_array({values})[id + 1]"}}}}
  clock:
    type: generator
    rows: 50
    primary_key: id
    columns: {{id: id, at: id + 100}}
    telemetry: {{event_time: {{column: at, unit: seconds}}}}
transforms:
  later: {{type: sql, primary_key: id, sql: "SELECT id, at FROM clock WHERE id > 10"}}
"""
    sinks = "sinks:\n  sink: {type: blackhole, from: later}\n"
    units = {"seconds": "s", "milliseconds": "ms", "microseconds": "us"}
    for unit in units:
        clock = f"telemetry: {{event_time: {{column: n, unit: {unit}}}}}"
        text += f'  {unit}: {{type: sql, primary_key: id, sql: "SELECT id, n FROM src", {clock}}}\n'
        sinks += f"  to_{unit}: {{type: blackhole, from: {unit}}}\n"
    place.write(text + sinks).run(**settings(receiver, EPOCH__DRIVER_ROWS=driver_rows)).succeeded()
    rows = pa.record_batch([pa.array(ODD, pa.int64())], ["n"])
    times = {name: EventTimeColumn("n", unit).measure(rows) for name, unit in units.items()}
    lags = {one.labels["id"]: one.count for one in receiver.series("streamling_event_time_lag")}
    assert lags == {"clock": 50, **{name: one.lag.count for name, one in times.items()}}
    marks = {one.labels["id"]: one.value for one in receiver.series("streamling_event_time_watermark")}
    assert marks == {"clock": 149_000, **{name: float(one.watermark_ms or 0) for name, one in times.items()}}

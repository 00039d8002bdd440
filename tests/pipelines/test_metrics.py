"""The metrics of whole pipelines, as an OTLP receiver gets them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.harness import Workspace
from support.otlp_receiver import Receiver, http_receiver

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

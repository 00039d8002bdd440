"""Rows of a large epoch that go from workers to the driver without a query: Java gets binary values, and no rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamling.engine.data import results as results_module
from streamling.engine.data.report_book import ReportBook
from streamling.engine.data.results import EpochTooLarge, NodeRows, Results
from streamling.engine.data.steps import stages as stages_module
from streamling.engine.data.steps.stages import Stages
from streamling.formats.arrow import arrow_schema
from streamling.plan.types import (
    BINARY,
    INT64,
    STRING,
    TIME64,
    TIMESTAMP_UTC,
    Field,
    Schema,
    decimal,
    list_of,
    map_of,
    struct_of,
)

COLUMNS = Schema(
    (
        Field("n", INT64, nullable=False),
        Field("text", STRING),
        Field("bytes", BINARY),
        Field("price", decimal(20, 4)),
        Field("at", TIMESTAMP_UTC),
        Field("time", TIME64),
        Field("tags", list_of(STRING)),
        Field("by_name", map_of(INT64)),
        Field("inner", struct_of(Field("a", INT64), Field("b", list_of(INT64)))),
    )
)
MOMENT = datetime(2024, 2, 29, 12, tzinfo=UTC)


def row(n: int) -> dict[str, Any]:
    if n % 3 == 0:
        return {"n": n}
    some = {"text": f"é{n}", "bytes": b"\0" * n, "price": Decimal(n).scaleb(-4), "at": MOMENT, "time": time(1, 2, 3, n)}
    return {"n": n, **some, "tags": ["x", None], "by_name": [("k", n)], "inner": {"a": None, "b": [n]}}


class Frame:
    """A frame of one partition: what Spark would call in a worker is called here."""

    def __init__(self, batches: list[pa.RecordBatch], schema: Any = None) -> None:
        self.batches = batches
        self.schema = schema

    def mapInArrow(self, function: Callable[..., Iterator[pa.RecordBatch]], schema: Any) -> Frame:
        return Frame(list(function(iter(self.batches))), schema)


def batch(first: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(n) for n in range(first, end)], arrow_schema(COLUMNS))


def node_rows(
    monkeypatch: pytest.MonkeyPatch, *batches: pa.RecordBatch, max_bytes: int | None = None
) -> tuple[NodeRows, list[Frame]]:
    """The rows of a source that workers have read, and the frames that Spark has computed of them."""
    computed: list[Frame] = []

    def stream(frame: Frame) -> Iterator[pa.RecordBatch]:
        computed.append(frame)
        return iter(frame.batches)

    monkeypatch.setattr(results_module, "stream", stream)
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: None)
    node = SimpleNamespace(id="events", schema=COLUMNS, spec=SimpleNamespace(name="events"))
    results = Results(None, None, ReportBook(), large=True, max_bytes=max_bytes)  # type: ignore[arg-type]
    stages = Stages(Frame(list(batches)), ())  # type: ignore[arg-type]
    return NodeRows(results, node, stages=stages), computed  # type: ignore[arg-type]


def test_java_gets_a_binary_value_for_each_batch_and_the_driver_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [batch(0, 10), batch(10, 40).slice(5, 20), batch(0, 0), batch(40, 41)]
    rows, computed = node_rows(monkeypatch, *given)
    found = list(rows.batches())
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(given))
    assert all(one.schema.equals(arrow_schema(COLUMNS)) for one in found)
    ((frame,), values) = computed, [value for one in computed[0].batches for value in one.column(0)]
    assert frame.schema == "batch BINARY"
    assert [type(value) for value in values] == [pa.BinaryScalar] * 3
    assert rows._results.row_counts == {"events": 31}


def test_a_large_batch_becomes_several_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages_module, "_PACKED_BYTES", 2000)
    rows, computed = node_rows(monkeypatch, batch(0, 200))
    assert pa.Table.from_batches(rows.batches()).equals(pa.Table.from_batches([batch(0, 200)]))
    assert len(computed[0].batches) > 5


def test_what_the_driver_should_not_hold_is_measured_in_rows_not_in_values(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = node_rows(monkeypatch, batch(0, 200), batch(0, 200), max_bytes=batch(0, 200).nbytes + 1)
    with pytest.raises(EpochTooLarge, match="'events': its rows"):
        list(rows.batches())

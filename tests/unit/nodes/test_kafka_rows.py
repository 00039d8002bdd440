"""Messages become rows in their order; what is wrong with one makes it a bad row, and no other."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from streamling.connector import BadRow
from streamling.plan.types import OPERATION_FIELD, Field, Schema
from streamling.plan.written_types import declared_type
from streamling.sources.kafka import METADATA
from streamling.sources.kafka.payload import DeclaredPayload, PayloadForm
from streamling.sources.kafka.rows import MessageRows
from streamling.spec.settings.blocks import KafkaConnection


def message(offset: int, value: bytes | None, key: bytes | None = None, time_ms: int = 0) -> Any:
    timestamp = (TIMESTAMP_CREATE_TIME, time_ms)
    return Message(topic="t", partition=3, offset=offset, value=value, key=key, timestamp=timestamp)


def rows(type_: str, *messages: Any, metadata: bool = False) -> list[Any]:
    """Of the column `k`, which is the key."""
    column = Field("k", declared_type(type_))
    columns = Schema((column, *(METADATA if metadata else ()), OPERATION_FIELD))
    payload, connection = DeclaredPayload((column,)), KafkaConnection(brokers="localhost:1")
    found: list[Any] = []
    for item in MessageRows("t", columns, payload, connection, metadata, "delete", ("k",)).rows(messages):
        found.extend([item] if isinstance(item, BadRow) else getattr(item, "to_pylist", list)())
    return found


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        pytest.param("string", b'{"k": "a"}', rb'{"k": "\ud83d"}', id="half of a surrogate pair"),
        pytest.param("Timestamp(Second)", b'{"k": 1}', b'{"k": 1700000000000000000}', id="nanoseconds for seconds"),
        pytest.param("decimal(10,2)", b'{"k": 0e3000000000}', b'{"k": 1e3000000000}', id="huge exponent"),
        pytest.param("int64", b'{"k": 1, "x": %s}' % (b"[" * 5000 + b"]" * 5000), b"9" * 5000, id="deep and long"),
        pytest.param("float32", b"1.5", b"1e39", id="too large for its type"),
        pytest.param("float64", b'{"k": 1.5}', b'{"k": NaN}', id="no JSON"),
    ],
)
def test_a_key_that_does_not_fit_makes_one_bad_row(type_: str, good: bytes, bad: bytes) -> None:
    first, second, third = rows(type_, message(0, None, good), message(1, None, bad), message(2, None, good))
    assert first == third
    assert first["_gs_op"] == "d"
    assert (second.reason, second.source["offset"]) == ("tombstone", 1)
    assert "'k'" in second.message
    second.message.encode()


def test_a_time_that_no_timestamp_can_be_makes_one_bad_row() -> None:
    latest = (2**63 - 1) // 1000
    times = [0, latest + 1, -1, 2**63 - 1, latest]
    messages = [message(n, b'{"k": %d}' % n, time_ms=time) for n, time in enumerate(times)]
    found = rows("int64", *messages[:4], metadata=True)
    assert [row["__kafka_timestamp"] for row in found if not isinstance(row, BadRow)] == [
        dt.datetime(1970, 1, 1),  # noqa: DTZ001 - columns without a zone give such
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),  # noqa: DTZ001
    ]
    bad = [row for row in found if isinstance(row, BadRow)]
    assert [(row.reason, row.source["offset"], row.raw) for row in bad] == [
        ("schema_mismatch", 1, b'{"k": 1}'),
        ("schema_mismatch", 3, b'{"k": 3}'),
    ]
    assert "'__kafka_timestamp'" in bad[0].message


def test_envelopes_and_tombstones_become_changes_in_their_order() -> None:
    columns = Schema((Field("k", declared_type("int64")), Field("v", declared_type("string")), OPERATION_FIELD))
    payload = DeclaredPayload(columns.fields[:-1], PayloadForm.ENVELOPE)
    messages = [
        message(0, b'{"op": "c", "after": {"k": 1, "v": {"x": [1.50]}}, "before": null}'),
        message(1, b'{"op": "d", "before": {"k": 1}, "after": null}'),
        message(2, None, b'{"schema": {"type": "struct"}, "payload": {"k": 2}}'),
        message(3, None, b'{"schema": {"type": "int64"}, "payload": 3}'),
        message(4, b'{"op": "t"}'),
        message(5, None, b'{"schema": null, "payload": null}'),
    ]
    connection = KafkaConnection(brokers="localhost:1")
    found: list[Any] = []
    for item in MessageRows("t", columns, payload, connection, False, "delete", ("k",)).rows(messages):
        found.extend([item] if isinstance(item, BadRow) else item.to_pylist())  # type: ignore[union-attr]
    assert found[:4] == [
        {"k": 1, "v": '{"x": [1.50]}', "_gs_op": "i"},
        {"k": 1, "v": None, "_gs_op": "d"},
        {"k": 2, "v": None, "_gs_op": "d"},
        {"k": 3, "v": None, "_gs_op": "d"},
    ]
    assert [(bad.reason, bad.source["offset"]) for bad in found[4:]] == [("unknown_operation", 4), ("tombstone", 5)]

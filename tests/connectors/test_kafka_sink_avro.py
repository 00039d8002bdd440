"""The Kafka sink with Avro: schemas that it registers, schemas that it finds, and what its own source reads back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import httpx
import pytest

from streamling.connector import BadRow
from streamling.errors import SCHEMA_UNFIT, PermanentError, TransientError, UserError
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPERATION_FIELD,
    STRING,
    TIMESTAMP,
    TIMESTAMP_UTC,
    U256,
    UINT8,
    UINT32,
    UINT64,
    DataType,
    Field,
    Schema,
    decimal,
    decimal_arb,
    list_of,
    map_of,
    struct_of,
)
from support.kafka_broker import KafkaBroker
from support.kafka_sink_samples import committed, decoded, sink, write
from support.kafka_source_samples import everything, source
from support.postgres_samples import ITEMS, TASK, batch, epoch
from support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers
AVRO = ", data_format: avro"
MOMENT = datetime(2026, 1, 31, 12, 30, 15, 123456)  # noqa: DTZ001
# Type, value in a row, value that the source gives.
ALL_TYPES: list[tuple[str, DataType, Any, Any]] = [
    ("flag", BOOLEAN, True, True),
    ("tiny", INT8, -128, -128),
    ("small", INT16, 32767, 32767),
    ("int", INT32, -(2**31), -(2**31)),
    ("long", INT64, 2**63 - 1, 2**63 - 1),
    ("byte", UINT8, 255, 255),
    ("natural", UINT32, 2**32 - 1, 2**32 - 1),
    ("huge", UINT64, Decimal(2**63 - 1), 2**63 - 1),
    ("float", FLOAT32, 1.5, 1.5),
    ("double", FLOAT64, float("inf"), float("inf")),
    ("text", STRING, "é🚀\x00", "é🚀\x00"),
    ("raw", BINARY, b"\x00\xff", b"\x00\xff"),
    ("day", DATE, date(1, 1, 1), date(1, 1, 1)),
    ("at", TIMESTAMP, MOMENT, MOMENT),
    ("instant", TIMESTAMP_UTC, MOMENT.replace(tzinfo=UTC), MOMENT),
    (
        "millis",
        DataType("timestamp", unit="ms"),
        MOMENT.replace(microsecond=123000),
        MOMENT.replace(microsecond=123000),
    ),
    ("money", decimal(38, 10), Decimal("-1234567890123456789012345678.0123456789"), None),
    ("wide", decimal(60, 30), "-1.000000000000000000000000000001", None),
    ("wider", decimal_arb(100, 18), "1.234567890123456789", None),
    ("u256", U256, str(2**256 - 1), None),
    ("tags", list_of(STRING), ["a", None, ""], ["a", None, ""]),
    ("numbers", map_of(decimal_arb(80, 0)), [("k", "7" * 80), ("n", None)], None),
    (
        "point",
        struct_of(Field("x", INT64, False), Field("inner", list_of(struct_of(Field("y", decimal(50, 2)))))),
        {"x": 1, "inner": [{"y": "-0.01"}, None]},
        None,
    ),
]


def test_every_type_comes_back_through_the_source(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    fields = [Field(name, type_) for name, type_, _, _ in ALL_TYPES]
    columns = Schema((Field("id", INT64, nullable=False), *fields, OPERATION_FIELD))
    full = (1, *(value for _, _, value, _ in ALL_TYPES), "i")
    empty = (2, *(None for _ in ALL_TYPES), "d")
    topic = f"{kafka.topic()}.all-types"
    with sink(kafka.brokers, topic, AVRO, columns=columns, registry_url=schema_registry.url) as out:
        write(out, [full, empty], epoch(None, 1), columns)
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as back:
        first, second = everything(back)
    assert not isinstance(first, BadRow) and not isinstance(second, BadRow)
    owed = {name: value if came is None else came for name, _, value, came in ALL_TYPES}
    assert first == {"id": 1, **owed, "_gs_op": "i"}
    assert second == {"id": 2, **dict.fromkeys(owed), "_gs_op": "d"}


def test_a_registered_schema_is_followed(
    kafka: KafkaBroker, schema_registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    given = {
        "type": "record",
        "name": "Given",
        "fields": [
            {"name": "name", "type": ["string", "null"]},
            {"name": "origin", "type": "string", "default": "elsewhere"},
            {"name": "id", "type": "long"},
        ],
    }
    id_ = schema_registry.register(f"{topic}-value", json.dumps(given))
    with sink(kafka.brokers, topic, AVRO, registry_url=schema_registry.url) as out:
        write(out, [(1, None, 3, "i"), (2, "b", None, "d")])
    messages = committed(kafka.brokers, topic)
    assert {(m.value or b"")[:5] for m in messages} == {b"\0" + id_.to_bytes(4)}
    assert decoded(schema_registry.url, messages) == [
        {"name": None, "origin": "elsewhere", "id": 1},
        {"name": "b", "origin": "elsewhere", "id": 2},
    ]
    assert "no field for these columns, which are not written: score, _gs_op" in caplog.text


def test_all_that_does_not_fit_a_registered_schema_is_told_at_once(
    kafka: KafkaBroker, schema_registry: SchemaRegistry
) -> None:
    topic = kafka.topic()
    given = {"type": "record", "name": "G", "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": "long"}]}
    schema_registry.register(f"{topic}-value", json.dumps(given))
    with pytest.raises(UserError) as caught, sink(kafka.brokers, topic, AVRO, registry_url=schema_registry.url):
        pass
    assert caught.value.condition is SCHEMA_UNFIT
    assert [line.strip() for line in caught.value.message.splitlines()] == [
        f"kafka sink 'out': the schema of subject '{topic}-value' does not fit the input:",
        "- column 'id' is int64, and the field is int, which cannot hold all its values",
        "- the field 'x' is required and has no default, and the input has no such column",
    ]


def test_columns_are_added_to_a_schema_if_wanted(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    subject = f"{topic}-value"
    evolving = f"{AVRO}, schema_evolution: additive"
    short = Schema((ITEMS.fields[0], OPERATION_FIELD))
    with sink(kafka.brokers, topic, evolving, columns=short, registry_url=schema_registry.url) as out:
        write(out, [(1, "i")], epoch(None, 1), short)
    with sink(kafka.brokers, topic, evolving, registry_url=schema_registry.url) as out:
        write(out, [(2, "b", 3, "i")], epoch(1, 2))
    for _ in range(2):  # nothing is left to add
        with sink(kafka.brokers, topic, evolving, registry_url=schema_registry.url):
            versions = httpx.get(f"{schema_registry.url}/subjects/{subject}/versions", timeout=20).json()
            assert versions == [1, 2]
    rows = decoded(schema_registry.url, committed(kafka.brokers, topic))
    assert rows == [{"id": 1, "_gs_op": "i"}, {"id": 2, "_gs_op": "i", "name": "b", "score": 3}]
    with source(kafka.brokers, topic, registry_url=schema_registry.url) as back:  # old messages with the new schema
        assert [row["name"] for row in everything(back) if not isinstance(row, BadRow)] == [None, "b"]


def test_a_registry_that_refuses_a_schema_ends_the_run(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    topic = kafka.topic()
    subject = f"{topic}-value"
    names = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
    first = {"type": "record", "name": "R", "fields": [*names, {"name": "score", "type": ["null", "string"]}]}
    schema_registry.compatibility(subject, "NONE")
    schema_registry.register(subject, json.dumps(first))
    schema_registry.register(subject, json.dumps({**first, "fields": names}))
    # The field `score` would have another type than in an older version.
    schema_registry.compatibility(subject, "FULL_TRANSITIVE")
    with pytest.raises(PermanentError, match=f"refuses a schema for subject '{subject}'") as caught:
        with sink(kafka.brokers, topic, f"{AVRO}, schema_evolution: additive", registry_url=schema_registry.url):
            pass
    assert caught.value.condition is SCHEMA_UNFIT


def test_a_registry_that_is_away_is_waited_for(kafka: KafkaBroker) -> None:
    with pytest.raises(TransientError, match=r"the schema registry at http://127\.0\.0\.1:9 does not answer"):
        with sink(kafka.brokers, kafka.topic(), AVRO, registry_url="http://127.0.0.1:9"):
            pass


def test_a_value_that_has_no_place_in_avro_is_a_bad_row(kafka: KafkaBroker, schema_registry: SchemaRegistry) -> None:
    columns = Schema((Field("id", INT64, False), Field("n", UINT64), OPERATION_FIELD))
    rows = [(n, Decimal(2**64 - 1 if n in (70, 71) else n), "i") for n in range(100)]
    topic = kafka.topic()
    more = f"{AVRO}, on_error: skip"
    with sink(kafka.brokers, topic, more, columns=columns, registry_url=schema_registry.url) as out:
        report = out.write(one := epoch(None, 1), TASK, [batch(rows, columns)])
        assert [(bad.index, bad.reason) for bad in report.bad_rows] == [(70, "encode_error"), (71, "encode_error")]
        text = report.bad_rows[0].message
        assert text.startswith(f"topic '{topic}': column 'n' has a value that is out of range for an Avro long")
        out.abort(one)
        write(out, rows[:70] + rows[72:], one, columns)
    assert len(committed(kafka.brokers, topic)) == 98

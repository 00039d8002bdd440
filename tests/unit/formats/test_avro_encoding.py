"""Columns to Avro, all rows at once: an independent reader gets the values back, for every type and for schemas that
others have registered."""

from __future__ import annotations

import io
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.errors import UserError
from streamling.formats.arrow import arrow_schema
from streamling.formats.avro import rows_of
from streamling.formats.avro_derivation import derive_schema, field_name, same_field
from streamling.formats.avro_encoding import CannotEncode
from streamling.formats.avro_fit import fit_columns
from streamling.plan.types import (
    BINARY,
    DATE,
    INT32,
    INT64,
    OPERATION_FIELD,
    STRING,
    TIMESTAMP,
    UINT64,
    DataType,
    Field,
    Schema,
    decimal,
    list_of,
    struct_of,
)
from support.typed_values import CASES


def batch(columns: Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    schema = arrow_schema(columns)
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encoded(columns: Schema, schema: Any, rows: list[tuple[Any, ...]]) -> list[Any]:
    """What a reader finds, given each row twice: within a longer batch, and in one of its own."""
    encoder, misfits = fit_columns(columns, json.dumps(schema))
    assert misfits == ()
    whole = batch(columns, rows)
    values = encoder.encode(whole).to_pylist()
    alone = [encoder.encode(whole.slice(n, 1)).to_pylist()[0] for n in range(len(rows))]
    assert values == alone
    parsed, found = fastavro.parse_schema(schema), []
    for value in values:
        body = io.BytesIO(value)
        found.append(fastavro.schemaless_reader(body, parsed, None))
        assert not body.read()
    return found


@pytest.mark.parametrize(
    ("type_", "values", "owed"), CASES, ids=lambda case: str(case) if isinstance(case, DataType) else ""
)
def test_every_type_survives(type_: DataType, values: st.SearchStrategy[Any], owed: Any) -> None:
    columns = Schema((Field("must", type_, nullable=False), Field("may", type_), OPERATION_FIELD))
    schema = derive_schema(columns, "t", ("must",))

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(values, st.none() | values, st.just("i")), min_size=1, max_size=9))
    def check(rows: list[tuple[Any, ...]]) -> None:
        expected = [tuple(owed(v) if owed and v is not None else v for v in row[:2]) for row in rows]
        found = [(row["must"], row["may"]) for row in encoded(columns, schema, rows)]
        assert found == expected

    check()


def test_the_schema_of_columns() -> None:
    columns = Schema(
        (
            Field("id", INT64, nullable=False),
            Field("a-b.c", STRING),
            Field("1st", DATE),
            Field("at", DataType("timestamp", unit="s")),
            Field("address", struct_of(Field("lines", list_of(struct_of(Field("n", INT32)))))),
            Field("lines", list_of(struct_of(Field("n", INT32)))),
            Field("more", list_of(struct_of(Field("n", INT32)))),
            OPERATION_FIELD,
        )
    )
    null, record = derive_schema(columns, "shop.2-orders", ("id", "a-b.c"))
    assert (null, record["name"]) == ("null", "shop._2_orders")
    assert json.loads(record["doc"]) == {"primaryKeys": ["id", "a_b__c"]}
    fields = {field["name"]: field["type"] for field in record["fields"]}
    assert list(fields) == ["id", "a_b__c", "_1st", "at", "address", "lines", "more", "_gs_op"]
    assert (fields["id"], fields["a_b__c"], fields["_gs_op"]) == ("long", ["null", "string"], "string")
    assert fields["at"] == ["null", {"type": "long", "logicalType": "timestamp-millis"}]
    assert fields["address"][1]["name"] == "shop._2_orders_address"
    inner = fields["address"][1]["fields"][0]["type"][1]["items"][1]["name"]
    assert inner == "shop._2_orders_address_item"
    assert fields["lines"][1]["items"][1]["name"] == "shop._2_orders_item"
    assert fields["more"][1]["items"][1]["name"] == "shop._2_orders_more_item"
    fastavro.parse_schema([null, record])
    # The source finds the same columns and the key.
    rows = rows_of(json.dumps([null, record]))
    assert rows.primary_key == ("id", "a_b__c") and rows.schema.get("_gs_op") == OPERATION_FIELD


def test_names_that_become_the_same_field_are_found() -> None:
    assert field_name("ä.b c") == "___b_c"
    inner = struct_of(Field("x y", INT64), Field("x_y", INT64))
    fields = (Field("a b", INT64), Field("a_b", INT64), Field("s", list_of(inner)))
    assert list(same_field(fields)) == [("a b", "a_b", "a_b"), ("s.x y", "s.x_y", "x_y")]


# Schemas of others


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def test_a_schema_of_others_is_followed_by_name() -> None:
    columns = Schema(
        (
            Field("kind", STRING),
            Field("n", INT32),
            Field("d", decimal(9, 2)),
            Field("raw", BINARY),
            Field("gone", INT64),
            Field("new name", INT64),
            OPERATION_FIELD,
        )
    )
    money = {"type": "fixed", "name": "M", "size": 20, "logicalType": "decimal", "precision": 40, "scale": 4}
    schema = record(
        {"name": "d", "type": [money, "null"]},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["a", "b"]}},
        {"name": "n", "type": ["null", "string", "double"]},
        {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "renamed", "aliases": ["new_name"], "type": "long"},
        {"name": "filled", "type": "string", "default": "usual"},
        {"name": "bytes", "type": ["bytes", "null"], "default": "\u00ff"},
        {"name": "absent", "type": ["int", "null"]},
    )
    rows = [("b", 7, Decimal("-1.25"), b"xy", 1, 5, "i"), ("a", None, None, b"zz", 1, -5, "u")]
    found = encoded(columns, schema, rows)
    rest = {"filled": "usual", "bytes": b"\xff", "absent": None}
    assert found == [
        {"d": Decimal("-1.2500"), "kind": "b", "n": 7.0, "raw": b"xy", "renamed": 5, **rest},
        {"d": None, "kind": "a", "n": None, "raw": b"zz", "renamed": -5, **rest},
    ]
    encoder, _ = fit_columns(columns, json.dumps(schema))
    assert encoder.dropped == ("gone", "_gs_op")


@pytest.mark.parametrize(
    ("type_", "field", "why"),
    [
        (INT64, "int", "column 'c' is int64, and the field is int"),
        (INT64, "double", "and the field is double"),
        (STRING, "bytes", "and the field is bytes"),
        (TIMESTAMP, {"type": "long", "logicalType": "timestamp-millis"}, "is long (timestamp-millis)"),
        (INT64, {"type": "long", "logicalType": "timestamp-micros"}, "is long (timestamp-micros)"),
        (decimal(10, 2), {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "is bytes (decimal)"),
        (struct_of(Field("x", INT64)), record({"name": "y", "type": "long"}), "the field 'c.y' is required"),
        (list_of(INT64), {"type": "array", "items": "int"}, "column 'c[]' is int64"),
        (INT64, ["null", "string", "int"], "the field is string"),
    ],
)
def test_what_does_not_fit_is_told(type_: DataType, field: Any, why: str) -> None:
    schema = record({"name": "c", "type": field}, {"name": "other", "type": "long"})
    _, misfits = fit_columns(Schema((Field("c", type_), OPERATION_FIELD)), json.dumps(schema))
    assert why in misfits[0]
    assert misfits[1] == "the field 'other' is required and has no default, and the input has no such column"


@pytest.mark.parametrize(
    ("type_", "field", "value", "why"),
    [
        (UINT64, "long", Decimal(2**63), "out of range for an Avro long"),
        (INT64, "long", None, "is null, and the Avro schema requires a value"),
        (STRING, {"type": "enum", "name": "K", "symbols": ["a"]}, "b", "is 'b', which is not a symbol"),
        (BINARY, {"type": "fixed", "name": "F", "size": 2}, b"abc", "has 3 bytes"),
        (TIMESTAMP, {"type": "long", "logicalType": "timestamp-nanos"}, datetime(9000, 1, 1), "out of range"),  # noqa: DTZ001
        (list_of(INT64), {"type": "array", "items": "long"}, [1, None], "column 'c[]' is null"),
    ],
)
def test_a_value_that_does_not_fit_is_told(type_: DataType, field: Any, value: Any, why: str) -> None:
    columns = Schema((Field("c", type_), OPERATION_FIELD))
    encoder, misfits = fit_columns(columns, json.dumps(record({"name": "c", "type": field})))
    assert misfits == ()
    with pytest.raises(CannotEncode, match="column 'c") as caught:
        encoder.encode(batch(columns, [(value, "i")]))
    assert why in str(caught.value)


def test_a_schema_that_is_no_record_is_refused() -> None:
    with pytest.raises(UserError, match="must be a record"):
        fit_columns(Schema((OPERATION_FIELD,)), '"string"')


def test_nothing_to_encode_is_fine() -> None:
    columns = Schema((Field("d", DATE), Field("s", list_of(STRING)), OPERATION_FIELD))
    assert encoded(columns, derive_schema(columns, "t", ()), []) == []
    assert encoded(columns, record(), [(date(2026, 1, 1), None, "i")]) == [{}]

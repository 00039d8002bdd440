"""An Avro schema gives columns of our types, or an error that names the part at fault."""

from __future__ import annotations

import json

import pytest

from streamling.errors import SCHEMA_UNUSABLE, UserError
from streamling.formats.avro import AvroRows, rows_of
from streamling.plan.types import Field


def record(*fields: tuple[str, object], **more: object) -> str:
    columns = [{"name": name, "type": type_} for name, type_ in fields]
    return json.dumps({"type": "record", "name": "Row", "fields": columns, **more})


def column(type_: object, *others: tuple[str, object]) -> Field:
    """The column `c` of a record that has it first."""
    found = rows_of(record(("c", type_), *others)).schema.get("c")
    assert found is not None
    return found


def shown(rows: AvroRows) -> list[str]:
    return [f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in rows.schema]


def test_columns_stand_in_the_order_of_the_schema_with_the_operation_last() -> None:
    rows = rows_of(record(("block", "long"), ("id", "string"), ("data", ["null", "string"])))
    assert shown(rows) == ["block int64 not null", "id string not null", "data string", "_gs_op string not null"]
    assert rows.primary_key == ()


def test_an_operation_in_the_payload_is_kept_and_stands_last() -> None:
    rows = rows_of(record(("_gs_op", ["null", "string"]), ("id", "int")))
    assert shown(rows) == ["id int32 not null", "_gs_op string"]


@pytest.mark.parametrize("type_", ["long", "null", {"type": "record", "name": "O", "fields": []}])
def test_an_operation_that_is_not_text_is_refused(type_: object) -> None:
    with pytest.raises(UserError, match="`_gs_op` must be text") as caught:
        rows_of(record(("_gs_op", type_), ("id", "int")))
    assert caught.value.condition is SCHEMA_UNUSABLE


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("null", "null"),
        ("boolean", "boolean"),
        ("int", "int32"),
        ("long", "int64"),
        ("float", "float32"),
        ("double", "float64"),
        ("bytes", "binary"),
        ("string", "string"),
        ({"type": "string"}, "string"),
        ({"type": {"type": "long"}}, "int64"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "F", "size": 20}, "binary(20)"),
        ({"type": "array", "items": "long"}, "list<int64>"),
        ({"type": "array", "items": ["null", {"type": "map", "values": "int"}]}, "list<map<string, int32>>"),
        ({"type": "int", "logicalType": "date"}, "date32"),
        ({"type": "int", "logicalType": "time-millis"}, "time32"),
        ({"type": "long", "logicalType": "time-micros"}, "time64"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp(ms)"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, "timestamp(ns)"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "binary(16)"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "duration"),
        ({"type": "bytes", "logicalType": "big-decimal"}, "binary"),
        ({"type": "int", "logicalType": "timestamp-millis"}, "int32"),
        ({"type": "long", "logicalType": "of tomorrow"}, "int64"),
    ],
)
def test_a_type_has_its_counterpart(type_: object, expected: str) -> None:
    assert str(column(type_).type) == expected


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [
        (38, 9, "decimal(38,9)"),
        (76, 0, "decimal(76,0)"),
        (77, 0, "u256"),
        (78, 0, "u256"),
        (78, 2, "decimal_arb(78,2)"),
        (65_535, 0, "decimal_arb(65535,0)"),
        (65_536, 0, "binary"),
        (0, 0, "binary"),
        (4, 5, "binary"),
        (4, -1, "binary"),
        ("4", 0, "binary"),
    ],
)
def test_decimals_of_any_width_and_bytes_where_they_make_no_sense(precision: object, scale: int, expected: str) -> None:
    assert str(column({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}).type) == (
        expected
    )


def test_a_decimal_may_be_fixed_and_its_scale_left_out() -> None:
    type_ = {"type": "fixed", "name": "D", "size": 9, "logicalType": "decimal", "precision": 20}
    assert str(column(type_).type) == "decimal(20,0)"


def test_nested_records_are_structs_whose_fields_keep_their_nullability() -> None:
    inner = {
        "type": "record",
        "name": "Address",
        "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "string"]}],
    }
    found = column(inner)
    assert [(f.name, str(f.type), f.nullable) for f in found.type.fields] == [
        ("city", "string", False),
        ("zip", "string", True),
    ]


X = {"name": "x", "type": "int"}


def test_a_union_of_several_types_is_a_struct_with_one_field_per_branch() -> None:
    found = column(["null", "int", {"type": "record", "name": "a.b.Point", "fields": [X]}, "string"])
    assert found.nullable
    assert str(found.type) == "struct<int: int32, Point: struct<x: int32>, string: string>"


def test_branches_of_one_short_name_are_told_apart() -> None:
    first = {"type": "record", "name": "P", "namespace": "a", "fields": [X]}
    found = column([first, {**first, "namespace": "b"}])
    assert [f.name for f in found.type.fields] == ["P", "P_2"]


def test_a_named_type_may_be_mentioned_again_with_or_without_its_namespace() -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    text = record(("a", money), ("b", ["null", "Money"]), ("c", "shop.Money"), namespace="shop")
    assert {str(f.type) for f in rows_of(text).schema if f.name != "_gs_op"} == {"struct<cents: int64>"}


def test_a_type_may_come_from_another_schema() -> None:
    money = json.dumps({"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]})
    rows = rows_of(record(("price", "shop.Money")), references=[money])
    assert str(rows.schema.fields[0].type) == "struct<cents: int64>"


def test_a_root_union_with_null_counts_as_its_record() -> None:
    assert rows_of(f'["null", {record(("id", "long"))}]').schema.names == ("id", "_gs_op")


@pytest.mark.parametrize("name", ["doc", "connect.doc"])
def test_the_key_is_read_from_the_documentation(name: str) -> None:
    rows = rows_of(record(("a", "int"), ("b", "int"), **{name: '{"primaryKeys": ["a", "b"]}'}))
    assert rows.primary_key == ("a", "b")


@pytest.mark.parametrize("doc", ["orders of the shop", '{"primaryKeys": "a"}', "[]", '{"primaryKeys": []}', 7, None])
def test_a_documentation_for_people_names_no_key(doc: object) -> None:
    assert rows_of(record(("a", "int"), doc=doc)).primary_key == ()


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("{not json", "not JSON"),
        ('"string"', "must be a record"),
        ('["null", "string"]', "must be a record"),
        (f"[{record(('a', 'int'))}, {record(('b', 'int'))}]", "must be a record"),
        (f'["string", {record(("a", "int"))}]', "must be a record"),
        (record(("a", "Unheard")), "`a` has the type 'Unheard', which the schema does not define"),
        (record(("a", {"type": "array", "items": "Row"})), "`a[]` has the type 'Row', which contains itself"),
        (record(("a", 7)), "`a` has the type 7"),
        (record(("a", {"type": "map", "values": {"type": "banana"}})), "`a{}`"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "without name or type"),
    ],
)
def test_a_schema_without_columns_says_why(text: str, fragment: str) -> None:
    with pytest.raises(UserError) as caught:
        rows_of(text)
    assert caught.value.code == "SCHEMA_UNUSABLE"
    assert fragment in caught.value.message

"""Avro bodies become rows: any schema, any values, as fastavro wrote them; a damaged body is bad alone."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.errors import SCHEMA_UNUSABLE, UserError
from streamling.formats.avro import expand_schema, rows_of
from streamling.formats.avro_messages import BodyDecoder
from streamling.formats.bodies import BadBody
from support.avro_samples import BEGIN, KINDS, Kind, body, decoder, field, record, records, rows, twos_complement

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}],
    }
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(records(KINDS), st.data())
def test_any_rows_of_any_schema_are_read_as_they_were_written(kind: Kind, data: st.DataObject) -> None:
    schema, values = kind
    pairs = data.draw(st.lists(values, min_size=1, max_size=5))
    assert rows(decoder(schema), [body(schema, datum) for datum, _ in pairs]) == [expected for _, expected in pairs]


@pytest.mark.parametrize("logical", ["uuid", None])
@pytest.mark.parametrize("around", ["map", "field"])
def test_a_record_that_is_null_has_no_fields_to_be_checked(around: str, logical: str | None) -> None:
    """The reader puts an empty text for the field of a missing record, which is not a UUID."""
    text = {"type": "string", "logicalType": logical} if logical else "string"
    record = ["null", {"type": "record", "name": "Inner", "fields": [{"name": "id", "type": text}]}]
    type_ = {"type": "map", "values": record} if around == "map" else record
    schema = {"type": "record", "name": "Outer", "fields": [{"name": "f", "type": type_}]}
    id_ = "0f8fad5b-d9cb-469f-a165-70867728950e"
    values = [{"": None}, {"a": {"id": id_}, "b": None}] if around == "map" else [None, {"id": id_}]
    expected = [[("", None)], [("a", {"id": id_}), ("b", None)]] if around == "map" else values
    found = rows(decoder(schema), [body(schema, {"f": value}) for value in values])
    assert found == [{"f": value} for value in expected]


GOOD = [body(json.loads(ORDER), {"id": n, "text": f"text {n}"}) for n in range(9)]
OTHER = body({"type": "record", "name": "O", "fields": [{"name": "x", "type": "double"}]}, {"x": 1.5})


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({0: GOOD[0] + b"xx"}, id="trailing, first"),
        pytest.param({4: GOOD[4] + b"xx"}, id="trailing, middle"),
        pytest.param({8: GOOD[8] + b"xx"}, id="trailing, last"),
        pytest.param({3: b""}, id="empty"),
        pytest.param({5: GOOD[5][:-2]}, id="truncated"),
        pytest.param({2: OTHER}, id="of another schema"),
        pytest.param({2: GOOD[2] + GOOD[3], 3: b""}, id="two in one, then none"),
        pytest.param({0: b"", 1: OTHER, 7: GOOD[7][:1], 8: GOOD[8] + b"\0"}, id="many"),
        pytest.param(dict.fromkeys(range(9), OTHER), id="all"),
    ],
)
def test_a_damaged_body_is_bad_and_leaves_the_others_alone(damage: dict[int, bytes]) -> None:
    found = rows(decoder(ORDER), [damage.get(n, good) for n, good in enumerate(GOOD)])
    assert [n for n, row in enumerate(found) if isinstance(row, BadBody)] == sorted(damage)
    assert all(row == {"id": n, "text": f"text {n}"} for n, row in enumerate(found) if n not in damage)


STATE = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}


@pytest.mark.parametrize(
    ("writer", "datum", "reader", "expected"),
    [
        pytest.param(field("a", "int"), 5, field("a", "long"), 5, id="int to long"),
        pytest.param(field("a", "int"), 5, field("a", "float"), 5.0, id="int to float"),
        pytest.param(field("a", "long"), 2**53 + 1, field("a", "double"), 2.0**53, id="long to double"),
        pytest.param(field("a", "float"), 1.5, field("a", "double"), 1.5, id="float to double"),
        pytest.param(field("a", "string"), "ü", field("a", "bytes"), "ü".encode(), id="string to bytes"),
        pytest.param(field("a", "bytes"), "ü".encode(), field("a", "string"), "ü", id="bytes to string"),
        pytest.param(field("a", "int"), 5, field("a", ["null", "long"]), 5, id="to nullable"),
        pytest.param(field("a", ["null", "int"]), 5, field("a", "long"), 5, id="from nullable"),
        pytest.param(field("old", "int"), 5, field("a", "int", aliases=["old"]), 5, id="alias"),
        pytest.param(field("b", "int"), 5, field("a", "long", default=7), 7, id="default"),
        pytest.param(field("b", "int"), 5, field("a", ["null", "long"], default=None), None, id="default null"),
        pytest.param(field("b", "int"), 5, field("a", "bytes", default="\u00ff"), b"\xff", id="default bytes"),
        pytest.param(
            field("b", "int"),
            5,
            field("a", {"type": "array", "items": "int"}, default=[1, 2]),
            [1, 2],
            id="default list",
        ),
        pytest.param(
            field("b", "int"),
            5,
            field("a", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, default="\u0001\u0000"),
            Decimal("2.56"),
            id="default decimal",
        ),
        pytest.param(
            field("b", "int"),
            5,
            field("a", record(field("x", "int"), field("y", "string", default="y"), name="In"), default={"x": 1}),
            {"x": 1, "y": "y"},
            id="default record",
        ),
        pytest.param(
            field("a", record(field("x", "int"), field("z", "int"), name="In")),
            {"x": 1, "z": 2},
            field("a", record(field("x", "long"), field("y", ["null", "string"], default=None), name="In")),
            {"x": 1, "y": None},
            id="nested record",
        ),
        pytest.param(
            field("a", {"type": "array", "items": "int"}),
            [1, 2],
            field("a", {"type": "array", "items": ["null", "double"]}),
            [1.0, 2.0],
            id="items",
        ),
        pytest.param(field("a", STATE), "B", field("a", {**STATE, "symbols": ["B"]}), "B", id="fewer symbols"),
        pytest.param(
            field("a", STATE), "C", field("a", {**STATE, "symbols": ["B"], "default": "B"}), "B", id="symbol default"
        ),
        pytest.param(
            field("a", "int"), 5, field("a", ["null", "string", "int"]), {"string": None, "int": 5}, id="to a union"
        ),
        pytest.param(
            field("a", ["string", "int"]),
            5,
            field("a", ["null", "long", "string"]),
            {"long": 5, "string": None},
            id="union to union",
        ),
        pytest.param(
            field("a", {"type": "long", "logicalType": "timestamp-millis"}),
            1500,
            field("a", {"type": "long", "logicalType": "timestamp-micros"}),
            BEGIN + dt.timedelta(seconds=1.5),
            id="finer times",
        ),
        pytest.param(
            field("a", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
            b"\x01",
            field("a", {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}),
            "0.01",
            id="more digits",
        ),
    ],
)
def test_rows_of_another_schema_are_resolved(writer: Any, datum: Any, reader: Any, expected: Any) -> None:
    found = rows(decoder(record(writer), record(reader, name="Other")), [body(record(writer), {writer["name"]: datum})])
    assert found == [{"a": expected}]


@pytest.mark.parametrize(
    ("writer", "datums", "reader", "words"),
    [
        pytest.param(field("a", ["null", "int"]), [1, None], field("a", "int"), "'a' is null", id="null"),
        pytest.param(
            field("a", STATE), ["B", "A"], field("a", {**STATE, "symbols": ["B"]}), "'A' is not a symbol", id="symbol"
        ),
        pytest.param(field("a", "bytes"), [b"a", b"\xff"], field("a", "string"), "UTF8", id="not UTF-8"),
        pytest.param(
            field("a", ["string", "int"]), [1, "a"], field("a", "int"), "written as string", id="another branch"
        ),
    ],
)
def test_a_value_that_the_reader_cannot_hold_is_bad_alone(writer: Any, datums: Any, reader: Any, words: str) -> None:
    bodies = [body(record(writer), {"a": datum}) for datum in datums]
    first, second = rows(decoder(record(writer), record(reader)), bodies)
    assert not isinstance(first, BadBody)
    assert second.reason == "schema_mismatch"
    assert words in second.message


def test_schemas_that_do_not_fit_make_every_row_bad() -> None:
    writer = record(field("a", "string"))
    (bad,) = rows(decoder(writer, record(field("a", "int"))), [body(writer, {"a": "x"})])
    assert bad == BadBody("schema_mismatch", "'a' was written as string and cannot be read as int32")
    (bad,) = rows(decoder(writer, record(field("b", "int"))), [body(writer, {"a": "x"})])
    assert bad.message == "'b' is missing in the writer schema, and has no default"


def test_without_resolution_columns_go_by_name_alone() -> None:
    writer = record(field("a", "string"), field("b", "int"))
    reader = record(field("b", "int"), field("c", ["null", "int"], default=None), field("a", ["null", "string"]))
    content = [body(writer, {"a": "x", "b": 1})]
    assert rows(decoder(writer, reader, by_name=True), content) == [{"b": 1, "c": None, "a": "x"}]
    (bad,) = rows(decoder(writer, record(field("d", "int", default=5)), by_name=True), content)
    assert "may not be null" in bad.message


def test_a_root_that_may_be_null_is_read_and_null_is_bad() -> None:
    root = ["null", record(field("a", "int"))]
    first, second = rows(decoder(root), [body(root, {"a": 1}), body(root, None)])
    assert first == {"a": 1}
    assert second == BadBody("schema_mismatch", "the payload is null, not a record")


def test_types_of_other_schemas_are_known() -> None:
    address = '{"type": "record", "name": "shop.Address", "fields": [{"name": "city", "type": "string"}]}'
    order = json.dumps(
        {
            "type": "record",
            "name": "shop.Order",
            "fields": [field("from", "Address"), field("to", ["null", "shop.Address"])],
        }
    )
    schema = expand_schema(order, (address,))
    content = b"\x08Oslo\x02\x08Rome"
    assert rows(BodyDecoder(schema, schema), [content]) == [{"from": {"city": "Oslo"}, "to": {"city": "Rome"}}]


def test_fields_that_are_always_null_have_no_bytes() -> None:
    schema = record(field("a", "null"), field("b", "int"))
    assert rows(decoder(schema), [body(schema, {"a": None, "b": 1})]) == [{"a": None, "b": 1}]
    nothing = record(field("a", "null"))
    assert rows(decoder(nothing), [b"", b""]) == [{"a": None}, {"a": None}]
    assert isinstance(rows(decoder(nothing), [b"x"])[0], BadBody)


def test_durations_without_a_length_are_bad_alone() -> None:
    duration = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
    schema = record(field("a", ["null", duration]))
    parts = [(0, 1, 500), (1, 0, 0), (0, 2**32 - 1, 0)]
    values = [b"".join(part.to_bytes(4, "little") for part in one) for one in parts]
    first, months, long, none = rows(decoder(schema), [body(schema, {"a": value}) for value in (*values, None)])
    assert (first, none) == ({"a": dt.timedelta(days=1, milliseconds=500)}, {"a": None})
    assert (months.reason, long.reason) == ("schema_mismatch", "schema_mismatch")
    assert "months" in months.message
    assert "longer than" in long.message


@pytest.mark.parametrize(
    ("type_", "words"),
    [
        pytest.param({"type": "array", "items": "null"}, "`a[]` has no bytes", id="list of null"),
        pytest.param({"type": "map", "values": record(name="E")}, "`a{}` has no bytes", id="map of nothing"),
        pytest.param(
            {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "`a[]` has no bytes", id="fixed of 0"
        ),
        pytest.param(["null", record(name="E")], "`a` may be a record without bytes", id="nothing or null"),
        pytest.param(["null", "R"], "contains itself; recursive types cannot be columns", id="recursive"),
        pytest.param({"type": "array", "items": "R"}, "contains itself", id="recursive, in a list"),
    ],
)
def test_types_that_cannot_be_columns_are_named(type_: Any, words: str) -> None:
    schema = record(field("a", type_))
    with pytest.raises(UserError) as caught:
        rows_of(json.dumps(schema))
    assert caught.value.condition is SCHEMA_UNUSABLE
    assert words in caught.value.message
    with pytest.raises(UserError):
        decoder(schema)


def test_a_union_of_records_is_a_struct_of_them() -> None:
    """With attributes that only producers know, which the reader would take for part of the types."""
    card = {**record(field("number", "string", doc="d"), name="pay.Card"), "doc": "d", "connect.name": "c"}
    cash = {"type": "enum", "name": "pay.Cash", "symbols": ["COIN", "NOTE"], "default": "COIN", "x": [1]}
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    schema = record(field("by", ["null", card, cash, amount], default=None), name="pay.Payment")
    bodies = [body(schema, {"by": by}) for by in ((1, {"number": "1"}), (2, "NOTE"), (3, b"\x05"), (0, None))]
    empty = {"Card": None, "Cash": None, "bytes": None}
    assert rows(decoder(schema), bodies) == [
        {"by": {**empty, "Card": {"number": "1"}}},
        {"by": {**empty, "Cash": "NOTE"}},
        {"by": {**empty, "bytes": Decimal("0.05")}},
        {"by": None},
    ]


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


def money(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


NESTED: dict[str, Any] = {
    "alone": (lambda type_: type_, lambda value: value),
    "nullable": (lambda type_: ["null", type_], lambda value: value),
    "in a list": (lambda type_: {"type": "array", "items": type_}, lambda value: [value]),
    "in a map": (lambda type_: {"type": "map", "values": type_}, lambda value: {"k": value}),
    "in a record": (lambda type_: record(field("x", type_), name="In"), lambda value: {"x": value}),
    "in a union": (lambda type_: ["null", "boolean", type_], lambda value: (2, value)),
}


@pytest.mark.parametrize("where", NESTED)
@pytest.mark.parametrize(
    ("type_", "good", "bad", "words"),
    [
        *(
            pytest.param(
                money(p, s), twos_complement(10**p - 1), twos_complement(n), "'", id=f"decimal({p},{s}) {sign}"
            )
            for p, s in ((10, 2), (38, 0), (50, 2), (76, 76), (77, 0), (78, 0), (100, 3))
            for sign, n in (("over", 10**p), ("under", -(10**p)), ("far over", 10**400))
        ),
        pytest.param(logical("int", "time-millis"), 86_399_999, 86_400_000, "not a time of day", id="a day"),
        pytest.param(logical("int", "time-millis"), 0, -1, "not a time of day", id="before midnight"),
        pytest.param(
            logical("long", "time-micros"), 86_399_999_999, 86_400_000_000, "not a time of day", id="a long day"
        ),
        pytest.param(logical("long", "time-micros"), 0, -(2**63), "not a time of day", id="long before midnight"),
        pytest.param(logical("long", "timestamp-millis"), 0, 2**62, "out of bounds", id="too far away"),
        pytest.param(
            logical("string", "uuid"),
            "00000000-0000-0000-0000-00000000000a",
            "a",
            "not a valid UUID",
            id="not a valid UUID",
        ),
    ],
)
def test_a_value_beyond_its_type_is_bad_alone(type_: Any, good: Any, bad: Any, words: str, where: str) -> None:
    wrap, put = NESTED[where]
    schema = record(field("before", "int"), field("a", wrap(type_)))
    bodies = [body(schema, {"before": n, "a": put(one)}) for n, one in enumerate((good, bad, good, bad))]
    found = rows(decoder(schema), bodies)
    assert [row["before"] for row in (found[0], found[2])] == [0, 2]
    assert found[0]["a"] == found[2]["a"] is not None
    assert {type(row) for row in (found[1], found[3])} == {BadBody}
    assert "'a" in found[1].message
    assert words in found[1].message


@pytest.mark.parametrize("count", [4300, 4301, 20_000, 65_535])
@pytest.mark.parametrize("sign", [1, -1])
def test_decimals_have_as_many_digits_as_their_type_says(count: int, sign: int) -> None:
    schema = record(field("a", money(count, 3)))
    text = ("1234567890" * 6554)[:count]
    number = sign * int(Decimal(text))
    good, over = rows(decoder(schema), [body(schema, {"a": twos_complement(n)}) for n in (number, 10 * number)])
    assert good == {"a": f"{'-' if sign < 0 else ''}{text[:-3]}.{text[-3:]}"}
    assert over.reason == "schema_mismatch"
    assert f"more than the {count} digits" in over.message


@pytest.mark.parametrize(
    "text",
    [
        "0123abcd-0123-abcd-ef01-23456789abcd",
        "0123ABCD-0123-ABCD-EF01-23456789ABCD",
        "0123abcd0123abcdef0123456789abcd",
        "{0123abcd-0123-abcd-ef01-23456789abcd}",
        "urn:uuid:0123abcd-0123-abcd-ef01-23456789abcd",
    ],
)
def test_uuids_are_in_canonical_form(text: str) -> None:
    schema = record(field("a", ["null", logical("string", "uuid")]))
    found = rows(decoder(schema), [body(schema, {"a": value}) for value in (text, None)])
    assert found == [{"a": "0123abcd-0123-abcd-ef01-23456789abcd"}, {"a": None}]


def test_the_earliest_nanoseconds_are_cut_towards_the_past() -> None:
    schema = record(field("a", logical("long", "timestamp-nanos")))
    (found,) = rows(decoder(schema), [body(schema, {"a": -(2**63)})])
    assert found == {"a": BEGIN + dt.timedelta(microseconds=-(2**63) // 1000)}


def test_unions_of_one_type_are_that_type() -> None:
    inner = record(field("x", ["string"]), name="In")
    schema = record(field("a", ["long"]), field("b", [inner]), field("c", {"type": "array", "items": ["int"]}))
    value = {"a": (0, 5), "b": (0, {"x": (0, "x")}), "c": [(0, 1), (0, 2)]}
    assert rows(decoder(schema), [body(schema, value)]) == [{"a": 5, "b": {"x": "x"}, "c": [1, 2]}]


def test_bad_bodies_among_thousands_are_found_without_reading_each() -> None:
    """Were they read one by one, it would take a minute."""
    schema = json.loads(ORDER)
    bodies = [body(schema, {"id": n, "text": "x"}) + b"\0" * (n % 3 > 0) for n in range(9000)]
    found = rows(decoder(schema), bodies)
    assert [n for n, row in enumerate(found) if isinstance(row, BadBody)] == [n for n in range(9000) if n % 3]
    assert [row["id"] for row in found if not isinstance(row, BadBody)] == list(range(0, 9000, 3))
    assert found[1].message == "the payload does not match its Avro schema: it should end after 3 bytes, and has 4"

"""Avro bodies become rows: any schema, any values, as fastavro wrote them; a damaged body is bad alone."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamling.errors import SCHEMA_UNUSABLE, UserError
from streamling.formats.avro import byteless, expanded, rows_of
from streamling.formats.avro_blocks import number
from streamling.formats.avro_messages import BodyDecoder
from streamling.formats.bodies import BadBody

Pair = tuple[Any, Any]
"""What fastavro writes, and what is expected of it."""
Kind = tuple[Any, st.SearchStrategy[Pair]]
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}],
    }
)
BEGIN = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - columns without a zone give such


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Pair]:
    return values.map(lambda value: (value, value))


def twos_complement(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Pair]:
    def pair(unscaled: int) -> Pair:
        value = Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
        text = f"{value:f}" if unscaled else "0"
        # As bytes: the library rounds what is longer than its context.
        return twos_complement(unscaled), value if precision <= 38 else text

    return st.integers(-(10**precision) + 1, 10**precision - 1).map(pair)


PRECISIONS = st.one_of(st.integers(1, 100), st.sampled_from([38, 39, 76, 77, 78, 500]))


@st.composite
def decimal_kinds(draw: st.DrawFn) -> Kind:
    precision = draw(PRECISIONS)
    scale = draw(st.integers(0, precision))
    logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
    values = decimals(precision, scale)
    if draw(st.booleans()):
        return {"type": "bytes", **logical}, values
    size = len(twos_complement(10**precision)) + draw(st.integers(0, 3))
    schema = {"type": "fixed", "name": f"D{draw(st.uuids()).hex}", "size": size, **logical}
    return schema, values.map(lambda pair: (padded(pair[0], size), pair[1]))


def padded(number: bytes, size: int) -> bytes:
    return number.rjust(size, b"\xff" if number[0] & 0x80 else b"\0")


MOMENTS = st.integers(-(2**51), 2**52)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def moments(logical: str, step: int) -> Kind:
    def pair(microseconds: int) -> Pair:
        count = microseconds // step
        return count, BEGIN + count * dt.timedelta(microseconds=step)

    return {"type": "long", "logicalType": logical}, MOMENTS.map(pair)


def nanos(logical: str) -> Kind:
    """What is finer than a microsecond is cut off, towards the past."""

    def pair(nanoseconds: int) -> Pair:
        return nanoseconds, BEGIN + dt.timedelta(microseconds=nanoseconds // 1000)

    return {"type": "long", "logicalType": logical}, st.integers(-(2**62), 2**62).map(pair)


LEAVES = st.one_of(
    st.sampled_from(
        [
            ("boolean", same(st.booleans())),
            ("int", same(st.integers(-(2**31), 2**31 - 1))),
            ("long", same(st.integers(-(2**63), 2**63 - 1))),
            ("float", same(st.floats(width=32, allow_nan=False))),
            ("double", same(st.floats(allow_nan=False))),
            ("string", same(TEXT)),
            ("bytes", same(st.binary(max_size=8))),
            ({"type": "string", "logicalType": "uuid"}, same(st.uuids().map(str))),
            ({"type": "string", "logicalType": "unheard-of"}, same(TEXT)),
            (
                {"type": "int", "logicalType": "date"},
                st.integers(-30000, 30000).map(lambda n: (n, dt.date(1970, 1, 1) + dt.timedelta(days=n))),
            ),
            (
                {"type": "int", "logicalType": "time-millis"},
                st.integers(0, 86_399_999).map(lambda n: (n, (BEGIN + dt.timedelta(milliseconds=n)).time())),
            ),
            (
                {"type": "long", "logicalType": "time-micros"},
                st.integers(0, 86_399_999_999).map(lambda n: (n, (BEGIN + dt.timedelta(microseconds=n)).time())),
            ),
            ({"type": "bytes", "logicalType": "big-decimal"}, same(st.binary(max_size=8))),
            ("null", st.just((None, None))),
            nanos("timestamp-nanos"),
            nanos("local-timestamp-nanos"),
            moments("timestamp-millis", 1000),
            moments("timestamp-micros", 1),
            moments("local-timestamp-millis", 1000),
            moments("local-timestamp-micros", 1),
        ]
    ),
    decimal_kinds(),
)


@st.composite
def named(draw: st.DrawFn) -> Kind:
    name = f"N{draw(st.uuids()).hex}"
    if draw(st.booleans()):
        symbols = [f"S{n}" for n in range(draw(st.integers(1, 4)))]
        return {"type": "enum", "name": name, "symbols": symbols}, same(st.sampled_from(symbols))
    if draw(st.booleans()):
        return {"type": "fixed", "name": name, "size": 12, "logicalType": "duration"}, DURATIONS
    size = draw(st.sampled_from([1, 5, 16]))
    uuid = {"logicalType": "uuid"} if size == 16 else {}
    return {"type": "fixed", "name": name, "size": size, **uuid}, same(st.binary(min_size=size, max_size=size))


DURATIONS = st.tuples(st.integers(0, 100_000_000), st.integers(0, 2**32 - 1)).map(
    lambda parts: (
        bytes(4) + parts[0].to_bytes(4, "little") + parts[1].to_bytes(4, "little"),
        dt.timedelta(days=parts[0], milliseconds=parts[1]),
    )
)


def nullable(kind: Kind) -> Kind:
    return ["null", kind[0]], st.one_of(st.just((None, None)), kind[1])


def listed(kind: Kind) -> Kind:
    pairs = st.lists(kind[1], max_size=3)
    return {"type": "array", "items": kind[0]}, pairs.map(lambda ps: ([p[0] for p in ps], [p[1] for p in ps]))


def mapped(kind: Kind) -> Kind:
    pairs = st.dictionaries(TEXT, kind[1], max_size=3)
    return {"type": "map", "values": kind[0]}, pairs.map(
        lambda ps: ({k: p[0] for k, p in ps.items()}, [(k, p[1]) for k, p in ps.items()])
    )


@st.composite
def records(draw: st.DrawFn, inner: st.SearchStrategy[Kind], least: int = 1) -> Kind:
    kinds = {f"f{n}": draw(inner) for n in range(draw(st.integers(least, 4)))}
    fields = [{"name": name, "type": schema} for name, (schema, _) in kinds.items()]
    pairs = st.fixed_dictionaries({name: values for name, (_, values) in kinds.items()})
    return {"type": "record", "name": f"R{draw(st.uuids()).hex}", "fields": fields}, pairs.map(
        lambda ps: ({n: p[0] for n, p in ps.items()}, {n: p[1] for n, p in ps.items()})
    )


@st.composite
def unions(draw: st.DrawFn, inner: st.SearchStrategy[Kind]) -> Kind:
    """A struct with a field per branch. A union has each kind of type once, but for named types."""
    kinds = draw(st.lists(inner, min_size=2, max_size=4, unique_by=lambda kind: branch_name(kind[0])))
    names = [branch_name(schema) for schema, _ in kinds]

    def filled(index: int) -> st.SearchStrategy[Pair]:
        empty: dict[str, Any] = dict.fromkeys(names)
        return kinds[index][1].map(lambda pair: ((index, pair[0]), {**empty, names[index]: pair[1]}))

    values = [filled(n) for n in range(len(kinds))]
    if not draw(st.booleans()):
        return [schema for schema, _ in kinds], st.one_of(values)
    place = draw(st.integers(0, len(kinds)))
    schemas = [schema for schema, _ in kinds]
    shifted = [v.map(lambda pair: ((pair[0][0] + (pair[0][0] >= place), pair[0][1]), pair[1])) for v in values]
    return [*schemas[:place], "null", *schemas[place:]], st.one_of(st.just(((place, None), None)), *shifted)


def branch_name(schema: Any) -> str:
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)


def wrapped(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    simple = inner.filter(lambda kind: not isinstance(kind[0], list) and not byteless(kind[0]))
    counted = inner.filter(lambda kind: not byteless(kind[0]))
    return st.one_of(
        simple.map(nullable), counted.map(listed), counted.map(mapped), records(inner, least=0), unions(simple)
    )


KINDS = st.recursive(st.one_of(LEAVES, named()), wrapped, max_leaves=5)


def body(schema: Any, value: Any) -> bytes:
    """As fastavro writes it; but a value of a union with several types comes with the index of its branch."""
    match schema:
        case [*branches] if isinstance(value, tuple):
            return number(value[0]) + body(branches[value[0]], value[1])
        case ["null", branch]:
            return number(0) if value is None else number(1) + body(branch, value)
        case {"type": "record", "fields": fields}:
            return b"".join(body(f["type"], value[f["name"]]) for f in fields)
        case {"type": "array", "items": items}:
            content = b"".join(body(items, item) for item in value)
            return (number(len(value)) + content if value else b"") + number(0)
        case {"type": "map", "values": items}:
            content = b"".join(body("string", k) + body(items, item) for k, item in value.items())
            return (number(len(value)) + content if value else b"") + number(0)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(unlogical(schema)), value)
    return stream.getvalue()


def unlogical(schema: Any) -> Any:
    """The schema as the values are given here: numbers and bytes as they are written."""
    if isinstance(schema, list):
        return [unlogical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        k: unlogical(v)
        if k in ("type", "items", "values")
        else [{**f, "type": unlogical(f["type"])} for f in v]
        if k == "fields"
        else v
        for k, v in schema.items()
        if k != "logicalType"
    }


def decoder(writer: Any, reader: Any | None = None, **options: Any) -> BodyDecoder:
    texts = [json.dumps(schema) if not isinstance(schema, str) else schema for schema in (writer, reader or writer)]
    return BodyDecoder(expanded(texts[0]), expanded(texts[1]), **options)


def rows(decoder: BodyDecoder, bodies: list[bytes]) -> list[Any]:
    found: list[Any] = []
    for item in decoder.rows(bodies):
        found.extend([item] if isinstance(item, BadBody) else item.to_pylist())
    return found


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(records(KINDS), st.data())
def test_any_rows_of_any_schema_are_read_as_they_were_written(kind: Kind, data: st.DataObject) -> None:
    schema, values = kind
    pairs = data.draw(st.lists(values, min_size=1, max_size=5))
    assert rows(decoder(schema), [body(schema, datum) for datum, _ in pairs]) == [expected for _, expected in pairs]


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


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


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
            field("a", STATE), ["B", "A"], field("a", {**STATE, "symbols": ["B"]}), "'A' is none", id="symbol"
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
    assert bad == BadBody("schema_mismatch", "'a' was written as string and is read as int32, which does not fit")
    (bad,) = rows(decoder(writer, record(field("b", "int"))), [body(writer, {"a": "x"})])
    assert bad.message == "'b' is missing in the schema it was written with, and has no default"


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
    schema = expanded(order, (address,))
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
        pytest.param(["null", record(name="E")], "`a` may be a record without bytes", id="nothing or null"),
        pytest.param(["null", "R"], "contains itself; recursive types have no columns", id="recursive"),
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

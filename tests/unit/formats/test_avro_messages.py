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

from streamling.formats.avro import expanded
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


@st.composite
def decimal_kinds(draw: st.DrawFn) -> Kind:
    precision = draw(st.integers(1, 100))
    scale = draw(st.integers(0, precision))
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return schema, decimals(precision, scale)


MOMENTS = st.integers(-(2**51), 2**52)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def moments(logical: str, step: int) -> Kind:
    def pair(microseconds: int) -> Pair:
        count = microseconds // step
        return count, BEGIN + count * dt.timedelta(microseconds=step)

    return {"type": "long", "logicalType": logical}, MOMENTS.map(pair)


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
    size = draw(st.integers(1, 5))
    return {"type": "fixed", "name": name, "size": size}, same(st.binary(min_size=size, max_size=size))


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


def wrapped(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    simple = inner.filter(lambda kind: not isinstance(kind[0], list))
    return st.one_of(simple.map(nullable), inner.map(listed), inner.map(mapped), records(inner))


KINDS = st.recursive(st.one_of(LEAVES, named()), wrapped, max_leaves=5)


def body(schema: Any, value: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(unlogical(schema)), value)
    return content.getvalue()


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

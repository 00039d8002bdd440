"""Avro schemas of every kind with values of theirs, and the bytes of these."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

from streamling.formats.avro import expand_schema, is_byteless
from streamling.formats.avro_blocks import encode_long
from streamling.formats.avro_messages import BodyDecoder
from streamling.formats.bodies import BadBody

Pair = tuple[Any, Any]
"""What fastavro writes, and what is expected of it."""
Kind = tuple[Any, st.SearchStrategy[Pair]]
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


def padded(encode_long: bytes, size: int) -> bytes:
    return encode_long.rjust(size, b"\xff" if encode_long[0] & 0x80 else b"\0")


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
    simple = inner.filter(lambda kind: not isinstance(kind[0], list) and not is_byteless(kind[0]))
    counted = inner.filter(lambda kind: not is_byteless(kind[0]))
    return st.one_of(
        simple.map(nullable), counted.map(listed), counted.map(mapped), records(inner, least=0), unions(simple)
    )


KINDS = st.recursive(st.one_of(LEAVES, named()), wrapped, max_leaves=5)


def body(schema: Any, value: Any) -> bytes:
    """As fastavro writes it; but a value of a union with several types comes with the index of its branch."""
    match schema:
        case [*branches] if isinstance(value, tuple):
            return encode_long(value[0]) + body(branches[value[0]], value[1])
        case ["null", branch]:
            return encode_long(0) if value is None else encode_long(1) + body(branch, value)
        case {"type": "record", "fields": fields}:
            return b"".join(body(f["type"], value[f["name"]]) for f in fields)
        case {"type": "array", "items": items}:
            content = b"".join(body(items, item) for item in value)
            return (encode_long(len(value)) + content if value else b"") + encode_long(0)
        case {"type": "map", "values": items}:
            content = b"".join(body("string", k) + body(items, item) for k, item in value.items())
            return (encode_long(len(value)) + content if value else b"") + encode_long(0)
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
    return BodyDecoder(expand_schema(texts[0]), expand_schema(texts[1]), **options)


def rows(decoder: BodyDecoder, bodies: list[bytes]) -> list[Any]:
    found: list[Any] = []
    for item in decoder.rows(bodies):
        found.extend([item] if isinstance(item, BadBody) else item.to_pylist())
    return found


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}

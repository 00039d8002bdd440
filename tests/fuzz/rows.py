"""Bytes that become rows: Avro and JSON messages, and files."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import fastavro

from fuzz.mutations import mutate_bytes, mutate_text
from fuzz.target import Find, Target
from streamling.connector import BadRow
from streamling.formats.avro import expand_schema, rows_of
from streamling.formats.avro_messages import BodyDecoder
from streamling.formats.bodies import BadBody
from streamling.formats.json_messages import ObjectDecoder
from streamling.plan.types import Field
from streamling.plan.written_types import declared_type
from streamling.sources.file.columns import columns_of
from support.file_source_samples import PLENTY, file_source, read

AVRO: list[tuple[Any, list[Any]]] = [
    (
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "text", "type": ["null", "string"]},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
                {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            ],
        },
        [{"id": n, "text": None if n % 2 else "é" * n, "at": n, "price": b"\x01\x02", "kind": "A"} for n in range(4)],
    ),
    (
        {
            "type": "record",
            "name": "Deep",
            "fields": [
                {
                    "name": "items",
                    "type": {"type": "array", "items": {"type": "map", "values": ["null", "double", "string"]}},
                },
                {
                    "name": "inner",
                    "type": [
                        "null",
                        {
                            "type": "record",
                            "name": "Inner",
                            "fields": [
                                {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 3}},
                                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                                {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
                            ],
                        },
                    ],
                },
                {"name": "flag", "type": "boolean"},
                {"name": "x", "type": "float"},
            ],
        },
        [
            {
                "items": [{"a": 1.5, "b": None, "c": "x"}] * n,
                "inner": {"raw": b"abc", "day": 1, "uuid": "0f8fad5b-d9cb-469f-a165-70867728950e"} if n else None,
                "flag": True,
                "x": 1.0,
            }
            for n in range(4)
        ],
    ),
]


class AvroBodies(Target):
    """The number of a schema, then bodies, each after its length in two bytes. Every body gives one row."""

    name = "avro"

    def __init__(self) -> None:
        super().__init__()
        schemas = [expand_schema(json.dumps(schema)) for schema, _ in AVRO]
        self._decoders = [BodyDecoder(schema, schema) for schema in schemas]
        self._bodies = [[_encoded(schema, value) for value in values] for schema, values in AVRO]

    def make(self, random: Random) -> bytes:
        number = random.randrange(len(AVRO))
        bodies = [random.choice(self._bodies[number]) for _ in range(random.choice((1, 2, 5, 20)))]
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randrange(len(bodies))
            bodies[at] = mutate_bytes(bodies[at], random, random.choice(self._bodies[number]))[:60_000]
        return bytes([number]) + b"".join(len(body).to_bytes(2, "big") + body for body in bodies)

    def run(self, data: bytes) -> None:
        bodies, at = [], 1
        while at < len(data):
            length = int.from_bytes(data[at : at + 2], "big")
            bodies.append(data[at + 2 : at + 2 + length])
            at += 2 + length
        _check_rows(self._decoders[data[0] % len(AVRO)].rows(bodies), len(bodies))


class AvroSchemas(Target):
    """Texts of schemas, as a registry answers with them; with a null body, which no record is."""

    name = "avro-schema"

    def make(self, random: Random) -> bytes:
        texts = [json.dumps(schema, indent=1) for schema, _ in AVRO]
        return mutate_text(random.choice(texts), random, random.choice(texts))

    def run(self, data: bytes) -> None:
        text = data.decode(errors="replace")
        rows_of(text)
        schema = expand_schema(text)
        _check_rows(BodyDecoder(schema, schema).rows([b"", b"\0" * 9]), 2)


class JsonBodies(Target):
    """Bodies separated by zero bytes. Every body gives one row."""

    name = "json"
    _TYPES = (
        "int64",
        "float64",
        "string",
        "boolean",
        "timestamp",
        "date32",
        "decimal(10,2)",
        "uint64",
        "binary",
        "int8",
    )
    _SEEDS = (
        b'{"c0": 1, "c1": 1.5, "c2": "a", "c3": true, "c4": "2024-01-01T00:00:00Z", "c5": "2024-02-29", "c6": "1.25"}',
        b'{"c7": 18446744073709551615, "c8": "00ff", "c9": -128, "more": [1, {"a": null}], "c2": "\\u00e9\\n"}',
        b'{\n "c4": 1500000,\n "c5": 1\n}',
    )

    def __init__(self) -> None:
        super().__init__()
        fields = [Field(f"c{n}", declared_type(type_)) for n, type_ in enumerate(self._TYPES)]
        # The first is decoded by Arrow where possible, the second object by object.
        self._decoders = [ObjectDecoder(fields[:7]), ObjectDecoder(fields)]

    def make(self, random: Random) -> bytes:
        bodies = [random.choice(self._SEEDS) for _ in range(random.choice((1, 1, 3, 10)))]
        for _ in range(random.choice((1, 1, 2, 4))):
            at = random.randrange(len(bodies))
            bodies[at] = mutate_bytes(bodies[at], random, random.choice(self._SEEDS))
        return b"\0\0".join(bodies)

    def run(self, data: bytes) -> None:
        bodies = data.split(b"\0\0")
        for decoder in self._decoders:
            _check_rows(decoder.rows(bodies), len(bodies))


class Files(Target):
    """Files of a format: columns are looked up, and rows are read as a run does it."""

    def __init__(self, format_: str, seeds: Sequence[bytes]) -> None:
        super().__init__()
        self.name = f"{format_}-file"
        self._format = format_
        self._seeds = seeds
        self._count = 0

    def make(self, random: Random) -> bytes:
        return mutate_bytes(random.choice(self._seeds), random, random.choice(self._seeds))

    def run(self, data: bytes) -> None:
        self._count += 1
        path = self.file(f"{self._count}.{self._format}", data)
        try:
            columns_of(str(path), self._format)
            source = file_source(path, self._format)
            source.open({})
            while (offer := source.offer(PLENTY)) is not None:
                for item in read(source, offer):
                    assert isinstance(item, BadRow) or item.num_rows >= 0
        finally:
            path.unlink()


def _encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def avro_file(schema: Any, values: Sequence[Any], codec: str) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), values, codec=codec)
    return stream.getvalue()


def _check_rows(items: Any, expected: int) -> None:
    count = sum(1 if isinstance(item, BadBody) else item.num_rows for item in items)
    if count != expected:
        raise Find(f"{expected} bodies gave {count} rows")


CSV = (
    b'id,name,at,price\n1,a,2024-01-01,1.5\n2,"b ""c"", d\ne",,\n3,,2024-01-02T00:00:00Z,-1e5\n',
    b"\xef\xbb\xbfid;name\r\n1;a\r\n\r\n2;b",
    b"id\n1\n2\n",
)
JSON_LINES = (
    b'{"id": 1, "name": "a", "tags": ["x"], "in": {"y": 1.5}}\n{"id": 2, "name": null}\n\n{"id": 3, "_gs_op": "d"}\n',
    b'{"a": "\\u00e9", "b": true}\r\n{"a": 1e400, "b": false}',
)

"""A short run of the fuzzer, and the inputs that it found something with."""

from __future__ import annotations

import sys

import pytest

from fuzz.run import make, time_limit
from fuzz.target import run
from fuzz.targets import TARGETS

SEED = 20240229
# Chosen so that all kinds together take some seconds; `make fuzz` runs thousands.
INPUTS = {"pipeline": 40, "http": 12, "csv-file": 25, "json-file": 25, "avro-file": 25}
_DEEP = b"[" * 100_000


@pytest.mark.parametrize("kind", TARGETS)
def test_mutated_inputs_are_understood_or_rejected(kind: str) -> None:
    target = TARGETS[kind]()
    for number in range(INPUTS.get(kind, 60)):
        with time_limit(target.seconds):
            run(target, make(target, SEED, number))
    target.close()


def http(client: int, answer: bytes, how: int = 0) -> bytes:
    return bytes([client, how]) + answer


OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
UTF_16 = b"HTTP/1.1 500 X\r\nContent-Type: a; charset=utf-16\r\n\r\nabc"
REDIRECT = b"HTTP/1.1 307 X\r\nLocation: http://h:%s/\r\nContent-Length: 0\r\n\r\n" % (b"1" * 50)
ENUM = b'{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"E"}}]}'
REFERENCE = b'{"id": 1, "version": 1, "schema": "x", "references": [{"subject": "s", "version": 1}]}'
FOUND = {
    "an error in UTF-16 without a mark": ("http", http(0, UTF_16)),
    "deep JSON": ("http", http(1, OK % (len(_DEEP), _DEEP))),
    "an endless body": ("http", http(0, b"", how=1)),
    "a body that drips": ("http", http(3, b"", how=2)),
    "headers that drip": ("http", http(0, b"", how=3)),
    "no answer at all": ("http", http(0, b"", how=4)),
    "a compressed body that is huge": ("http", http(3, b"", how=5)),
    "a schema that refers to itself": ("http", http(0, OK % (len(REFERENCE), REFERENCE))),
    "a redirect to no port": ("http", http(0, REDIRECT)),
    "an enum without symbols": ("avro-schema", ENUM),
    "a schema without text": ("http", http(1, OK % (2, b"{}"))),
    "a subject that is no map": ("http", http(2, OK % (3, b"[1]"))),
    "brackets without end": ("pipeline", b"[" * 3000),
    "a deep schema": ("avro-schema", _DEEP),
    "a deep line": ("json-file", b'{"a":' * 5000),
    "metadata longer than memory": ("avro-file", b"Obj\x01\x02" + b"\xfe" + b"\xff" * 7 + b"\x01avro.schema"),
    "a deep schema in a file": (
        "avro-file",
        b"Obj\x01\x02\x16avro.schema\xa0\x9c\x01" + b"[" * 10_000 + b"\0" + b"s" * 16,
    ),
    "an invalid row that is not UTF-8": ("csv-file", b"id,name\n1,a\n2,\x80,c\n"),
}


@pytest.mark.parametrize("found", FOUND)
def test_what_was_found_stays_mended(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, data = FOUND[found]
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    target = TARGETS[kind]()
    with time_limit(target.seconds):
        assert run(target, data) in ("ok", "SCHEMA_NOT_FOUND", "SCHEMA_UNUSABLE", "INVALID_YAML")
    target.close()
    assert ignored == []

"""Local servers, and topics of orders on them. A topic is filled once and kept in the cache.

A record has an id, four texts, a double, a decimal, a long and an int, in Avro, framed with the id of its schema. The
header `dbz.op` says what happened to the order.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from confluent_kafka import Producer

from bench.processes import cache
from streamling.dev.processes import free_ports
from streamling.dev.stack import SERVERS, Stack
from streamling.dev.topics import Topics
from streamling.formats.avro_blocks import encode_long

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "doc": '{"primaryKeys": ["id"]}',
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "product", "type": "string"},
            {"name": "country", "type": "string"},
            {"name": "note", "type": "string"},
            {"name": "amount", "type": "double"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}},
            {"name": "created", "type": "long"},
            {"name": "quantity", "type": "int"},
        ],
    }
)
JSON_COLUMNS = (
    "{id: int64, customer: string, product: string, country: string, note: string, amount: float64, "
    "price: 'decimal(20,4)', created: int64, quantity: int32}"
)
# So many different records, apart from their ids.
_KINDS = 10_000
# Between two looks at the clock of a producer that keeps to a rate.
_STEP_S = 0.01
_OPERATIONS = (b"c", b"c", b"u", b"c", b"c", b"d", b"c", b"u", b"c", b"c")
# A prime: multiples of it reach every id once, in an order that no index likes.
_STRIDE = 611_953


@dataclass(frozen=True, slots=True)
class Place:
    """A topic, and how clients find it. `settings` are those of a pipeline, as environment variables."""

    brokers: str
    registry: str
    topic: str
    schema_id: int
    settings: dict[str, str]


@contextmanager
def servers(*names: str) -> Iterator[Stack]:
    """These, or those of Kafka and Postgres, with what earlier measurements have left on them."""
    names = names or ("kafka", "registry", "postgres")
    stack = Stack(cache() / "stack")
    # The usual ports are for people, and other stacks may be starting.
    ports = {name: port for name, port in zip(names, free_ports(len(names)), strict=True) if not stack.is_running(name)}
    try:
        stack.up(names, ports)
        yield stack
    finally:
        stack.down(names)


def place_of(stack: Stack, topic: str) -> Place:
    """A topic of one partition with the schema of orders; made if it is not there."""
    brokers, registry = (SERVERS[name].address(stack.site(name)) for name in ("kafka", "registry"))
    Topics(brokers).create(topic)
    url = f"{registry}/subjects/{topic}-value/versions"
    answer = httpx.post(url, json={"schema": SCHEMA}, timeout=30, trust_env=False).raise_for_status()
    settings = {name.removeprefix("STREAMLING__"): value for name, value in stack.variables().items()}
    return Place(brokers, registry, topic, int(answer.json()["id"]), settings)


Event = tuple[int, int, bytes]
"""The id of an order, its kind, and what happened to it."""


def mixed(rows: int) -> Iterator[Event]:
    """One event per order; three in ten are changes or deletions."""
    return ((id_, id_ % _KINDS, _OPERATIONS[id_ % len(_OPERATIONS)]) for id_ in range(rows))


def inserts(rows: int) -> Iterator[Event]:
    """Every order once, out of order."""
    return ((place * _STRIDE % rows, place % _KINDS, b"c") for place in range(rows))


def changes(rows: int) -> Iterator[Event]:
    """The same, and then every order once more, with other values."""
    yield from inserts(rows)
    yield from ((place * _STRIDE % rows, (place + 1) % _KINDS, b"u") for place in range(rows))


def filled(stack: Stack, events: Callable[[int], Iterator[Event]], rows: int, *, as_json: bool = False) -> Place:
    """The topic that has these orders."""
    topics = Topics(SERVERS["kafka"].address(stack.site("kafka")))
    topic = f"orders-{events.__name__}-{'json-' if as_json else ''}{rows}"
    done = stack.directory / f"{topic}.filled"
    if not done.exists():
        if topics.partitions(topic) is not None:  # an earlier attempt was cut off
            topics.delete(topic)
        _fill(place_of(stack, topic), events(rows), as_json=as_json)
        done.touch()
    return place_of(stack, topic)


def _fill(place: Place, events: Iterator[Event], *, as_json: bool) -> None:
    settings = {"enable.idempotence": True, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": place.brokers, "log_level": 0, "batch.size": 1 << 20, **settings})
    frame = b"\0" + place.schema_id.to_bytes(4)
    kinds = [(json_body if as_json else body)(kind) for kind in range(_KINDS)]
    headers = {operation: [("dbz.op", operation)] for operation in _OPERATIONS}
    for count, (id_, kind, operation) in enumerate(events):
        value = b'{"id":%d,' % id_ + kinds[kind] if as_json else frame + encode_long(id_) + kinds[kind]
        while True:
            try:
                producer.produce(place.topic, value, headers=headers[operation])
                break
            except BufferError:  # the client's queue is full
                producer.poll(0.1)
        if count % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records")


def produce(place: Place, rate: int, seconds: float, *, first: int = 0) -> int:
    """So many orders a second, with the time they were made at; returns how many."""
    producer = Producer({"bootstrap.servers": place.brokers, "log_level": 0})
    frame, began, sent = b"\0" + place.schema_id.to_bytes(4), time.monotonic(), 0
    while sent < seconds * rate:
        for id_ in range(first + sent, first + int((time.monotonic() - began) * rate)):
            value = frame + encode_long(id_) + body(0, time.time_ns() // 1000)
            producer.produce(place.topic, value, headers=[("dbz.op", b"c")])
            sent += 1
        producer.poll(_STEP_S)
    if producer.flush(30):
        raise RuntimeError("the broker did not take all records")
    return sent


def json_body(kind: int, created: int = 1_700_000_000_000) -> bytes:
    """An order behind its id, as JSON."""
    mixed = kind * 7919
    texts = dict(zip(("customer", "product", "country", "note"), _texts(kind), strict=True))
    numbers = {"amount": mixed % 100_000 / 100, "price": mixed * 31 / 1e4, "created": created + kind}
    return json.dumps({**texts, **numbers, "quantity": kind % 100}, separators=(",", ":"))[1:].encode()


def _texts(kind: int) -> tuple[str, ...]:
    mixed = kind * 7919
    return f"customer-{mixed % 9973}", f"product-{mixed % 997}", ("DE", "FR", "JP", "US")[kind % 4], f"note {kind}"


def body(kind: int, created: int = 1_700_000_000_000) -> bytes:
    """An order behind its id, as Avro."""
    mixed, texts = kind * 7919, _texts(kind)
    price = (mixed * 31 - 5_000_000).to_bytes(8, signed=True)
    return b"".join(
        (
            *(encode_long(len(text)) + text.encode() for text in texts),
            struct.pack("<d", mixed % 100_000 / 100),
            encode_long(len(price)) + price,
            encode_long(created + kind),
            encode_long(kind % 100),
        )
    )

"""A local broker and registry, and a topic of orders on them. The topic is filled once and kept in the cache.

A record has an id, four texts, a double, a decimal, a long and an int, in Avro, framed with the id of its schema. The
header `dbz.op` says of three in ten that they are changes or deletions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from confluent_kafka import Producer

from bench.processes import cache
from streamling.dev.processes import free_ports
from streamling.dev.stack import SERVERS, Stack
from streamling.dev.topics import Topics
from streamling.formats.avro_blocks import number

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
# So many different records, apart from their ids.
_KINDS = 10_000
_OPERATIONS = (b"c", b"c", b"u", b"c", b"c", b"d", b"c", b"u", b"c", b"c")


@dataclass(frozen=True, slots=True)
class Place:
    """A topic, and how clients find it. `settings` are those of a pipeline, as environment variables."""

    brokers: str
    registry: str
    topic: str
    schema_id: int
    settings: dict[str, str]


@contextmanager
def servers() -> Iterator[Stack]:
    """Broker and registry, with what earlier measurements have left on them."""
    stack = Stack(cache() / "stack")
    # The usual ports are for people, and other stacks may be starting.
    ports = {name: port for name, port in zip(SERVERS, free_ports(len(SERVERS)), strict=True) if not stack.runs(name)}
    try:
        stack.up(list(SERVERS), ports)
        yield stack
    finally:
        stack.down(list(SERVERS))


def place_of(stack: Stack, topic: str) -> Place:
    """A topic of one partition with the schema of orders; made if it is not there."""
    brokers, registry = (SERVERS[name].address(stack.site(name)) for name in ("kafka", "registry"))
    Topics(brokers).create(topic)
    url = f"{registry}/subjects/{topic}-value/versions"
    answer = httpx.post(url, json={"schema": SCHEMA}, timeout=30, trust_env=False).raise_for_status()
    settings = {name.removeprefix("STREAMLING__"): value for name, value in stack.variables().items()}
    return Place(brokers, registry, topic, int(answer.json()["id"]), settings)


def filled(stack: Stack, rows: int) -> Place:
    """The topic that has so many orders."""
    topics = Topics(SERVERS["kafka"].address(stack.site("kafka")))
    topic, done = f"orders-{rows}", stack.directory / f"orders-{rows}.filled"
    if not done.exists():
        if topics.partitions(topic) is not None:  # an earlier attempt was cut off
            topics.delete(topic)
        _fill(place_of(stack, topic), rows)
        done.touch()
    return place_of(stack, topic)


def _fill(place: Place, rows: int) -> None:
    settings = {"enable.idempotence": True, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": place.brokers, "log_level": 0, "batch.size": 1 << 20, **settings})
    frame = b"\0" + place.schema_id.to_bytes(4)
    kinds = [body(kind) for kind in range(_KINDS)]
    headers = [[("dbz.op", operation)] for operation in _OPERATIONS]
    for id_ in range(rows):
        value = frame + number(id_) + kinds[id_ % _KINDS]
        while True:
            try:
                producer.produce(place.topic, value, headers=headers[id_ % len(headers)])
                break
            except BufferError:  # the client's queue is full
                producer.poll(0.1)
        if id_ % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records")


def body(kind: int, created: int = 1_700_000_000_000) -> bytes:
    """An order behind its id, as Avro."""
    mixed = kind * 7919
    texts = (f"customer-{mixed % 9973}", f"product-{mixed % 997}", ("DE", "FR", "JP", "US")[kind % 4], f"note {kind}")
    price = (mixed * 31 - 5_000_000).to_bytes(8, signed=True)
    return b"".join(
        (
            *(number(len(text)) + text.encode() for text in texts),
            struct.pack("<d", mixed % 100_000 / 100),
            number(len(price)) + price,
            number(created + kind),
            number(kind % 100),
        )
    )

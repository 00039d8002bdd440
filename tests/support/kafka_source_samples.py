"""Kafka sources over topics of a test, read as the engine does it: offer by offer, part by part."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamling.connector import BadRow, Counted, Json, Offer, Reached, Room, Runtime, Timed, kinds
from streamling.engine.protocol.state import MemoryState, generation
from streamling.errors import TransientError
from streamling.sources.kafka.reader import KafkaReader
from streamling.sources.kafka.source import KafkaSource
from streamling.spec.pipeline import load_pipeline
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics

PLENTY = Room(1_000_000, parts=1, part_rows=10_000)
Row = dict[str, Any]


@contextmanager
def source(
    brokers: str,
    topic: str,
    more: str = "",
    positions: Mapping[str, Json] | None = None,
    *,
    registry_url: str = "",
    own: bool = True,
    before: Callable[[KafkaSource], object] = lambda made: None,
    backend: str = "Sqlite",
    stalled_after: int = 60,
    first_fetch: int = 60,
    looked_at: Collection[str] | None = None,
    application: str = "app",
    state: MemoryState | None = None,
    **connection: str,
) -> Iterator[KafkaSource]:
    """A source called `Events`, opened behind `positions`, of which others look at all columns unless told.

    Without `own` it has no partitions yet. Sources with one `state` are processes of one application.
    """
    text = (
        f"sources: {{Events: {{type: kafka, topic: {topic}{more}}}}}\nsinks: {{out: {{type: blackhole, from: events}}}}"
    )
    pipeline = load_pipeline(text, "p.yaml", kinds.kinds())
    assert not pipeline.problems, pipeline.problems
    node = pipeline.sources[0]
    settings = Settings.model_validate(
        {
            "kafka_source": {
                "brokers": brokers,
                "schema_registry_url": registry_url or "http://localhost:1",
                **connection,
            },
            "state_backend": {"backend_type": backend},
            "runtime": {"stall_watchdog_timeout_sec": stalled_after, "consumer_fetch_timeout_sec": first_fetch},
        }
    )
    made = kinds.build(node, settings)
    assert isinstance(made, KafkaSource)
    columns = node.options.output_schema(node)  # type: ignore[attr-defined]
    if columns is None:
        probe = kinds.kind_of(node).probe
        assert probe is not None
        columns = probe(node, settings, 10).schema
    made.prepare(columns, columns.names if looked_at is None else looked_at)
    store = state or MemoryState()
    made.attach(Runtime(application, store, Metrics(), generation(store)))
    before(made)
    made.join(lambda: None)
    try:
        if own:
            divided(made)
        made.open(positions or {})
        yield made
    finally:
        made.close()


def divided(source: KafkaSource, wanted: int | None = None) -> frozenset[str]:
    """Give a source the partitions that are its own by now: so many, or any number of them."""
    deadline = time.monotonic() + 30
    while True:
        keys = source.assigned()
        if len(keys) == wanted or (wanted is None and keys):
            source.own(keys)
            return keys
        assert time.monotonic() < deadline, f"{len(keys)} partitions are assigned"
        time.sleep(0.02)


def read(source: KafkaSource, offer: Offer | None) -> list[Row | BadRow]:
    """What the parts of an offer hold, read by a copy of the reader as an executor has it, and checked as the driver
    does it: read again if the topic was replaced meanwhile."""
    assert offer is not None
    reader = pickle.loads(pickle.dumps(source.reader()))
    try:
        found = _read(reader, offer)
        source.check_read(offer.slices)
    except TransientError as error:
        if "was deleted and created again while it was read" not in error.message:
            raise
        found = _read(reader, offer)
        source.check_read(offer.slices)
    return found


def _read(reader: KafkaReader, offer: Offer) -> list[Row | BadRow]:
    found: list[Row | BadRow] = []
    for part in (part for slice_ in offer.slices for part in slice_.parts):
        for item in reader.read(part):
            if not isinstance(item, Counted | Timed | Reached):
                found.extend([item] if isinstance(item, BadRow) else item.to_pylist())
    return found


def everything(source: KafkaSource, room: Room = PLENTY) -> list[Row | BadRow]:
    """All that is there by now."""
    found: list[Row | BadRow] = []
    while (offer := source.offer(room)) is not None:
        found += read(source, offer)
    return found


def eventually(source: KafkaSource, count: int, *, seconds: float = 10) -> list[Row | BadRow]:
    """So many rows: a message is heard of a moment after it was written, or after its transaction was committed."""
    found: list[Row | BadRow] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found += everything(source)
        time.sleep(0.05)
    return found


def positions_of(offer: Offer | None) -> dict[str, Json]:
    assert offer is not None
    return {slice_.key: slice_.end for slice_ in offer.slices}


@contextmanager
def transaction(
    brokers: str, topic: str, values: list[bytes], *, commit: bool, timeout_ms: int = 60_000
) -> Iterator[None]:
    """Messages in a transaction that is open inside, and then committed or aborted."""
    from confluent_kafka import Producer

    settings = {"transactional.id": f"test-{time.time_ns()}", "transaction.timeout.ms": timeout_ms, "log_level": 0}
    producer = Producer({"bootstrap.servers": brokers, **settings})
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(20)
    yield
    if commit:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)

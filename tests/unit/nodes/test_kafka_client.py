"""Settings of the Kafka client follow from the connection."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from streamling.clients.kafka import client_settings
from streamling.spec.settings.blocks import KafkaConnection

FETCHING = {
    "topic.metadata.refresh.interval.ms": 60_000,
    "fetch.max.bytes": 52_428_800,
    "max.partition.fetch.bytes": 5_242_880,
}


def settings(brokers: str, **more: str) -> dict[str, object]:
    return client_settings(KafkaConnection(brokers=brokers, **more))


@pytest.mark.parametrize("brokers", ["serverless.WarpStream.example:9092", "a:9092,warpstream-agent:9092"])
def test_brokers_of_warpstream_get_large_fetches_and_rare_lookups(brokers: str) -> None:
    found = settings(brokers, client_id="mine")
    assert found.items() >= FETCHING.items()
    assert found["client.id"] == "mine"
    Consumer({**found, "group.id": "g"}).close()  # the client knows all of them


def test_other_brokers_are_read_with_the_settings_of_the_client() -> None:
    assert not FETCHING.keys() & settings("broker:9092").keys()

"""The producer of one topic: what becomes of a transaction whose id another producer takes."""

from __future__ import annotations

import pytest

from streamling.clients.kafka_producer import LostTransaction, ProducerOptions, TopicProducer
from streamling.spec.settings.blocks import KafkaConnection
from support.kafka_broker import KafkaBroker

OPTIONS = ProducerOptions(batch_messages=1000, linger_ms=0, message_bytes=1_000_000, compression="none")


def send(producer: TopicProducer, count: int) -> None:
    producer.send([b"value"] * count, [b"key"] * count, [[]] * count)


@pytest.mark.parametrize("before", ["nothing", "queued", "acknowledged"])
def test_a_transaction_is_lost_to_another_producer_whatever_it_has_done_before(kafka: KafkaBroker, before: str) -> None:
    connection, topic = KafkaConnection(brokers=kafka.brokers), kafka.topic()
    for _ in range(3):  # where the client notices it depends on the moment
        first, second = (TopicProducer(connection, topic, OPTIONS, f"{topic}-writer") for _ in range(2))
        first.init()
        first.begin()
        if before != "nothing":
            send(first, 1)
        if before == "acknowledged":
            first.flush()
        second.init()
        with pytest.raises(LostTransaction):
            send(first, 100)
            first.flush()
            first.commit()
        first.close()
        second.close()

"""The topic of a sink: looked up, created if missing."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any

from streamling.clients.kafka import REQUEST_SECONDS, Broker, client_errors, client_settings
from streamling.errors import SINK_FAILED, PermanentError, TransientError
from streamling.spec.settings.blocks import KafkaConnection

log = logging.getLogger(__name__)
_CREATE_SECONDS = 30.0
# Of a new topic: messages stay, and of a key the last one.
_CONFIG = {"retention.ms": "-1", "cleanup.policy": "compact"}


def ensure_topic(connection: KafkaConnection, topic: str, partitions: int | None) -> bool:
    """Create the topic, if it does not exist, with so many partitions or as many as the broker chooses.

    Returns whether it was created. An existing topic needs no permission to create one.
    """
    broker = Broker(connection, topic, SINK_FAILED)
    if broker.find_partitions() is not None:
        log.debug("topic '%s' exists, creation is skipped", topic)
        return False
    _create(connection, topic, partitions)
    deadline = time.monotonic() + _CREATE_SECONDS
    while broker.find_partitions() is None:
        if time.monotonic() > deadline:
            raise TransientError(SINK_FAILED, f"topic '{topic}' was created and is not known to the broker yet")
        time.sleep(0.05)
    return True


def _create(connection: KafkaConnection, topic: str, partitions: int | None) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    new = NewTopic(topic, num_partitions=partitions or -1, replication_factor=-1, config=_CONFIG)
    admin = AdminClient(client_settings(connection))
    with client_errors(f"topic '{topic}' cannot be created at {connection.brokers}", SINK_FAILED):
        try:
            admin.create_topics([new], operation_timeout=_CREATE_SECONDS)[topic].result(_CREATE_SECONDS + 1)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was faster
                raise


def largest_batch(connection: KafkaConnection, topic: str) -> int | None:
    """The largest batch of messages that the topic accepts, in bytes; None if the broker does not say."""
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    with suppress(PermanentError, TransientError):
        admin = AdminClient(client_settings(connection))
        resource = ConfigResource(ResourceType.TOPIC, topic)
        with client_errors(f"settings of topic '{topic}'", SINK_FAILED):
            answers: Any = admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)
            return int(answers[resource].result(REQUEST_SECONDS)["max.message.bytes"].value)
    return None

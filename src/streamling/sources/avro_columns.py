"""The columns of an Avro topic, from the schema registry."""

from __future__ import annotations

import time

from streamling.errors import StreamlingError, TransientError
from streamling.formats.avro import AvroRows, rows_of
from streamling.spec.pipeline import NodeSpec
from streamling.spec.settings import Settings

_ATTEMPTS = 3
_PAUSE_SECONDS = 0.5


def avro_columns(node: NodeSpec, topic: str, settings: Settings, seconds: float) -> AvroRows:
    """The rows of the newest schema of a topic. A registry that stumbles is asked again, within `seconds`."""
    from streamling.formats.registry import Registry

    deadline = time.monotonic() + seconds
    try:
        with Registry(settings.kafka_source, timeout=seconds / _ATTEMPTS) as registry:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    found = registry.latest(f"{topic}-value")
                    return rows_of(found.text, references=found.references)
                except TransientError:
                    if attempt == _ATTEMPTS or time.monotonic() + _PAUSE_SECONDS > deadline:
                        raise
                    time.sleep(_PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")
    except StreamlingError as error:
        message = (
            f"{node.described()}: failed to create Kafka source: failed to fetch Avro schema from Schema Registry "
            f"for topic '{topic}': {error.message}"
        )
        hint = error.hint or "kafka_source.schema_registry_url says where the registry is"
        raise type(error)(error.condition, message, node=node.name, where=node.where, hint=hint) from error

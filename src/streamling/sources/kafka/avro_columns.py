"""The columns of an Avro topic, from the schema registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamling.errors import StreamlingError
from streamling.formats.avro import AvroRows, rows_of
from streamling.formats.envelope import envelope_rows
from streamling.retry import look_up
from streamling.spec.pipeline import NodeSpec
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    from streamling.clients.schema_registry import RegisteredSchema


def newest_schema(
    node: NodeSpec, topic: str, settings: Settings, seconds: float, *, envelope: bool = False
) -> tuple[RegisteredSchema, AvroRows]:
    """The newest schema of a topic and its rows, or the rows in its envelopes.

    Transient errors are retried within `seconds`.
    """
    from streamling.clients.schema_registry import SchemaRegistry

    def newest(left: float) -> tuple[RegisteredSchema, AvroRows]:
        with SchemaRegistry(settings.kafka_source, timeout=left) as registry:
            schema = registry.latest(f"{topic}-value")
            rows = rows_of(schema.text, references=schema.references)
            return schema, envelope_rows(rows) if envelope else rows

    try:
        return look_up(newest, f"looking up the schema of topic '{topic}'", seconds)
    except StreamlingError as error:
        message = (
            f"{node.described()}: failed to create Kafka source: failed to fetch Avro schema from Schema Registry "
            f"for topic '{topic}': {error.message}"
        )
        hint = error.hint or "the address of the schema registry is kafka_source.schema_registry_url"
        raise type(error)(error.condition, message, node=node.name, where=node.where, hint=hint) from error

"""Decodes the messages of dead letters again; neither the topic nor the consumer group is touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamling.connector import BadRow, Counted
from streamling.errors import StreamlingError
from streamling.sources.kafka.reader import KafkaReader

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class KafkaDecoder:
    reader: KafkaReader

    def decode(self, rows: Sequence[BadRow]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        from streamling.sources.kafka.rows import TIME

        reader = self.reader
        message_rows = reader.message_rows(reader.payload)
        messages: list[Any] = []
        for row in rows:
            if reader.metadata and TIME in reader.columns and "timestamp" not in row.source:
                text = f"column '{TIME}': the dead letter was stored without the timestamp of its message"
                yield BadRow("schema_mismatch", text, row.source)
            else:
                messages.append(_message(row))
        if messages:
            try:
                yield from message_rows.rows(messages)
            except StreamlingError as error:
                error.node = error.node or reader.node
                raise


def _message(row: BadRow) -> Any:
    from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

    place: Any = row.source
    return Message(
        topic=place.get("topic"),
        partition=place.get("partition", 0),
        offset=place.get("offset", 0),
        key=row.raw_key,
        value=row.raw,
        headers=None if row.headers is None else list(row.headers),
        timestamp=(TIMESTAMP_CREATE_TIME, place.get("timestamp", 0)),
    )

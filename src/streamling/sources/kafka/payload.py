"""How the payloads of a topic are decoded. The classes are picklable: they hold options, no connections."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

from streamling.clients.schema_registry import RegisteredSchema, SchemaRegistry
from streamling.errors import SCHEMA_OUTDATED, PermanentError
from streamling.formats.avro import expand_schema, record_of, rows_of
from streamling.formats.bodies import Decoder
from streamling.formats.envelope import envelope_fields, envelope_record
from streamling.plan.types import OPERATION_COLUMN, Field
from streamling.spec.settings.blocks import KafkaConnection

log = logging.getLogger(__name__)

MAGIC, FRAME = 0, 5
_decoders: dict[tuple[AvroPayload, str, int], Decoder] = {}
_fetching = threading.Lock()


@dataclass(frozen=True, slots=True)
class AvroPayload:
    """Avro payloads, framed with the id of the writer schema and resolved to the schema `reader`.

    `by_name`: skip Avro schema resolution and match columns by name; `by_name_for`: do so only if the reader schema has
    one of these ids. `ordered`: refuse messages whose writer schema is newer than the reader schema. `envelope`: the
    records are envelopes of Debezium.
    """

    subject: str
    reader: RegisteredSchema
    overrides: tuple[tuple[int, int], ...] = ()
    by_name: bool = False
    by_name_for: tuple[int, ...] = ()
    ordered: bool = True
    envelope: bool = False

    @property
    def schema_id(self) -> int | None:
        return self.reader.id

    def for_replay(self, schema_id: int | None, connection: KafkaConnection) -> AvroPayload:
        """The payload for a replay of messages that were first read with this schema: they become the same rows.

        If the columns have changed since, the current schema is used. Raises StreamlingError.
        """
        if schema_id is None or schema_id == self.reader.id:
            return self
        return _replay_payload(self, schema_id, connection)

    @property
    def has_operation(self) -> bool:
        fields = record_of(_expand(self.reader))["fields"]
        return self.envelope or any(f["name"] == OPERATION_COLUMN for f in fields)

    def split(self, value: bytes) -> tuple[int, bytes] | str:
        """Schema id and body, or what is wrong with the frame."""
        if len(value) < FRAME:
            return f"the payload has {len(value)} bytes, but its frame needs {FRAME}"
        if value[0] != MAGIC:
            return f"the payload begins with the byte {value[0]}, not with 0 and a schema id"
        id_ = int.from_bytes(value[1:FRAME])
        return dict(self.overrides).get(id_, id_) if self.overrides else id_, value[FRAME:]

    def split_all(self, values: Sequence[bytes | None]) -> tuple[int, list[bytes]] | None:
        """Schema id and bodies of values that all have the same schema; None if they differ, or if one is bad."""
        first = values[0]
        if first is None or len(first) < FRAME or first[0] != MAGIC or not all(values):
            return None
        frame = first[:FRAME]
        if {value[:FRAME] for value in values if value} != {frame}:
            return None
        id_ = int.from_bytes(frame[1:])
        return dict(self.overrides).get(id_, id_), [value[FRAME:] for value in values if value]

    def decoder(self, id_: int, connection: KafkaConnection) -> Decoder:
        """Cached in the process. Raises StreamlingError."""
        key = (self, connection.schema_registry_url, id_)
        if (known := _decoders.get(key)) is not None:  # without the lock, which another thread may hold for long
            return known
        with _fetching:
            if key not in _decoders:
                _decoders[key] = self._make_decoder(id_, connection)
            return _decoders[key]

    def _make_decoder(self, id_: int, connection: KafkaConnection) -> Decoder:
        from streamling.formats.avro_messages import BodyDecoder

        writer = reader = _expand(self.reader)
        by_name = self.by_name or self.reader.id in self.by_name_for
        if id_ != self.reader.id:
            with SchemaRegistry(connection) as registry:
                text, references = registry.by_id(id_)
                if self.ordered and not by_name:
                    self._check_order(id_, registry)
            writer = expand_schema(text, references)
        if not self.envelope:
            return BodyDecoder(writer, reader, by_name=by_name)
        from streamling.formats.envelope_messages import EnvelopeDecoder

        return EnvelopeDecoder(BodyDecoder(writer, envelope_record(reader), by_name=by_name))

    def _check_order(self, id_: int, registry: SchemaRegistry) -> None:
        version = registry.versions(id_).get(self.subject)
        if version is not None and version <= self.reader.version:
            return
        what = f"is version {version}" if version is not None else "is not a version"
        raise PermanentError(
            SCHEMA_OUTDATED,
            f"a message was written with the schema id {id_}, which {what} of subject '{self.subject}'; "
            f"the reader schema is version {self.reader.version}",
            hint="restart to read with the newest schema, or set validate_writer_schema_ordering to false",
        )


class PayloadForm(Enum):
    """`ENVELOPE`: a JSON object that is an envelope of Debezium. `RAW`: the payload is the value of the one column."""

    OBJECT = "object"
    ENVELOPE = "envelope"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class DeclaredPayload:
    """Payloads without a schema of their own: JSON objects with these columns, or envelopes or bytes of them."""

    fields: tuple[Field, ...]
    form: PayloadForm = PayloadForm.OBJECT

    @property
    def schema_id(self) -> int | None:
        return None

    def for_replay(self, schema_id: int | None, connection: KafkaConnection) -> DeclaredPayload:
        return self

    @property
    def has_operation(self) -> bool:
        return self.form is PayloadForm.ENVELOPE or any(f.name == OPERATION_COLUMN for f in self.fields)

    def split(self, value: bytes) -> tuple[int, bytes] | str:
        return 0, value

    def split_all(self, values: Sequence[bytes | None]) -> tuple[int, list[bytes]] | None:
        return (0, [value for value in values if value]) if all(values) else None

    def decoder(self, id_: int, connection: KafkaConnection) -> Decoder:
        return _declared_decoder(self.fields, self.form)


Payload = AvroPayload | DeclaredPayload


@cache
def _declared_decoder(fields: tuple[Field, ...], form: PayloadForm) -> Decoder:
    from streamling.formats.json_messages import ObjectDecoder

    match form:
        case PayloadForm.OBJECT:
            return ObjectDecoder(fields)
        case PayloadForm.ENVELOPE:
            from streamling.formats.envelope_messages import EnvelopeDecoder

            return EnvelopeDecoder(ObjectDecoder(envelope_fields(fields)))
        case PayloadForm.RAW:
            from streamling.formats.raw_messages import RawDecoder

            return RawDecoder(fields[0])


@cache
def _expand(schema: RegisteredSchema) -> Any:
    return expand_schema(schema.text, schema.references)


_replay_payloads: dict[tuple[AvroPayload, str, int], AvroPayload] = {}


def _replay_payload(payload: AvroPayload, schema_id: int, connection: KafkaConnection) -> AvroPayload:
    key = (payload, connection.schema_registry_url, schema_id)
    if key not in _replay_payloads:
        _replay_payloads[key] = _fetch_payload(payload, schema_id, connection)
    return _replay_payloads[key]


def _fetch_payload(payload: AvroPayload, schema_id: int, connection: KafkaConnection) -> AvroPayload:
    try:
        with SchemaRegistry(connection) as registry:
            text, references = registry.by_id(schema_id)
    except PermanentError as error:
        log.warning("an epoch is replayed with another schema than before: %s", error.message)
        return payload
    now = payload.reader
    if rows_of(text, references=references).schema != rows_of(now.text, references=now.references).schema:
        return payload
    # The version stays the current one: the messages may have been written with newer schemas.
    return replace(payload, reader=replace(now, id=schema_id, text=text, references=references))

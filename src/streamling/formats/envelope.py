"""Debezium's envelope: a change of a row, with the row before and after it, and the operation.

    {"before": null, "after": {"id": 1}, "op": "c", "source": {..}, "ts_ms": 1700000000000}

The JSON converter of Kafka Connect may put it into `{"schema": .., "payload": ..}`. The row of an insert or update is
`after`, that of a delete is `before`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streamling.errors import SCHEMA_UNUSABLE, UserError
from streamling.formats.avro import AvroRows, record_of
from streamling.plan.types import OPERATION_COLUMN, OPERATION_FIELD, STRING, Field, Schema, struct_of

BEFORE, AFTER, OPERATION, PAYLOAD = "before", "after", "op", "payload"


def envelope_fields(columns: Sequence[Field]) -> tuple[Field, ...]:
    """What to read of a JSON object: the envelope of rows with these columns, inside of `payload` or not."""
    row = struct_of(*columns)
    envelope = (Field(BEFORE, row), Field(AFTER, row), Field(OPERATION, STRING))
    return (*envelope, Field(PAYLOAD, struct_of(*envelope)))


def envelope_record(reader: Any) -> dict[str, Any]:
    """What to read of an Avro record that is an envelope; `reader` comes from `expand_schema`."""
    record = record_of(reader)
    return {**record, "fields": [f for f in record["fields"] if f["name"] in (BEFORE, AFTER, OPERATION)]}


def envelope_rows(rows: AvroRows) -> AvroRows:
    """The rows inside of the envelopes that an Avro schema describes. Raises UserError SCHEMA_UNUSABLE."""
    before, after, operation = (rows.schema.get(name) for name in (BEFORE, AFTER, OPERATION))
    if before is None or after is None or operation is None or operation.type != STRING or not after.type.fields:
        raise _unusable(f"it must have the records '{BEFORE}' and '{AFTER}', and '{OPERATION}' as text")
    if before.type != after.type:
        raise _unusable(f"'{BEFORE}' and '{AFTER}' have different types")
    if any(f.name == OPERATION_COLUMN for f in after.type.fields):
        raise _unusable(f"its rows have a column '{OPERATION_COLUMN}', but the operation comes from the envelope")
    return replace(rows, schema=Schema((*after.type.fields, OPERATION_FIELD)))


def _unusable(why: str) -> UserError:
    return UserError(
        SCHEMA_UNUSABLE,
        f"the Avro schema is not an envelope of Debezium: {why}",
        hint="leave out 'envelope' if a transformation in Kafka Connect unwraps the rows",
    )

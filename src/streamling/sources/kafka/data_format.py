"""The formats of payloads."""

from __future__ import annotations

from enum import StrEnum

from streamling.plan.types import BINARY, OPERATION_COLUMN, STRING, DataType
from streamling.spec.coercion import Choice
from streamling.spec.faults import invalid_value

RAW_COLUMN = "value"
"""The column of `data_format: raw`, unless `schema` names another."""


class DataFormat(Choice):
    AVRO = "avro"
    JSON = "json"
    RAW = "raw"


class Envelope(StrEnum):
    DEBEZIUM = "debezium"


def raw_columns(columns: dict[str, DataType] | None) -> dict[str, DataType]:
    """The one column that a payload becomes as it is. To call from a validator."""
    if columns is None:
        return {RAW_COLUMN: STRING}
    if len(columns) > 1:
        raise invalid_value("must have one column with 'data_format: raw': the payload")
    (name, type_), *_ = columns.items()
    if name == OPERATION_COLUMN:
        raise invalid_value(f"must not name the payload '{name}', which is the operation of the row")
    if type_ not in (STRING, BINARY):
        raise invalid_value(f"is {type_}; with 'data_format: raw' it must be string or binary", field=name)
    return columns

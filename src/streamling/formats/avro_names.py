"""Metadata that the Arrow project's reader needs for unions, except for unions of one type and null.

The reader keeps names, symbols and digits in the metadata of its columns, but leaves them out of the schema that it
reports for a file. For most columns that does not matter. But it refuses to read a union whose metadata are not those
of the file.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from streamling.formats.avro import branches_of

Json = Any


def has_unions(schema: Json) -> bool:
    """Whether a schema, as the reader gets it, has a union anywhere that is more than one type and null."""
    if isinstance(schema, list):
        return len(branches_of(schema)[0]) > 1 or len(schema) == 1 or any(map(has_unions, schema))
    if not isinstance(schema, dict):
        return False
    inner = [field["type"] for field in schema.get("fields") or ()]
    return any(map(has_unions, (*inner, *(schema[key] for key in ("items", "values") if key in schema))))


def with_names(columns: pa.Schema, schema: Json) -> pa.Schema:
    """The columns that the reader reports for a file, with the metadata it leaves out."""
    return pa.schema([_with_field_names(columns.field(field["name"]), field["type"]) for field in schema["fields"]])


def _with_field_names(field: pa.Field, schema: Json) -> pa.Field:
    if pa.types.is_union(field.type):
        children = [_with_field_names(field.type.field(index), branch) for index, branch in enumerate(schema)]
        return field.with_type(pa.dense_union(children, field.type.type_codes))
    if isinstance(schema, list):
        others, _ = branches_of(schema)
        return _with_field_names(field, others[0]) if others else field
    if not isinstance(schema, dict):
        return field
    return field.with_type(_with_inner_names(field.type, schema)).with_metadata(_metadata(schema))


def _with_inner_names(type_: pa.DataType, schema: dict[str, Json]) -> pa.DataType:
    match schema["type"]:
        case "record":
            return pa.struct([_with_field_names(type_.field(f["name"]), f["type"]) for f in schema["fields"]])
        case "array":
            return pa.list_(_with_field_names(type_.value_field, schema["items"]))
        case "map":
            return pa.map_(type_.key_field, _with_field_names(type_.item_field, schema["values"]))
    return type_


def _metadata(schema: dict[str, Json]) -> dict[str, str]:
    metadata: dict[str, str] = {}
    if "name" in schema:
        metadata["avro.name"] = schema["name"]
    if "symbols" in schema:
        metadata["avro.enum.symbols"] = json.dumps(schema["symbols"], separators=(",", ":"), ensure_ascii=False)
    if schema.get("logicalType") == "decimal":
        metadata |= {"precision": str(schema["precision"]), "scale": str(schema.get("scale", 0))}
    return metadata

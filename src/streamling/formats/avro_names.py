"""What the Arrow project's reader has to be told of unions, unless they are of a type and null.

It notes names, symbols and digits in the metadata of its columns, and forgets them when it says what columns a file
has. Of most columns it does not matter. A union whose metadata are not those of the file, it refuses to read.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from streamling.formats.avro import branches_of

Json = Any


def has_unions(schema: Json) -> bool:
    """Whether a schema as the reader gets it has a union anywhere that is more than a type and null."""
    if isinstance(schema, list):
        return len(branches_of(schema)[0]) > 1 or len(schema) == 1 or any(map(has_unions, schema))
    if not isinstance(schema, dict):
        return False
    inner = [field["type"] for field in schema.get("fields") or ()]
    return any(map(has_unions, (*inner, *(schema[key] for key in ("items", "values") if key in schema))))


def with_names(columns: pa.Schema, schema: Json) -> pa.Schema:
    """The columns of a file, as the reader says they are, with what it forgets."""
    return pa.schema([_named(columns.field(field["name"]), field["type"]) for field in schema["fields"]])


def _named(field: pa.Field, schema: Json) -> pa.Field:
    if pa.types.is_union(field.type):
        children = [_named(field.type.field(index), branch) for index, branch in enumerate(schema)]
        return field.with_type(pa.dense_union(children, field.type.type_codes))
    if isinstance(schema, list):
        others, _ = branches_of(schema)
        return _named(field, others[0]) if others else field
    if not isinstance(schema, dict):
        return field
    return field.with_type(_inside(field.type, schema)).with_metadata(_metadata(schema))


def _inside(type_: pa.DataType, schema: dict[str, Json]) -> pa.DataType:
    match schema["type"]:
        case "record":
            return pa.struct([_named(type_.field(f["name"]), f["type"]) for f in schema["fields"]])
        case "array":
            return pa.list_(_named(type_.value_field, schema["items"]))
        case "map":
            return pa.map_(type_.key_field, _named(type_.item_field, schema["values"]))
    return type_


def _metadata(schema: dict[str, Json]) -> dict[str, str]:
    found: dict[str, str] = {}
    if "name" in schema:
        found["avro.name"] = schema["name"]
    if "symbols" in schema:
        found["avro.enum.symbols"] = json.dumps(schema["symbols"], separators=(",", ":"), ensure_ascii=False)
    if schema.get("logicalType") == "decimal":
        found |= {"precision": str(schema["precision"]), "scale": str(schema.get("scale", 0))}
    return found

"""Avro schemas as columns of our own types.

Only schemas are read here, as text: neither an Avro library nor Arrow is needed to know the columns of a topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamling.errors import SCHEMA_UNUSABLE, UserError
from streamling.plan.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DECIMAL256_DIGITS,
    DURATION,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    MOST_DIGITS,
    NULL,
    OPERATION_COLUMN,
    OPERATION_FIELD,
    STRING,
    TIME32,
    TIME64,
    TIMESTAMP,
    DataType,
    Field,
    Schema,
    decimal,
    list_of,
    map_of,
    struct_of,
)

_PRIMITIVES = {
    "null": NULL,
    "boolean": BOOLEAN,
    "int": INT32,
    "long": INT64,
    "float": FLOAT32,
    "double": FLOAT64,
    "bytes": BINARY,
    "string": STRING,
}
_MILLIS, _NANOS = DataType("timestamp", unit="ms"), DataType("timestamp", unit="ns")
# A logical type on any other base is ignored, as the Avro specification asks.
_LOGICAL = {
    ("int", "date"): DATE,
    ("int", "time-millis"): TIME32,
    ("long", "time-micros"): TIME64,
    ("long", "timestamp-millis"): _MILLIS,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "timestamp-nanos"): _NANOS,
    ("long", "local-timestamp-millis"): _MILLIS,
    ("long", "local-timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-nanos"): _NANOS,
}
_256_BIT_DIGITS = (77, 78)
_DURATION_BYTES = 12

Json = Any


@dataclass(frozen=True, slots=True)
class AvroRows:
    """What a record schema says of its rows: columns, `_gs_op` last, and the key its `doc` names."""

    schema: Schema
    primary_key: tuple[str, ...]


def rows_of(text: str, *, references: Sequence[str] = ()) -> AvroRows:
    """The rows of a record schema; `references` are the schemas of types it names without defining them.

    Raises UserError SCHEMA_UNUSABLE.
    """
    types = _Types()
    for reference in references:
        types.type(_parsed(reference), "the referenced schema", "")
    root = _record(_parsed(text))
    columns = types.fields(root, "", _namespace(root, ""))
    kept = [f for f in columns if f.name != OPERATION_COLUMN]
    own = [f for f in columns if f.name == OPERATION_COLUMN]
    return AvroRows(Schema((*kept, *(own or (OPERATION_FIELD,)))), _primary_key(root))


def _parsed(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError as error:
        # The registry hands out a schema that is one word without quotes in some versions.
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise UserError(SCHEMA_UNUSABLE, f"the Avro schema is not JSON: {error}", cause=error) from error


def _record(root: Json) -> dict[str, Json]:
    """The root itself, or the only record in a union of it and null."""
    branches = root if isinstance(root, list) else [root]
    records = [b for b in branches if isinstance(b, dict) and b.get("type") == "record"]
    if len(records) != 1 or any(b not in (records[0], "null", {"type": "null"}) for b in branches):
        raise UserError(
            SCHEMA_UNUSABLE, "the Avro schema must be a record, or a union of null and one record, to have columns"
        )
    return records[0]


def _primary_key(root: dict[str, Json]) -> tuple[str, ...]:
    for name in ("doc", "connect.doc"):
        try:
            keys = json.loads(root[name])["primaryKeys"]
        except (KeyError, TypeError, ValueError):
            continue  # a doc for people
        if isinstance(keys, list) and keys and all(isinstance(key, str) for key in keys):
            return tuple(keys)
    return ()


def _namespace(schema: dict[str, Json], around: str) -> str:
    name = str(schema.get("name", ""))
    return name.rpartition(".")[0] if "." in name else str(schema.get("namespace", around) or "")


def _full_name(schema: dict[str, Json], around: str) -> str:
    name = str(schema.get("name", ""))
    namespace = _namespace(schema, around)
    return name if "." in name or not namespace else f"{namespace}.{name}"


@dataclass(slots=True)
class _Types:
    """Maps types; remembers named ones, because a schema defines a name once and then only mentions it."""

    known: dict[str, DataType] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def fields(self, record: dict[str, Json], path: str, namespace: str) -> list[Field]:
        self.open.append(_full_name(record, namespace))
        found = []
        for one in record.get("fields") or ():
            if not isinstance(one, dict) or "name" not in one or "type" not in one:
                raise _unusable(path, "has a field without name or type")
            inner = f"{path}.{one['name']}" if path else str(one["name"])
            found.append(Field(str(one["name"]), *self.type(one["type"], inner, namespace)))
        self.open.pop()
        return found

    def type(self, schema: Json, path: str, namespace: str) -> tuple[DataType, bool]:
        """The type and whether it is nullable."""
        if isinstance(schema, list):
            return self._union(schema, path, namespace)
        if isinstance(schema, str):
            found = _PRIMITIVES.get(schema) or self._named(schema, path, namespace)
            return found, found is NULL
        if not isinstance(schema, dict):
            raise _unusable(path, f"has the type {schema!r}, which is none")
        if isinstance(schema.get("type"), dict | list):
            return self.type(schema["type"], path, namespace)
        found = self._complex(schema, path, namespace)
        return found, found is NULL

    def _complex(self, schema: dict[str, Json], path: str, namespace: str) -> DataType:
        match base := schema.get("type"):
            case "record" | "error":
                inner = _namespace(schema, namespace)
                found = struct_of(*self.fields(schema, path, inner))
                return self._remember(schema, namespace, found)
            case "enum":
                return self._remember(schema, namespace, STRING)
            case "fixed":
                return self._remember(schema, namespace, _fixed(schema))
            case "array":
                return list_of(self.type(schema.get("items"), f"{path}[]", namespace)[0])
            case "map":
                return map_of(self.type(schema.get("values"), f"{path}{{}}", namespace)[0])
            case "bytes" if schema.get("logicalType") == "decimal":
                return _decimal(schema) or BINARY
            case str():
                logical = _LOGICAL.get((base, str(schema.get("logicalType"))))
                return logical or _PRIMITIVES.get(base) or self._named(base, path, namespace)
        raise _unusable(path, f"has the type {base!r}, which is none")

    def _union(self, branches: list[Json], path: str, namespace: str) -> tuple[DataType, bool]:
        others = [b for b in branches if b != "null" and not (isinstance(b, dict) and b.get("type") == "null")]
        nullable = len(others) < len(branches)
        if not others:
            return NULL, True
        types = [self.type(branch, path, namespace)[0] for branch in others]
        if len(types) == 1:
            return types[0], nullable
        names = _distinct(_branch_name(branch) for branch in others)
        return struct_of(*(Field(n, t) for n, t in zip(names, types, strict=True))), nullable

    def _named(self, name: str, path: str, namespace: str) -> DataType:
        candidates = (name,) if "." in name else (f"{namespace}.{name}" if namespace else name, name)
        for candidate in candidates:
            if candidate in self.open:
                raise _unusable(
                    path, f"is of the type '{candidate}' that contains itself; recursive types have no columns"
                )
            if candidate in self.known:
                return self.known[candidate]
        raise _unusable(path, f"is of the type '{name}', which the schema does not define")

    def _remember(self, schema: dict[str, Json], namespace: str, type_: DataType) -> DataType:
        self.known[_full_name(schema, namespace)] = type_
        return type_


def _fixed(schema: dict[str, Json]) -> DataType:
    size = schema.get("size")
    length = size if isinstance(size, int) and size >= 0 else None
    match schema.get("logicalType"):
        case "decimal":
            return _decimal(schema) or DataType("binary", length=length)
        case "duration" if length == _DURATION_BYTES:
            return DURATION
    return DataType("binary", length=length)


def _decimal(schema: dict[str, Json]) -> DataType | None:
    """None where precision or scale make no sense: the bytes are then just bytes."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    if not 1 <= precision <= MOST_DIGITS or not 0 <= scale <= precision:
        return None
    if precision <= DECIMAL256_DIGITS:
        return decimal(precision, scale)
    native = "u256" if precision in _256_BIT_DIGITS and scale == 0 else None
    return DataType("decimal_arb", precision=precision, scale=scale, native=native)


def _branch_name(branch: Json) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name") or branch.get("type")).rpartition(".")[2]
    return str(branch).rpartition(".")[2]


def _distinct(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        number, unique = 2, name
        while unique in found:
            number, unique = number + 1, f"{name}_{number}"
        found.append(unique)
    return found


def _unusable(path: str, what: str) -> UserError:
    return UserError(SCHEMA_UNUSABLE, f"the Avro schema cannot be used: {f'`{path}`' if path else 'it'} {what}")

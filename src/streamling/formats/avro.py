"""Avro schemas as columns of our own types.

Only schemas are read here, as text: neither an Avro library nor Arrow is needed to find the columns of a topic.
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

# A record inside a record takes three levels. Python's stack would end at several hundred.
_MOST_LEVELS = 150
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
# A logical type on any other base is ignored, as the Avro specification requires.
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
# The reader separates values by their bytes.
_ONLY_FIELDS = (
    "values without bytes, such as null, can be fields, but neither items of lists and maps nor part of unions"
)
_DURATION_BYTES = 12

Json = Any


@dataclass(frozen=True, slots=True)
class AvroRows:
    """The rows that a record schema describes: columns, `_gs_op` last, and the primary key from its `doc`."""

    schema: Schema
    primary_key: tuple[str, ...]


def rows_of(text: str, *, references: Sequence[str] = ()) -> AvroRows:
    """The rows of a record schema; `references` are the schemas of types that it uses without defining them.

    Raises UserError SCHEMA_UNUSABLE.
    """
    types = _Types()
    for reference in references:
        types.type(_parse(reference), "the referenced schema", "")
    root = record_of(_parse(text))
    fields = types.fields(root, "", _namespace(root, ""))
    columns = [f for f in fields if f.name != OPERATION_COLUMN]
    operation = [f for f in fields if f.name == OPERATION_COLUMN]
    if operation and operation[0].type != STRING:
        raise _unusable(OPERATION_COLUMN, f"must be text, the operation of the row; it is {operation[0].type}")
    return AvroRows(Schema((*columns, *(operation or (OPERATION_FIELD,)))), _primary_key(root))


def type_of(schema: Json) -> DataType:
    """The type of a schema without references to named types, as `expand_schema` returns it."""
    return _Types().type(schema, "", "")[0]


def expand_schema(text: str, references: Sequence[str] = ()) -> Json:
    """The record schema with every named type written out where it is used, each time under a new name.

    A root that is a union of null and a record stays one. Raises UserError SCHEMA_UNUSABLE.
    """
    expansion = _Expansion()
    for reference in references:
        expansion.expand(_parse(reference), "", "")
    root = _parse(text)
    record_of(root)
    return expansion.expand(root, "", "")


def record_of(root: Json) -> dict[str, Json]:
    """The record of a root schema: the root itself, or the only record in a union with null."""
    branches = root if isinstance(root, list) else [root]
    records = [b for b in branches if isinstance(b, dict) and b.get("type") == "record"]
    if len(records) != 1 or any(b not in (records[0], "null", {"type": "null"}) for b in branches):
        raise UserError(
            SCHEMA_UNUSABLE, "the Avro schema must be a record, or a union of null and one record, to have columns"
        )
    return records[0]


def branches_of(schema: Json) -> tuple[list[Json], bool]:
    """The branches of a union other than null, and whether null is one of them. Any schema counts as a union."""
    branches = schema if isinstance(schema, list) else [schema]
    others = [b for b in branches if not _is_null(b)]
    return others, len(others) < len(branches)


def is_byteless(schema: Json) -> bool:
    """Whether values have no bytes: null, and records of only such fields. Named types count as having bytes."""
    if not isinstance(schema, dict) or isinstance(schema.get("type"), list):
        return _is_null(schema)
    if isinstance(schema.get("type"), dict):
        return is_byteless(schema["type"])
    return _is_null(schema) or (
        schema.get("type") in ("record", "error") and all(is_byteless(f["type"]) for f in schema.get("fields") or ())
    )


def branch_names(branches: Sequence[Json]) -> list[str]:
    """The names of the fields of the struct that a union is cast to."""
    return _distinct(_branch_name(branch) for branch in branches)


def has_known_logical_type(schema: Json) -> bool:
    """Whether the logical type of a schema is one that we map to a type of its own."""
    if schema.get("logicalType") == "decimal":
        return schema.get("type") in ("bytes", "fixed") and _decimal(schema) is not None
    return (schema.get("type"), schema.get("logicalType")) in _LOGICAL


def _is_null(schema: Json) -> bool:
    return schema == "null" or (isinstance(schema, dict) and schema.get("type") == "null")


class _Expansion:
    """Writes out named types. Each copy gets its own namespace, because a name may be defined only once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Json, str]] = {}
        self._open: list[str] = []
        self._copies = 0

    def expand(self, schema: Json, namespace: str, path: str) -> Json:
        if isinstance(schema, list):
            return [self.expand(branch, namespace, path) for branch in schema]
        if isinstance(schema, str):
            return schema if schema in _PRIMITIVES else self._resolve(schema, namespace, path)
        if not isinstance(schema, dict):
            raise _unusable(path, f"has the type {schema!r}, which is not an Avro type")
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            return self.expand(kind, namespace, path)
        if kind in ("record", "error", "enum", "fixed"):
            self._known[_full_name(schema, namespace)] = (schema, namespace)
            return self._copy(schema, namespace, path)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            items = self.expand(schema.get(inner), namespace, path)
            return {**schema, inner: items}
        if kind in _PRIMITIVES:
            return schema
        return self._resolve(str(kind), namespace, path)

    def _resolve(self, name: str, namespace: str, path: str) -> Json:
        for candidate in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
            if candidate in self._open:
                raise _unusable(
                    path, f"has the type '{candidate}', which contains itself; recursive types cannot be columns"
                )
            if candidate in self._known:
                return self._copy(*self._known[candidate], path)
        raise _unusable(path, f"has the type '{name}', which the schema does not define")

    def _copy(self, schema: Json, around: str, path: str) -> Json:
        name, namespace = _full_name(schema, around), _namespace(schema, around)
        self._copies += 1
        own = {k: v for k, v in schema.items() if k not in ("namespace", "aliases")}
        own["name"] = f"n{self._copies}.{name.rpartition('.')[2]}"
        if schema["type"] not in ("record", "error"):
            return own
        self._open.append(name)
        own["type"] = "record"
        own["fields"] = [
            {**f, "type": self.expand(f["type"], namespace, f"{path}.{f['name']}" if path else f["name"])}
            for f in schema.get("fields") or ()
        ]
        self._open.pop()
        return own


def _parse(text: str) -> Json:
    try:
        schema = json.loads(text)
        if _height(schema) > _MOST_LEVELS:
            raise RecursionError
        return schema
    except RecursionError:
        message = f"the Avro schema is nested more than {_MOST_LEVELS} levels deep"
        raise UserError(SCHEMA_UNUSABLE, message) from None
    except ValueError as error:
        # Some versions of the registry return a schema that is one word without quotes.
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise UserError(SCHEMA_UNUSABLE, f"the Avro schema is not JSON: {error}", cause=error) from error


def _height(value: Json) -> int:
    """How deeply lists and maps are nested."""
    height, level = 0, [value]
    while level := [inner for outer in level if isinstance(outer, dict | list) for inner in _children(outer)]:
        height += 1
        if height > _MOST_LEVELS:
            break
    return height


def _children(value: dict[str, Json] | list[Json]) -> Iterable[Json]:
    return value.values() if isinstance(value, dict) else value


def _primary_key(root: dict[str, Json]) -> tuple[str, ...]:
    for name in ("doc", "connect.doc"):
        try:
            keys = json.loads(root[name])["primaryKeys"]
        except (KeyError, TypeError, ValueError):
            continue  # a doc for human readers
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
    """Maps types, and remembers named ones: a schema defines a name once and then refers to it."""

    known: dict[str, DataType] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def fields(self, record: dict[str, Json], path: str, namespace: str) -> list[Field]:
        self.open.append(_full_name(record, namespace))
        fields = []
        for one in record.get("fields") or ():
            if not isinstance(one, dict) or "name" not in one or "type" not in one:
                raise _unusable(path, "has a field without name or type")
            inner = f"{path}.{one['name']}" if path else str(one["name"])
            fields.append(Field(str(one["name"]), *self.type(one["type"], inner, namespace)))
        self.open.pop()
        return fields

    def type(self, schema: Json, path: str, namespace: str) -> tuple[DataType, bool]:
        """The type and whether it is nullable."""
        if isinstance(schema, list):
            return self._union(schema, path, namespace)
        if isinstance(schema, str):
            type_ = _PRIMITIVES.get(schema) or self._named(schema, path, namespace)
            return type_, type_ is NULL
        if not isinstance(schema, dict):
            raise _unusable(path, f"has the type {schema!r}, which is not an Avro type")
        if isinstance(schema.get("type"), dict | list):
            return self.type(schema["type"], path, namespace)
        type_ = self._complex(schema, path, namespace)
        return type_, type_ is NULL

    def _complex(self, schema: dict[str, Json], path: str, namespace: str) -> DataType:
        match base := schema.get("type"):
            case "record" | "error":
                inner = _namespace(schema, namespace)
                return self._remember(schema, namespace, struct_of(*self.fields(schema, path, inner)))
            case "enum":
                symbols = schema.get("symbols")
                if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                    raise _unusable(path, "is an enum without a list of symbols")
                return self._remember(schema, namespace, STRING)
            case "fixed":
                return self._remember(schema, namespace, _fixed(schema))
            case "array":
                return list_of(self._items(schema, "items", f"{path}[]", namespace))
            case "map":
                return map_of(self._items(schema, "values", f"{path}{{}}", namespace))
            case "bytes" if schema.get("logicalType") == "decimal":
                return _decimal(schema) or BINARY
            case str():
                logical = _LOGICAL.get((base, str(schema.get("logicalType"))))
                return logical or _PRIMITIVES.get(base) or self._named(base, path, namespace)
        raise _unusable(path, f"has the type {base!r}, which is not an Avro type")

    def _items(self, schema: dict[str, Json], key: str, path: str, namespace: str) -> DataType:
        type_ = self.type(schema.get(key), path, namespace)[0]
        if _is_without_bytes(type_):
            raise _unusable(path, f"has no bytes: {_ONLY_FIELDS}")
        return type_

    def _union(self, branches: list[Json], path: str, namespace: str) -> tuple[DataType, bool]:
        others, nullable = branches_of(branches)
        if not others:
            return NULL, True
        types = [self.type(branch, path, namespace)[0] for branch in others]
        if any(map(_is_without_bytes, types)):
            raise _unusable(path, f"may be a record without bytes: {_ONLY_FIELDS}")
        if len(types) == 1:
            return types[0], nullable
        return struct_of(*(Field(n, t) for n, t in zip(branch_names(others), types, strict=True))), nullable

    def _named(self, name: str, path: str, namespace: str) -> DataType:
        candidates = (name,) if "." in name else (f"{namespace}.{name}" if namespace else name, name)
        for candidate in candidates:
            if candidate in self.open:
                raise _unusable(
                    path, f"has the type '{candidate}', which contains itself; recursive types cannot be columns"
                )
            if candidate in self.known:
                return self.known[candidate]
        raise _unusable(path, f"has the type '{name}', which the schema does not define")

    def _remember(self, schema: dict[str, Json], namespace: str, type_: DataType) -> DataType:
        self.known[_full_name(schema, namespace)] = type_
        return type_


def _is_without_bytes(type_: DataType) -> bool:
    if type_.kind == "binary":
        return type_.length == 0
    return type_ is NULL or (type_.kind == "struct" and all(_is_without_bytes(f.type) for f in type_.fields))


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
    """None if precision or scale are invalid: the values are then plain bytes."""
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
    distinct: list[str] = []
    for name in names:
        number, unique = 2, name
        while unique in distinct:
            number, unique = number + 1, f"{name}_{number}"
        distinct.append(unique)
    return distinct


def _unusable(path: str, what: str) -> UserError:
    return UserError(SCHEMA_UNUSABLE, f"the Avro schema cannot be used: {f'`{path}`' if path else 'it'} {what}")

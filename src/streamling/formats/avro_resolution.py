"""Avro schema resolution, column by column: arrays of the writer schema are cast to arrays of the reader schema.

Fields are matched by name or alias, missing ones get their default, others are dropped, numbers are widened. What
depends on the values, such as a null that the reader schema does not allow, raises ArrowInvalid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.arrow import arrow_type, cast_array
from streamling.formats.avro import branch_names, branches_of, is_byteless, type_of
from streamling.formats.avro_values import canonical_uuids, cast_values, decimal_texts, split
from streamling.plan.types import DataType

Json = Any
Resolve = Callable[[pa.Array], pa.Array]
_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes", "enum"),
    "bytes": ("string",),
    "enum": ("string",),
}
_FLOATS = ("float", "double")


class Unresolvable(Exception):
    """No value of the writer schema can become one of the reader schema."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """How schemas are matched. `by_name`: without aliases and defaults; a missing field is null, if it is nullable."""

    by_name: bool = False

    def value(self, writer: Json, reader: Json, path: str) -> Resolve:
        """A function that casts arrays of the writer's type to the reader's. Raises Unresolvable.

        Nulls stay null; the caller checks whether they are allowed.
        """
        writers, readers = branches_of(writer)[0], branches_of(reader)[0]
        type_ = arrow_type(type_of(reader))
        if not readers or not writers:
            if writers:
                raise Unresolvable(f"{_at(path)} is always null in the reader schema")
            return lambda column: pa.nulls(len(column), type_)
        branches = [self._branch(branch, readers, path, alone=len(writers) == 1) for branch in writers]
        if isinstance(writer, list) and len(writer) == 1:  # decoded as a union of one branch
            branches = [(index, _chain(lambda column: split(column)[0], resolve)) for index, resolve in branches]
        if len(readers) == 1:
            return _merge([resolve for _, resolve in branches])
        return _to_struct(branches, branch_names(readers), type_)

    def _branch(self, writer: Json, readers: Sequence[Json], path: str, *, alone: bool) -> tuple[int, Resolve]:
        """The reader branch for a writer branch, and the cast: the first of the same kind, else the first that fits."""
        problem: Unresolvable | None = None
        for index in sorted(range(len(readers)), key=lambda n: not _is_alike(writer, readers[n])):
            try:
                return index, self._single(writer, readers[index], path)
            except Unresolvable as error:
                problem = problem or error
        if alone and problem is not None:
            raise problem
        return 0, _reject_values(arrow_type(type_of(readers[0])), f"{_at(path)}: {problem}")

    def _single(self, writer: Json, reader: Json, path: str) -> Resolve:
        before, after = _kind(writer), _kind(reader)
        match before, after:
            case "record", "record":
                resolve_fields = self.record(writer, reader, path)
                type_ = arrow_type(type_of(reader))
                return lambda column: _struct(column, resolve_fields(column), type_)
            case "array", "array":
                return self._list(writer["items"], reader["items"], f"{path}[]")
            case "map", "map":
                return self._map(writer["values"], reader["values"], f"{path}{{}}")
        return _leaf(writer, reader, path)

    def record(self, writer: Json, reader: Json, path: str = "") -> Callable[[pa.Array], list[pa.Array]]:
        """A function that casts structs of the writer to the columns of a reader record. Raises Unresolvable."""
        fields = [
            self._field(writer, field, f"{path}.{field['name']}" if path else field["name"])
            for field in reader["fields"]
        ]

        def columns(struct: pa.Array) -> list[pa.Array]:
            return [field(struct) for field in fields]

        return columns

    def _field(self, writer: Json, field: Json, path: str) -> Resolve:
        names = (field["name"], *(() if self.by_name else field.get("aliases") or ()))
        source = next((f for name in names for f in writer["fields"] if f["name"] == name), None)
        nullable = branches_of(field["type"])[1]
        if source is None:
            default = self._default(field, path, nullable)
            return lambda struct: default.take(pa.repeat(pa.scalar(0, pa.int32()), len(struct)))
        resolve, name = self.value(source["type"], field["type"], path), source["name"]
        # Fields without bytes (null, empty records) are not in the decoding schema; they are filled in here.
        is_decoded = not is_byteless(source["type"])

        def resolve_field(struct: pa.Array) -> pa.Array:
            column = resolve(_child(struct, name) if is_decoded else struct)
            if not nullable and column.null_count:
                missing = pc.and_(column.is_null(), struct.is_valid())
                if pc.any(missing).as_py():
                    raise pa.ArrowInvalid(f"{_at(path)} is null, which the reader schema does not allow")
            return column

        return resolve_field

    def _default(self, field: Json, path: str, nullable: bool) -> pa.Array:
        if not self.by_name and "default" in field:
            return default_array(field["type"], field["default"])
        if nullable and self.by_name:
            return pa.nulls(1, arrow_type(type_of(field["type"])))
        what = "may not be null" if self.by_name else "has no default"
        raise Unresolvable(f"{_at(path)} is missing in the writer schema, and {what}")

    def _list(self, writer: Json, reader: Json, path: str) -> Resolve:
        items = self._items(writer, reader, path)
        return lambda column: pa.ListArray.from_arrays(column.offsets, items(column.values), mask=column.is_null())

    def _map(self, writer: Json, reader: Json, path: str) -> Resolve:
        items = self._items(writer, reader, path)
        return lambda column: pa.MapArray.from_arrays(
            column.offsets, column.keys.cast(pa.string()), items(column.items), mask=column.is_null()
        )

    def _items(self, writer: Json, reader: Json, path: str) -> Resolve:
        resolve, nullable = self.value(writer, reader, path), branches_of(reader)[1]

        def items(values: pa.Array) -> pa.Array:
            resolved = resolve(values)
            if not nullable and resolved.null_count:
                raise pa.ArrowInvalid(f"{_at(path)} is null, which the reader schema does not allow")
            return resolved

        return items


def _child(struct: pa.Array, name: str) -> pa.Array:
    """A field of structs, null where the struct is null: the child array has arbitrary values there."""
    child = struct.field(name)
    return pc.struct_field(struct, name) if struct.null_count and not pa.types.is_union(child.type) else child


def default_array(schema: Json, value: Json) -> pa.Array:
    """The default of a field as an array of one value. Raises Unresolvable."""
    branches, nullable = branches_of(schema)
    whole = arrow_type(type_of(schema))
    if value is None and nullable:
        return pa.nulls(1, whole)
    for index, branch in enumerate(branches):
        try:
            default = _default_value(branch, value)
        except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError, KeyError, TypeError, ValueError, ArithmeticError):
            continue
        if len(branches) == 1:
            return default
        names = branch_names(branches)
        children = [default if n == index else pa.nulls(1, whole.field(n).type) for n in range(len(branches))]
        return pa.StructArray.from_arrays(children, fields=[whole.field(n) for n in range(len(names))])
    raise Unresolvable(f"the default {value!r} is not a valid value of its field")


def _default_value(schema: Json, value: Json) -> pa.Array:
    type_ = type_of(schema)
    carrier = arrow_type(type_)
    match _kind(schema):
        case "record":
            fields = schema["fields"]
            children = [
                default_array(f["type"], value[f["name"]] if f["name"] in value else f["default"]) for f in fields
            ]
            return pa.StructArray.from_arrays(children, fields=[carrier.field(n) for n in range(len(fields))])
        case "array":
            items = [default_array(schema["items"], item) for item in value]
            values = pa.concat_arrays(items) if items else pa.nulls(0, carrier.value_type)
            return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), values)
        case "map":
            items = [default_array(schema["values"], item) for item in value.values()]
            values = pa.concat_arrays(items) if items else pa.nulls(0, carrier.item_type)
            return pa.MapArray.from_arrays(
                pa.array([0, len(items)], pa.int32()), pa.array(list(value), pa.string()), values
            )
        case "bytes" | "fixed":
            raw = value.encode("latin-1")
            if type_.kind in ("decimal", "decimal_arb"):
                texts = decimal_texts([raw], type_)
                return pa.array(texts if type_.wide else [Decimal(text or 0) for text in texts], carrier)
            return _from_raw(pa.array([raw], pa.binary()), type_)
        case "int" | "long" as base:
            return _from_raw(pa.array([value], pa.int32() if base == "int" else pa.int64()), type_)
        case "float" | "double":
            return pa.array([float(value)], carrier)
        case "boolean" if not isinstance(value, bool):
            raise ValueError(value)
    return pa.array([value], carrier)


def _leaf(writer: Json, reader: Json, path: str) -> Resolve:
    before, after = _kind(writer), _kind(reader)
    written, wanted = type_of(writer), type_of(reader)
    if before != after and after not in _WIDER.get(before, ()):
        raise Unresolvable(f"{_at(path)} was written as {written} and cannot be read as {wanted}")
    if before == after == "fixed" and writer.get("size") != reader.get("size"):
        raise Unresolvable(f"{_at(path)} was written as {written} and cannot be read as {wanted}: the sizes differ")
    cast = _leaf_cast(before, written, wanted)
    if isinstance(reader, dict) and (after, reader.get("logicalType")) == ("string", "uuid"):
        cast = _chain(cast, canonical_uuids)
    if after == "enum":
        return _known_symbols(_naming_column(cast, path), reader, path)
    return _naming_column(cast, path)


def _chain(first: Resolve, second: Resolve) -> Resolve:
    return lambda column: second(first(column))


def _naming_column(cast: Resolve, path: str) -> Resolve:
    """The cast, with the column's path in its errors."""

    def cast_column(column: pa.Array) -> pa.Array:
        try:
            return cast(column)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"{_at(path)}: {error}") from error

    return cast_column


def _leaf_cast(before: str, written: DataType, wanted: DataType) -> Resolve:
    decimals = ("decimal", "decimal_arb")
    if written.kind in decimals and wanted.kind not in decimals:
        raise Unresolvable(f"it was written as {written} and cannot be read as {wanted}")
    if before in ("int", "long") and written.kind in ("int32", "int64"):
        return lambda column: _from_raw(column, wanted)
    if written.kind in ("timestamp", "date32", "time32", "time64") and wanted.kind in ("int64", "int32", *_FLOATS):
        return lambda column: _from_raw(column.cast(_integers(column.type)), wanted)
    return lambda column: _cast(cast_values(column, written), arrow_type(wanted))


def _integers(type_: pa.DataType) -> pa.DataType:
    return pa.int32() if type_.bit_width == 32 else pa.int64()


def _from_raw(column: pa.Array, type_: DataType) -> pa.Array:
    """Casts plain numbers or bytes to a logical type that is stored in them."""
    match type_.kind:
        case "timestamp":
            column = column.cast(pa.int64()).cast(pa.timestamp(type_.unit or "us"))
        case "time32":
            column = column.cast(pa.int32()).cast(pa.time32("ms"))
        case "time64":
            column = column.cast(pa.int64()).cast(pa.time64("us"))
        case "date32":
            column = column.cast(pa.int32())
        case "float32" | "float64":
            # A number without an exact float is rounded, as in any widening.
            return column.cast(arrow_type(type_), safe=False)
    return _cast(cast_values(column, type_), arrow_type(type_))


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if column.type == type_:
        return column
    if pa.types.is_decimal(column.type) and pa.types.is_string(type_):
        return cast_array(column, type_)
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns" and pa.types.is_timestamp(type_):
        return _microseconds(column).view(type_)
    return column.cast(type_)


def _microseconds(column: pa.Array) -> pa.Array:
    """Nanoseconds as microseconds, rounded down, also before 1970."""
    numbers = column.view(pa.int64())
    whole = pc.divide(numbers, 1000)
    before = pc.less(numbers, pc.multiply(whole, 1000))
    return pc.subtract(whole, before.cast(pa.int64()))


def _known_symbols(cast: Resolve, reader: Json, path: str) -> Resolve:
    symbols, default = pa.array(reader.get("symbols") or [], pa.string()), reader.get("default")

    def cast_symbols(column: pa.Array) -> pa.Array:
        values = cast(column)
        unknown = pc.and_(pc.invert(pc.is_in(values, symbols)), values.is_valid())
        if not pc.any(unknown, min_count=0).as_py():
            return values
        if default is None:
            value = values.filter(unknown)[0].as_py()
            raise pa.ArrowInvalid(f"{_at(path)}: '{value}' is not a symbol of the reader schema")
        return pc.if_else(unknown, default, values)

    return cast_symbols


def _struct(column: pa.Array, children: list[pa.Array], type_: pa.DataType) -> pa.Array:
    fields = [type_.field(n) for n in range(type_.num_fields)]
    if not fields:
        return pa.array([{} if valid else None for valid in column.is_valid().to_pylist()], type_)
    return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())


def _merge(branches: Sequence[Resolve]) -> Resolve:
    """The values of all writer branches in one column."""
    if len(branches) == 1:
        return branches[0]
    return lambda column: pc.coalesce(*(r(part) for r, part in zip(branches, split(column), strict=True)))


def _to_struct(branches: Sequence[tuple[int, Resolve]], names: Sequence[str], type_: pa.DataType) -> Resolve:
    """A struct with a field per reader branch, of which one has a value; null where the value is null."""

    def cast_union(column: pa.Array) -> pa.Array:
        arrays = split(column) if len(branches) > 1 else [column]
        values: dict[int, list[pa.Array]] = {}
        for (index, resolve), array in zip(branches, arrays, strict=True):
            values.setdefault(index, []).append(resolve(array))
        children = [
            pc.coalesce(*values[n]) if n in values else pa.nulls(len(column), type_.field(n).type)
            for n in range(len(names))
        ]
        present = [child.is_valid() for child in children]
        mask = present[0]
        for one in present[1:]:
            mask = pc.or_(mask, one)
        fields = [type_.field(n) for n in range(len(names))]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pc.invert(mask))

    return cast_union


def _reject_values(type_: pa.DataType, problem: str) -> Resolve:
    def reject(column: pa.Array) -> pa.Array:
        if column.null_count < len(column):
            raise pa.ArrowInvalid(problem)
        return pa.nulls(len(column), type_)

    return reject


def _kind(schema: Json) -> str:
    return str(schema.get("type")) if isinstance(schema, dict) else str(schema)


def _is_alike(writer: Json, reader: Json) -> bool:
    if _kind(writer) != _kind(reader):
        return False
    if isinstance(writer, dict) and "name" in writer and isinstance(reader, dict):
        return bool(writer["name"].rpartition(".")[2] == str(reader.get("name", "")).rpartition(".")[2])
    return True


def _at(path: str) -> str:
    return f"'{path}'" if path else "it"

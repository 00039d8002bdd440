"""Functions for structs and maps. A key that a map does not have gives NULL."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.errors import SQL_UNKNOWN_COLUMN
from streamling.plan.sql.casts import cast
from streamling.plan.sql.coercions import cast_to_common, common_type
from streamling.plan.sql.functions.signature import ANY, LIST, LITERAL_TEXT, MAP, Function
from streamling.plan.sql.spark_types import check_computable, computed_type
from streamling.plan.sql.values import Refusal, Value, any_nullable, string_literal, text_value
from streamling.plan.types import NULL, STRING, DataType, Field, list_of, map_of, struct_of


def field(value: Value, name: str) -> Value:
    """A field of a struct, or the value of a map's key, NULL if it is absent."""
    if value.type.kind == "map":
        return map_value(value, text_value(name))
    if value.type.kind != "struct":
        raise Refusal(f"a value of type {value.type} has no field `{name}`")
    member = next((f for f in value.type.fields if f.name == name), None)
    if member is None:
        names = ", ".join(f.name for f in value.type.fields)
        message = f"No field named {name} in the struct. Valid fields are {names}."
        raise Refusal(message, condition=SQL_UNKNOWN_COLUMN)
    return Value(f"{value.text}[{string_literal(name)}]", member.type, value.nullable or member.nullable)


def map_value(value: Value, key: Value) -> Value:
    """The value of a map's key, NULL if it is absent."""
    return Value(f"try_element_at({value.text}, {_key(value, key).text})", _sides(value)[1])


def _key(value: Value, key: Value) -> Value:
    type_ = computed_type(_sides(value)[0])
    common = common_type(key.type, type_)
    if common is None:
        raise Refusal(f"the keys of the map are {type_}, got {key.type}")
    # A number outside of the range of the key type is not in the map: NULL, not an error.
    return cast(key, type_, safe=common != type_)


def _sides(value: Value) -> tuple[DataType, DataType]:
    """The types of keys and values."""
    if value.type.item is None:
        raise AssertionError(f"{value.type} is not a map")
    return value.type.key or STRING, value.type.item


def _named_struct(arguments: Sequence[Value]) -> Value:
    if len(arguments) % 2:
        raise Refusal("`named_struct(name, value, ..)` needs pairs of arguments")
    fields: list[Field] = []
    parts: list[str] = []
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        if not isinstance(name.constant, str):
            raise Refusal("a name in `named_struct(name, value, ..)` must be a text literal")
        fields.append(Field(name.constant, value.type, value.nullable))
        parts += [name.text, value.text]
    return Value(f"named_struct({', '.join(parts)})", struct_of(*fields), nullable=False)


def _struct(arguments: Sequence[Value]) -> Value:
    names = [text_value(f"c{n}") for n in range(len(arguments))]
    return _named_struct([part for pair in zip(names, arguments, strict=True) for part in pair])


def _get_field(arguments: Sequence[Value]) -> Value:
    return field(arguments[0], str(arguments[1].constant))


def _map(arguments: Sequence[Value]) -> Value:
    keys, values = arguments
    if keys.type.item is None or values.type.item is None:
        raise AssertionError("lists were admitted")
    type_ = _map_type(keys.type.item, values.type.item)
    return Value(f"map_from_arrays({keys.text}, {values.text})", type_, any_nullable(arguments))


def _make_map(arguments: Sequence[Value]) -> Value:
    if len(arguments) % 2 or not arguments:
        raise Refusal("`make_map(key, value, ..)` needs pairs of arguments")
    key, keys = cast_to_common(arguments[::2])
    item, items = cast_to_common(arguments[1::2], text_wins=True)
    parts = ", ".join(f"{k.text}, {i.text}" for k, i in zip(keys, items, strict=True))
    return Value(f"map({parts})", _map_type(key, item), nullable=False)


def _map_type(key: DataType, item: DataType) -> DataType:
    if key == NULL or key.kind == "map":
        raise Refusal(f"{key} cannot be the key of a map")
    check_computable(key)
    return map_of(item, key)


def _map_keys(arguments: Sequence[Value]) -> Value:
    (value,) = arguments
    return Value(f"map_keys({value.text})", list_of(_sides(value)[0]), value.nullable)


def _map_values(arguments: Sequence[Value]) -> Value:
    (value,) = arguments
    return Value(f"map_values({value.text})", list_of(_sides(value)[1]), value.nullable)


def map_entries(arguments: Sequence[Value]) -> Value:
    """A list of structs with the fields `key` and `value`."""
    (value,) = arguments
    key, item = _sides(value)
    entry = struct_of(Field("key", key, nullable=False), Field("value", item))
    return Value(f"map_entries({value.text})", list_of(entry), value.nullable)


def _map_extract(arguments: Sequence[Value]) -> Value:
    """The value of a key as a list of one item."""
    value = map_value(*arguments)
    text = f"CASE WHEN {arguments[0].text} IS NOT NULL THEN array({value.text}) END"
    return Value(text, list_of(value.type), arguments[0].nullable)


_MAP_EXTRACT = Function("map_extract(map, key)", (MAP, ANY), _map_extract)

FUNCTIONS: dict[str, Function] = {
    "struct": Function("struct(value, ..)", (ANY,), _struct, variadic=True),
    "row": Function("struct(value, ..)", (ANY,), _struct, variadic=True),
    "named_struct": Function("named_struct(name, value, ..)", (ANY,), _named_struct, variadic=True),
    "get_field": Function("get_field(struct, name)", (ANY, LITERAL_TEXT), _get_field),
    "map": Function("map(keys, values)", (LIST, LIST), _map),
    "make_map": Function("make_map(key, value, ..)", (ANY,), _make_map, variadic=True),
    "map_keys": Function("map_keys(map)", (MAP,), _map_keys),
    "map_values": Function("map_values(map)", (MAP,), _map_values),
    "map_entries": Function("map_entries(map)", (MAP,), map_entries),
    "map_extract": _MAP_EXTRACT,
    "element_at": _MAP_EXTRACT,
}

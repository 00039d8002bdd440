"""Functions of lists and structs. Positions in lists count from 1, negative ones from the end."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.errors import SQL_UNKNOWN_COLUMN
from streamling.plan.sql.casts import cast
from streamling.plan.sql.coercions import common_type, converted, is_integer, together
from streamling.plan.sql.functions.signature import ANY, INTEGER, LIST, LITERAL_TEXT, TEXT, Function, Parameter, form
from streamling.plan.sql.operators import comparable
from streamling.plan.sql.spark_types import computed_type, spark_type
from streamling.plan.sql.values import Refusal, Value, any_nullable, string_literal, text_value
from streamling.plan.types import BOOLEAN, INT64, NULL, STRING, DataType, Field, list_of


def make_array(arguments: Sequence[Value]) -> Value:
    """A list of the arguments, converted to their common type."""
    if not arguments:
        return Value("array()", list_of(NULL), nullable=False)
    type_, items = together(arguments, text_wins=True)
    return Value(f"array({', '.join(item.text for item in items)})", list_of(type_), nullable=False)


def item_type(value: Value) -> DataType:
    if value.type.item is None:
        raise AssertionError(f"{value.type} has no items")
    return value.type.item


def element(value: Value, position: Value) -> Value:
    """The item at a position, NULL outside of the list; Spark fails for position 0."""
    if not is_integer(position.type):
        raise Refusal(f"a position in a list is an integer, got {position.type}")
    type_ = item_type(value)
    if isinstance(position.constant, int):
        fits = 0 < abs(position.constant) < 2**31
        text = f"try_element_at({value.text}, {position.constant})" if fits else f"CAST(NULL AS {spark_type(type_)})"
        return Value(text, type_)
    index = f"nullif(try_cast({position.text} AS INT), 0)"
    return Value(f"try_element_at({value.text}, {index})", type_)


def field(value: Value, name: str) -> Value:
    """A member of a struct or the value of a map's key, NULL where it is absent."""
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
    """The value of a map's key, NULL where it is absent."""
    type_ = computed_type(value.type.key or STRING)
    if common_type(key.type, type_) is None:
        raise Refusal(f"the keys of the map are {value.type.key}, got {key.type}")
    wanted = cast(key, type_, safe=common_type(key.type, type_) != type_)
    return Value(f"try_element_at({value.text}, {wanted.text})", item_type(value))


def _array_has(arguments: Sequence[Value]) -> Value:
    """False where the list has no such item, NULL items or not; NULL for a NULL argument."""
    list_, wanted = arguments
    _, (_, item) = comparable((Value("NULL", item_type(list_)), wanted))
    typed = converted(list_, list_of(item.type))
    found = f"array_contains({typed.text}, {item.text})"
    absent = f"CASE WHEN {typed.text} IS NOT NULL AND {item.text} IS NOT NULL THEN false END"
    return Value(f"coalesce({found}, {absent})", BOOLEAN, any_nullable(arguments))


def _array_to_string(arguments: Sequence[Value]) -> Value:
    list_, *rest = arguments
    texts = converted(list_, list_of(STRING))
    return Value(f"array_join({', '.join(a.text for a in (texts, *rest))})", STRING, any_nullable(arguments))


def _named_struct(arguments: Sequence[Value]) -> Value:
    if len(arguments) % 2:
        raise Refusal("`named_struct(name, value, ..)` takes pairs")
    fields: list[Field] = []
    parts: list[str] = []
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        if not isinstance(name.constant, str):
            raise Refusal("a name in `named_struct(name, value, ..)` is a text literal")
        fields.append(Field(name.constant, value.type, value.nullable))
        parts += [name.text, value.text]
    return Value(f"named_struct({', '.join(parts)})", DataType("struct", fields=tuple(fields)), nullable=False)


def _struct(arguments: Sequence[Value]) -> Value:
    names = [Value(string_literal(f"c{n}"), STRING, False, f"c{n}") for n in range(len(arguments))]
    return _named_struct([part for pair in zip(names, arguments, strict=True) for part in pair])


def _sized(value: Value) -> Value:
    if value.type.kind not in ("list", "map"):
        raise Refusal(f"expected a list or map, got {value.type}")
    return value


def _get_field(arguments: Sequence[Value]) -> Value:
    return field(arguments[0], str(arguments[1].constant))


_ARRAY_HAS = Function("array_has(list, item)", (LIST, ANY), _array_has)
_SIZED = Parameter("a list or map", _sized)
_SIZE = form("CAST(size({0}) AS BIGINT)", INT64)

FUNCTIONS: dict[str, Function] = {
    "make_array": Function("make_array(item, ..)", (ANY,), make_array, optional=1, variadic=True),
    "array_length": Function("array_length(list)", (LIST,), _SIZE),
    "cardinality": Function("cardinality(list)", (_SIZED,), _SIZE),
    "array_has": _ARRAY_HAS,
    "array_contains": _ARRAY_HAS,
    "list_contains": _ARRAY_HAS,
    "array_element": Function("array_element(list, position)", (LIST, INTEGER), lambda a: element(a[0], a[1])),
    "array_to_string": Function(
        "array_to_string(list, separator[, null])", (LIST, TEXT, TEXT), _array_to_string, optional=1
    ),
    "struct": Function("struct(value, ..)", (ANY,), _struct, variadic=True),
    "named_struct": Function("named_struct(name, value, ..)", (ANY,), _named_struct, variadic=True),
    "get_field": Function("get_field(struct, name)", (ANY, LITERAL_TEXT), _get_field),
}

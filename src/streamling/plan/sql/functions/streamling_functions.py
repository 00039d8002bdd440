"""Functions that other SQL engines do not have."""

from __future__ import annotations

import math
from collections.abc import Sequence

from streamling.plan.sql.coercions import cast_to, cast_to_common, common_type, computed_value, is_float, is_integer
from streamling.plan.sql.functions.lists import array_has, item_type, series
from streamling.plan.sql.functions.signature import (
    ANY,
    BYTES,
    INTEGER,
    LIST,
    LITERAL_TEXT,
    MAP,
    TEXT,
    Function,
    Parameter,
    form,
    unless_null,
)
from streamling.plan.sql.functions.structs import field, map_entries
from streamling.plan.sql.functions.text_parts import split_text
from streamling.plan.sql.values import Refusal, Value, any_nullable, string_literal, text_value
from streamling.plan.types import BINARY, BOOLEAN, INT64, NULL, STRING, DataType, Field, list_of, struct_of


def _split_string(arguments: Sequence[Value]) -> Value:
    text, *rest = arguments
    separator = rest[0] if rest else text_value(" ")
    if separator.type == NULL:
        separator = text_value(" ")
    elif separator.nullable:
        separator = Value(f"coalesce({separator.text}, ' ')", STRING, nullable=False)
    parts = split_text(text, separator, empty=f"array({text.text})")
    return Value(parts, list_of(STRING), text.nullable)


def _generate_series(arguments: Sequence[Value]) -> Value:
    step = arguments[2].text if len(arguments) > 2 else "1L"
    text = series(arguments[0].text, arguments[1].text, step, "_gs_generate_series")
    return Value(unless_null(arguments, text), list_of(INT64), any_nullable(arguments))


def _zip_arrays(arguments: Sequence[Value]) -> Value:
    first, *others = arguments
    fields = [Field(f"f{n}", item_type(list_)) for n, list_ in enumerate(arguments)]
    members = ", ".join(["'f0', x", *(f"'f{n}', get({list_.text}, i)" for n, list_ in enumerate(others, start=1))])
    zipped = f"transform({first.text}, (x, i) -> named_struct({members}))"
    unequal = " OR ".join(f"size({first.text}) <> size({list_.text})" for list_ in others)
    refusal = string_literal("_gs_zip_arrays: the lists have different lengths")
    text = f"CASE WHEN {unequal} THEN raise_error({refusal}) ELSE {zipped} END"
    return Value(unless_null(arguments, text), list_of(struct_of(*fields)), any_nullable(arguments))


def _enumerate(arguments: Sequence[Value]) -> Value:
    (list_,) = arguments
    type_ = struct_of(Field("index", INT64, nullable=False), Field("value", item_type(list_)))
    text = f"transform({list_.text}, (x, i) -> named_struct('index', CAST(i AS BIGINT), 'value', x))"
    return Value(text, list_of(type_), list_.nullable)


def _member(list_: Value, name: Value) -> Value:
    """The field of an item `x` of a list of structs."""
    return field(Value("x", item_type(list_)), str(name.constant))


def _filter_text(arguments: Sequence[Value]) -> str:
    list_, name, value = arguments
    member = _member(list_, name)
    if value.type != NULL and _family(member.type) != _family(value.type):
        raise Refusal(f"the field `{name.constant}` is {member.type}, but the value is {value.type}")
    _, (left, right) = cast_to_common((member, value))
    return f"filter({list_.text}, x -> x IS NOT NULL AND {left.text} <=> {right.text})"


def _family(type_: DataType) -> str:
    if is_integer(type_):
        return "integer"
    if is_float(type_):
        return "float"
    if type_ in (STRING, BOOLEAN):
        return type_.kind
    raise Refusal(f"expected text, a boolean, an integer or a float, got {type_}")


def _filter(arguments: Sequence[Value]) -> Value:
    return Value(_filter_text(arguments), arguments[0].type, arguments[0].nullable)


def _filter_first(arguments: Sequence[Value]) -> Value:
    return Value(f"try_element_at({_filter_text(arguments)}, 1)", item_type(arguments[0]))


def _filter_in(arguments: Sequence[Value]) -> Value:
    list_, name, values = arguments
    member = _member(list_, name)
    if _family(member.type) != _family(item_type(values)):
        raise Refusal(f"the field `{name.constant}` is {member.type}, but the values are {item_type(values)}")
    contains = array_has((values, member))
    text = f"filter({list_.text}, x -> coalesce({contains.text}, false))"
    return Value(unless_null((list_, values), text), list_.type, any_nullable((list_, values)))


def _struct_field(arguments: Sequence[Value]) -> Value:
    list_, name = arguments
    member = _member(list_, name)
    if member.type != STRING:
        raise Refusal(f"the field `{name.constant}` is {member.type}, not text")
    return Value(f"transform({list_.text}, x -> {member.text})", list_of(STRING), list_.nullable)


def _hex_to_byte(arguments: Sequence[Value]) -> Value:
    text = arguments[0].text
    plain = f"regexp_replace({text}, '^0[xX]', '')"
    return Value(
        f"CASE WHEN rlike({plain}, '^([0-9A-Fa-f]{{2}})*$') THEN unhex({plain}) ELSE X'' END", BINARY, nullable=False
    )


def _reverse_bytes(arguments: Sequence[Value]) -> Value:
    (value,) = arguments
    if value.type.kind != "binary":
        raise Refusal(f"expected bytes, got {value.type}")
    if value.type.length == 32:
        return Value(f"reverse({value.text})", value.type, value.nullable)
    refusal = string_literal("reverse_bytes32: the value does not have 32 bytes")
    wrong = f"octet_length({value.text}) <> 32"
    text = f"CASE WHEN {wrong} THEN raise_error({refusal}) ELSE reverse({value.text}) END"
    return Value(text, DataType("binary", length=32), value.nullable)


def _coalesce_meta(arguments: Sequence[Value]) -> Value:
    type_ = arguments[0].type
    for other in arguments[1:]:
        if common_type(type_, other.type) is None or other.type.kind not in (type_.kind, "null"):
            raise Refusal(f"types {type_} and {other.type} are not compatible")
    nullable = all(argument.nullable for argument in arguments)
    return Value(f"coalesce({', '.join(a.text for a in arguments)})", type_, nullable)


def _conv_base(arguments: Sequence[Value]) -> Value:
    """NULL if the number has digits outside of its base, or if a base is not valid."""
    number, source, target = arguments[0], _base(arguments[1]), _base(arguments[2])
    if source is None or target is None:
        return Value("CAST(NULL AS STRING)", STRING)
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"[:source]
    valid = f"rlike(lower({number.text}), '^[+-]?[{digits}]+$')"
    plain = f"regexp_replace(lower({number.text}), '^[+-]', '')"
    trimmed = f"regexp_replace({_convert_base(plain, digits, target)}, '^0+(?=.)', '')"
    sign = f"CASE WHEN startswith({number.text}, '-') AND {trimmed} <> '0' THEN '-' ELSE '' END"
    return Value(f"CASE WHEN {valid} THEN concat({sign}, {trimmed}) END", STRING)


def _convert_base(text: str, digits: str, target: int) -> str:
    """Long multiplication, digit by digit, in limbs that are a power of the new base.

    Spark's `conv` is limited to 64 bits; it is used to write a limb.
    """
    width = int(math.log(2**56, target))
    limb = f"{target**width}L"
    digit = f"CAST(instr('{digits}', d) - 1 AS BIGINT)"
    start = f"named_struct('carry', {digit}, 'out', CAST(array() AS ARRAY<BIGINT>))"
    sum_ = f"(x * {len(digits)} + s.carry)"
    step = f"named_struct('carry', {sum_} div {limb}, 'out', concat(s.out, array({sum_} % {limb})))"
    end = "CASE WHEN s.carry > 0 THEN concat(s.out, array(s.carry)) ELSE s.out END"
    limbs = f"aggregate(split({text}, ''), array(0L), (a, d) -> aggregate(a, {start}, (s, x) -> {step}, s -> {end}))"
    return f"array_join(transform(reverse({limbs}), x -> lpad(lower(conv(x, 10, {target})), {width}, '0')), '')"


def _base(value: Value) -> int | None:
    written = value.constant
    if isinstance(written, bool) or not isinstance(written, int | str):
        raise Refusal("a base must be a literal")
    base = int(written) if isinstance(written, int) or written.isdecimal() else 0
    return base if 2 <= base <= 36 else None


def _looked_up(value: Value) -> Value:
    if value.type == NULL:
        value = cast_to(value, STRING)
    if value.type not in (STRING, list_of(STRING)):
        raise Refusal(
            f"expected text or a list of text, got {value.type}",
            hint="cast the value: dynamic_table_check(name, value::text)",
        )
    return value


def _no_build(arguments: Sequence[Value]) -> Value:
    """Calls of these functions have no Spark text: they are answered before Spark runs the query."""
    raise AssertionError(arguments)


def _structs(value: Value) -> Value:
    if value.type.kind != "list" or item_type(value).kind != "struct":
        raise Refusal(f"expected a list of structs, got {value.type}")
    return value


def _number_text(value: Value) -> Value:
    return cast_to(computed_value(value), STRING)


DYNAMIC_TABLE_CHECK = "dynamic_table_check"
DYNAMIC_TABLE_GET = "dynamic_table_get"
TABLE_CALLS = frozenset({DYNAMIC_TABLE_CHECK, DYNAMIC_TABLE_GET})
"""The functions that look values up in dynamic tables."""
_STRUCTS = Parameter("a list of structs", _structs)
_SPLIT = Function("_gs_split_string_to_array(text[, separator])", (TEXT, TEXT), _split_string, optional=1)

FUNCTIONS: dict[str, Function] = {
    "_gs_split_string_to_array": _SPLIT,
    "_gs_split_string_by": _SPLIT,
    "_gs_generate_series": Function(
        "_gs_generate_series(start, stop[, step])", (INTEGER,) * 3, _generate_series, optional=1
    ),
    "_gs_zip_arrays": Function("_gs_zip_arrays(list, list[, list[, list]])", (LIST,) * 4, _zip_arrays, optional=2),
    "array_enumerate": Function("array_enumerate(list)", (LIST,), _enumerate),
    "array_filter": Function("array_filter(structs, field, value)", (_STRUCTS, LITERAL_TEXT, ANY), _filter),
    "array_filter_first": Function(
        "array_filter_first(structs, field, value)", (_STRUCTS, LITERAL_TEXT, ANY), _filter_first
    ),
    "array_filter_in": Function("array_filter_in(structs, field, values)", (_STRUCTS, LITERAL_TEXT, LIST), _filter_in),
    "array_struct_field": Function("array_struct_field(structs, field)", (_STRUCTS, LITERAL_TEXT), _struct_field),
    "to_large_list": Function("to_large_list(list)", (LIST,), lambda a: a[0]),
    "_gs_map_to_array_struct": Function("_gs_map_to_array_struct(map)", (MAP,), map_entries),
    "_gs_hex_to_byte": Function("_gs_hex_to_byte(text)", (TEXT,), _hex_to_byte, once=True),
    "_gs_byte_to_hex": Function("_gs_byte_to_hex(bytes)", (BYTES,), form("lower(hex({0}))", STRING)),
    "_gs_conv_base": Function(
        "_gs_conv_base(number, from, to)", (Parameter("a number", _number_text), ANY, ANY), _conv_base, once=True
    ),
    "reverse_bytes32": Function("reverse_bytes32(bytes)", (ANY,), _reverse_bytes),
    "coalesce_meta": Function("coalesce_meta(value, ..)", (ANY,), _coalesce_meta, variadic=True),
    DYNAMIC_TABLE_CHECK: Function(
        "dynamic_table_check(name, value)", (TEXT, Parameter("text or a list of text", _looked_up)), _no_build
    ),
    DYNAMIC_TABLE_GET: Function("dynamic_table_get(name, key, column)", (LITERAL_TEXT, TEXT, LITERAL_TEXT), _no_build),
}

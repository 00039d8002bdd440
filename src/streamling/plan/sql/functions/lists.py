"""Functions for lists. Positions count from 1, negative ones from the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamling.plan.sql.coercions import cast_to, cast_to_common, is_integer
from streamling.plan.sql.functions.signature import ANY, INTEGER, LIST, POSITION, TEXT, Function, Parameter, form
from streamling.plan.sql.operators import cast_for_comparison
from streamling.plan.sql.spark_types import check_computable, spark_type
from streamling.plan.sql.values import Refusal, Value, any_nullable, string_literal
from streamling.plan.types import BOOLEAN, INT64, NULL, STRING, DataType, list_of


def make_array(arguments: Sequence[Value]) -> Value:
    """A list of the arguments, cast to their common type."""
    if not arguments:
        return Value("array()", list_of(NULL), nullable=False)
    type_, items = cast_to_common(arguments, text_wins=True)
    return Value(f"array({', '.join(item.text for item in items)})", list_of(type_), nullable=False)


def item_type(value: Value) -> DataType:
    if value.type.item is None:
        raise AssertionError(f"{value.type} has no items")
    return value.type.item


def element(value: Value, position: Value) -> Value:
    """The item at a position, NULL outside of the list and for position 0, where Spark fails."""
    if not is_integer(position.type):
        raise Refusal(f"a position in a list must be an integer, got {position.type}")
    type_ = item_type(value)
    if isinstance(position.constant, int):
        fits = 0 < abs(position.constant) < 2**31
        text = f"try_element_at({value.text}, {position.constant})" if fits else f"CAST(NULL AS {spark_type(type_)})"
        return Value(text, type_)
    index = f"nullif(try_cast({position.text} AS INT), 0)"
    return Value(f"try_element_at({value.text}, {index})", type_)


def slice_of(value: Value, first: Value, last: Value) -> Value:
    """The items from `first` to `last`, both included; positions outside of the list are skipped."""
    start, end = (POSITION.admit(bound) for bound in (first, last))
    size = f"size({value.text})"
    begin = _from_left(start, size, least=1)
    length = f"greatest(least({_from_left(end, size, least=0)}, {size}) - {begin} + 1, 0)"
    text = f"slice({value.text}, {begin}, {length})"
    nulls = [bound.text for bound in (start, end) if bound.nullable]
    if nulls:
        present = " AND ".join(f"{text} IS NOT NULL" for text in nulls)
        text = f"CASE WHEN {present} THEN {text} END"
    return Value(text, value.type, any_nullable((value, start, end)))


def _from_left(bound: Value, size: str, *, least: int) -> str:
    if isinstance(bound.constant, int):
        position = bound.constant
        return str(max(position, least)) if position >= 0 else f"greatest({size} + {position + 1}, {least})"
    return f"greatest(CASE WHEN {bound.text} < 0 THEN {size} + {bound.text} + 1 ELSE {bound.text} END, {least})"


def _with_item(arguments: Sequence[Value]) -> tuple[Value, Value]:
    """A list and a value, cast to the common type of the list's items and the value."""
    list_, value = arguments
    type_, (_, item) = cast_to_common((Value("NULL", item_type(list_)), value))
    return cast_to(list_, list_of(type_)), item


def _with_comparable_item(arguments: Sequence[Value]) -> tuple[Value, Value]:
    list_, item = _with_item(arguments)
    check_computable(item.type)
    return list_, item


def array_has(arguments: Sequence[Value]) -> Value:
    """False if the list does not have the item, even if it has NULL items; NULL for a NULL argument."""
    list_, item = _with_comparable_item(arguments)
    contains = f"array_contains({list_.text}, {item.text})"
    absent = f"CASE WHEN {list_.text} IS NOT NULL AND {item.text} IS NOT NULL THEN false END"
    return Value(f"coalesce({contains}, {absent})", BOOLEAN, any_nullable(arguments))


def _array_position(arguments: Sequence[Value]) -> Value:
    list_, item = _with_comparable_item(arguments)
    return Value(f"nullif(array_position({list_.text}, {item.text}), 0L)", INT64)


def _array_to_string(arguments: Sequence[Value]) -> Value:
    list_, *rest = arguments
    texts = cast_to(list_, list_of(STRING))
    return Value(f"array_join({', '.join(a.text for a in (texts, *rest))})", STRING, any_nullable(arguments))


def _append(arguments: Sequence[Value]) -> Value:
    list_, item = _with_item(arguments)
    return Value(f"concat({_or_empty(list_)}, array({item.text}))", list_.type, nullable=False)


def _prepend(arguments: Sequence[Value]) -> Value:
    list_, item = _with_item(arguments[::-1])
    return Value(f"concat(array({item.text}), {_or_empty(list_)})", list_.type, nullable=False)


def _or_empty(list_: Value) -> str:
    """The list, or an empty list for NULL."""
    return f"coalesce({list_.text}, array())" if list_.nullable else list_.text


def _concatenate(arguments: Sequence[Value]) -> Value:
    type_, lists = cast_to_common(arguments)
    nullable = all(list_.nullable for list_ in lists)
    text = f"concat({', '.join(_or_empty(list_) for list_ in lists)})"
    if nullable:
        text = f"CASE WHEN coalesce({', '.join(list_.text for list_ in lists)}) IS NOT NULL THEN {text} END"
    return Value(text, type_, nullable)


def _flatten(arguments: Sequence[Value]) -> Value:
    (value,) = arguments
    inner = item_type(value)
    if inner.kind != "list":
        return value
    return Value(f"flatten(filter({value.text}, x -> x IS NOT NULL))", inner, value.nullable)


def _remove_all(arguments: Sequence[Value]) -> Value:
    list_, item = _with_comparable_item(arguments)
    return Value(f"filter({list_.text}, x -> NOT (x <=> {item.text}))", list_.type, list_.nullable)


def _of_both(template: str, *, boolean: bool = False) -> Callable[[Sequence[Value]], Value]:
    def build(arguments: Sequence[Value]) -> Value:
        type_, (left, right) = cast_for_comparison(arguments)
        text = template.format(left.text, right.text)
        return Value(text, BOOLEAN if boolean else type_, any_nullable(arguments))

    return build


def _of_item(template: str) -> Callable[[Sequence[Value]], Value]:
    def build(arguments: Sequence[Value]) -> Value:
        check_computable(item_type(arguments[0]))
        return Value(template.format(arguments[0].text), item_type(arguments[0]))

    return build


def _distinct(arguments: Sequence[Value]) -> Value:
    check_computable(item_type(arguments[0]))
    return Value(f"array_distinct({arguments[0].text})", arguments[0].type, arguments[0].nullable)


def _array_length(arguments: Sequence[Value]) -> Value:
    """The number of items; with a dimension, those of the first list on that level."""
    value = arguments[0]
    levels = arguments[1].constant if len(arguments) > 1 else 1
    if not isinstance(levels, int) or levels < 1:
        raise Refusal("a dimension must be an integer literal of at least 1")
    for _ in range(levels - 1):
        if item_type(value).kind != "list":
            return Value("CAST(NULL AS BIGINT)", INT64)
        value = element(value, Value("1", INT64, nullable=False, constant=1))
    return Value(f"CAST(size({value.text}) AS BIGINT)", INT64, value.nullable)


def series(start: str, stop: str, step: str, name: str) -> str:
    """The numbers from `start` to `stop`, both included; Spark's `sequence` fails if there are none."""
    refusal = string_literal(f"{name}: the step is 0")
    return (
        f"CASE WHEN {step} = 0 THEN raise_error({refusal}) "
        f"WHEN ({step} > 0 AND {start} > {stop}) OR ({step} < 0 AND {start} < {stop}) THEN array() "
        f"ELSE sequence({start}, {stop}, {step}) END"
    )


def _series(name: str, *, included: bool, least: int) -> Function:
    def build(arguments: Sequence[Value]) -> Value:
        zero, one = Value("0L", INT64, nullable=False), Value("1L", INT64, nullable=False)
        bounds = (zero, arguments[0]) if len(arguments) == 1 else arguments[:2]
        step = arguments[2] if len(arguments) > 2 else one
        stop = bounds[1].text if included else f"({bounds[1].text} - CAST(sign({step.text}) AS BIGINT))"
        return Value(series(bounds[0].text, stop, step.text, name), list_of(INT64), any_nullable(arguments))

    return Function(f"{name}(start, stop[, step])", (INTEGER,) * 3, build, optional=3 - least)


def _slice(arguments: Sequence[Value]) -> Value:
    return slice_of(*arguments)


def _repeat(arguments: Sequence[Value]) -> Value:
    value, times = arguments
    return Value(f"array_repeat({value.text}, {times.text})", list_of(value.type), times.nullable)


def _list_or_map(value: Value) -> Value:
    if value.type.kind not in ("list", "map"):
        raise Refusal(f"expected a list or map, got {value.type}")
    return value


_LIST_OR_MAP = Parameter("a list or map", _list_or_map)
_SIZE = form("CAST(size({0}) AS BIGINT)", INT64)
_TO_STRING = Function("array_to_string(list, separator[, null])", (LIST, TEXT, TEXT), _array_to_string, optional=1)
_ITEM_MAX = "CASE WHEN size({0}) > 0 THEN array_max({0}) END"
_ITEM_MIN = "CASE WHEN size({0}) > 0 THEN array_min({0}) END"

_BY_NAME: dict[str, Function] = {
    "array_length": Function("array_length(list[, dimension])", (LIST, ANY), _array_length, optional=1),
    "array_has": Function("array_has(list, item)", (LIST, ANY), array_has),
    "array_contains": Function("array_has(list, item)", (LIST, ANY), array_has),
    "array_has_all": Function(
        "array_has_all(list, items)", (LIST, LIST), _of_both("(size(array_except({1}, {0})) = 0)", boolean=True)
    ),
    "array_has_any": Function(
        "array_has_any(list, items)", (LIST, LIST), _of_both("(size(array_intersect({0}, {1})) > 0)", boolean=True)
    ),
    "array_element": Function("array_element(list, position)", (LIST, INTEGER), lambda a: element(a[0], a[1])),
    "array_extract": Function("array_element(list, position)", (LIST, INTEGER), lambda a: element(a[0], a[1])),
    "array_slice": Function("array_slice(list, first, last)", (LIST, INTEGER, INTEGER), _slice),
    "array_position": Function("array_position(list, item)", (LIST, ANY), _array_position),
    "array_indexof": Function("array_position(list, item)", (LIST, ANY), _array_position),
    "array_to_string": _TO_STRING,
    "array_join": _TO_STRING,
    "array_append": Function("array_append(list, item)", (LIST, ANY), _append),
    "array_push_back": Function("array_append(list, item)", (LIST, ANY), _append),
    "array_prepend": Function("array_prepend(item, list)", (ANY, LIST), _prepend),
    "array_push_front": Function("array_prepend(item, list)", (ANY, LIST), _prepend),
    "array_concat": Function("array_concat(list, ..)", (LIST,), _concatenate, variadic=True),
    "array_cat": Function("array_concat(list, ..)", (LIST,), _concatenate, variadic=True),
    "array_distinct": Function("array_distinct(list)", (LIST,), _distinct),
    "array_reverse": Function("array_reverse(list)", (LIST,), form("reverse({0})")),
    "array_remove_all": Function("array_remove_all(list, item)", (LIST, ANY), _remove_all),
    "array_union": Function("array_union(list, other)", (LIST, LIST), _of_both("array_union({0}, {1})")),
    "array_intersect": Function("array_intersect(list, other)", (LIST, LIST), _of_both("array_intersect({0}, {1})")),
    "array_except": Function("array_except(list, other)", (LIST, LIST), _of_both("array_except({0}, {1})")),
    "array_max": Function("array_max(list)", (LIST,), _of_item(_ITEM_MAX)),
    "array_min": Function("array_min(list)", (LIST,), _of_item(_ITEM_MIN)),
    "array_repeat": Function("array_repeat(item, times)", (ANY, POSITION), _repeat),
}

FUNCTIONS: dict[str, Function] = {
    **_BY_NAME,
    **{name.replace("array_", "list_", 1): function for name, function in _BY_NAME.items()},
    "make_array": Function("make_array(item, ..)", (ANY,), make_array, optional=1, variadic=True),
    "make_list": Function("make_array(item, ..)", (ANY,), make_array, optional=1, variadic=True),
    "cardinality": Function("cardinality(list)", (_LIST_OR_MAP,), _SIZE),
    "empty": Function("empty(list)", (LIST,), form("(size({0}) = 0)", BOOLEAN)),
    "flatten": Function("flatten(list)", (LIST,), _flatten),
    "generate_series": _series("generate_series", included=True, least=2),
    "range": _series("range", included=False, least=1),
}

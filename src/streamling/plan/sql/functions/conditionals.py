"""Functions that return one of their arguments."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.coercions import cast_to_common
from streamling.plan.sql.functions.signature import ANY, Function
from streamling.plan.sql.operators import cast_for_comparison
from streamling.plan.sql.spark_types import check_computable
from streamling.plan.sql.values import Value


def _coalesce(arguments: Sequence[Value]) -> Value:
    type_, items = cast_to_common(arguments)
    nullable = all(argument.nullable for argument in arguments)
    return Value(f"coalesce({', '.join(item.text for item in items)})", type_, nullable)


def _nullif(arguments: Sequence[Value]) -> Value:
    first = arguments[0]
    _, (left, right) = cast_for_comparison(arguments)
    if left is first:
        return Value(f"nullif({left.text}, {right.text})", first.type)
    return Value(f"CASE WHEN {left.text} = {right.text} THEN NULL ELSE {first.text} END", first.type)


def _nvl2(arguments: Sequence[Value]) -> Value:
    type_, (present, absent) = cast_to_common(arguments[1:])
    nullable = present.nullable or absent.nullable
    text = f"CASE WHEN {arguments[0].text} IS NOT NULL THEN {present.text} ELSE {absent.text} END"
    return Value(text, type_, nullable)


def _extreme(name: str) -> Function:
    """`greatest` or `least`; NULLs are skipped."""

    def build(arguments: Sequence[Value]) -> Value:
        for argument in arguments:
            check_computable(argument.type)
        type_, items = cast_for_comparison(arguments)
        nullable = all(argument.nullable for argument in arguments)
        texts = ", ".join(item.text for item in items)
        return Value(items[0].text if len(items) == 1 else f"{name}({texts})", type_, nullable)

    return Function(f"{name}(value, ..)", (ANY,), build, variadic=True)


_NVL = Function("nvl(value, instead)", (ANY, ANY), _coalesce)

FUNCTIONS: dict[str, Function] = {
    "coalesce": Function("coalesce(value, ..)", (ANY,), _coalesce, variadic=True),
    "nvl": _NVL,
    "ifnull": _NVL,
    "nullif": Function("nullif(value, other)", (ANY, ANY), _nullif),
    "nvl2": Function("nvl2(value, present, absent)", (ANY, ANY, ANY), _nvl2),
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
}

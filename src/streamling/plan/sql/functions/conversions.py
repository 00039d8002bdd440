"""Casts with Arrow's type names, and encodings of bytes as text."""

from __future__ import annotations

from collections.abc import Sequence

from streamling.plan.sql.casts import arrow_named_type, cast
from streamling.plan.sql.functions.signature import ANY, BYTES, LITERAL_TEXT, TEXT, Function
from streamling.plan.sql.values import Refusal, Value, text_value
from streamling.plan.types import BINARY, STRING, DataType

_ARROW = {
    "null": "Null",
    "uint8": "UInt8",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "string": "Utf8",
    "time32": "Time32(ms)",
    "time64": "Time64(µs)",
    "duration": "Duration(µs)",
    "interval": "Interval(MonthDayNano)",
}


def arrow_name(type_: DataType) -> str:
    """A type as Arrow prints it."""
    match type_.kind:
        case "decimal":
            width = 256 if type_.wide else 128
            return f"Decimal{width}({type_.precision}, {type_.scale})"
        case "decimal_arb":
            return str(type_)
        case "timestamp":
            unit = type_.unit or "µs"
            return f"Timestamp({unit})" if type_.zone is None else f'Timestamp({unit}, "{type_.zone}")'
        case "binary" if type_.length is not None:
            return f"FixedSizeBinary({type_.length})"
        case "list" if type_.item is not None:
            return f"List({arrow_name(type_.item)})"
        case "map" if type_.item is not None and type_.key is not None:
            return f"Map({arrow_name(type_.key)}, {arrow_name(type_.item)})"
        case "struct":
            return "Struct(" + ", ".join(f'"{f.name}": {arrow_name(f.type)}' for f in type_.fields) + ")"
    return _ARROW.get(type_.kind, type_.kind.capitalize())


def _arrow_cast(*, safe: bool) -> Function:
    def build(arguments: Sequence[Value]) -> Value:
        return cast(arguments[0], arrow_named_type(str(arguments[1].constant)), safe=safe)

    name = "arrow_try_cast" if safe else "arrow_cast"
    return Function(f"{name}(value, type)", (ANY, LITERAL_TEXT), build)


def _coding(value: Value) -> str:
    coding = str(value.constant).lower()
    if coding not in ("hex", "base64"):
        raise Refusal(f"the coding must be hex or base64, not '{value.constant}'")
    return coding


def _encode(arguments: Sequence[Value]) -> Value:
    value, coding = arguments
    if _coding(coding) == "hex":
        return Value(f"lower(hex({value.text}))", STRING, value.nullable)
    # Without padding and without the line ends of MIME.
    text = rf"regexp_replace(base64({value.text}), '[=\\r\\n]', '')"
    return Value(text, STRING, value.nullable)


def _decode(arguments: Sequence[Value]) -> Value:
    value, coding = arguments
    return Value(f"to_binary({value.text}, '{_coding(coding)}')", BINARY, value.nullable)


FUNCTIONS: dict[str, Function] = {
    "arrow_cast": _arrow_cast(safe=False),
    "arrow_try_cast": _arrow_cast(safe=True),
    "arrow_typeof": Function("arrow_typeof(value)", (ANY,), lambda a: text_value(arrow_name(a[0].type))),
    "encode": Function("encode(value, coding)", (BYTES, LITERAL_TEXT), _encode),
    "decode": Function("decode(text, coding)", (TEXT, LITERAL_TEXT), _decode),
}

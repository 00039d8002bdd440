"""The entries of the function table: the arguments that a function accepts and its Spark text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from streamling.plan.sql.coercions import cast_to, computed_value, is_integer, is_number, is_time
from streamling.plan.sql.values import MONTHS, Refusal, Value, any_nullable, bind, is_short
from streamling.plan.types import BINARY, FLOAT64, INT64, NULL, STRING, TIMESTAMP, UINT64, DataType

Build = Callable[[Sequence[Value]], Value]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a function accepts as one of its arguments.

    admit   the argument as the function needs it, cast if there is an implicit cast; raises Refusal
    """

    what: str
    admit: Callable[[Value], Value]


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the language.

    usage        how it is called: `substr(text, start[, length])`
    parameters   in order; the last `optional` ones may be omitted, the last one repeats if `variadic`
    build        the call as a value, from admitted arguments; their number is as in the usage
    takes        the epoch parameters in its text; with EPOCH_SEED, `build` gets two more values: the row number and a
                 salt of the call
    plugin       the name of the plugin function, which Python workers compute; None for all others
    once         bind long arguments to names, as the text uses them many times: nested calls would grow without bound
    """

    usage: str
    parameters: tuple[Parameter, ...]
    build: Build
    optional: int = 0
    variadic: bool = False
    takes: frozenset[str] = frozenset()
    plugin: str | None = None
    once: bool = False

    def call(self, arguments: Sequence[Value], place: Sequence[Value] = ()) -> Value:
        """The call with these arguments; raises Refusal if their number or types are not accepted.

        place   the row number and the salt of the call, for a function that takes them
        """
        admitted = [*self.admit(arguments), *place]
        return self._build_once(admitted) if self.once else self.build(admitted)

    def admit(self, arguments: Sequence[Value]) -> list[Value]:
        """The arguments as the function needs them; raises Refusal."""
        self.check_count(len(arguments))
        return [self._admit(position, value) for position, value in enumerate(arguments)]

    def check_count(self, number: int) -> None:
        """Raise Refusal if the function does not accept this number of arguments."""
        least = len(self.parameters) - self.optional
        if number < least or (number > len(self.parameters) and not self.variadic):
            raise Refusal(f"wrong number of arguments for `{self.usage}`: {number}")

    def _build_once(self, arguments: list[Value]) -> Value:
        names = {n: f"a{n}" for n, value in enumerate(arguments) if not is_short(value)}
        result = self.build([replace(v, text=names[n]) if n in names else v for n, v in enumerate(arguments)])
        text = result.text
        for number, name in names.items():
            text = bind(arguments[number].text, name, text)
        return replace(result, text=text)

    def _admit(self, position: int, value: Value) -> Value:
        parameter = self.parameters[min(position, len(self.parameters) - 1)]
        try:
            return parameter.admit(value)
        except Refusal as refusal:
            raise Refusal(
                f"argument {position + 1} of `{self.usage}`: {refusal.message}",
                condition=refusal.condition,
                hint=refusal.hint,
                argument=position,
            ) from None


def form(template: str, result: DataType | None = None, *, nullable: bool | None = None) -> Build:
    """A function that fills `template` with the arguments' texts at `{0}`, `{1}`, ..; `{all}` is all of them.

    result     the type, by default that of the first argument
    nullable   by default true if any argument is nullable
    """

    def build(arguments: Sequence[Value]) -> Value:
        texts = [argument.text for argument in arguments]
        text = template.format(*texts, all=", ".join(texts))
        type_ = arguments[0].type if result is None else result
        return Value(text, type_, any_nullable(arguments) if nullable is None else nullable)

    return build


def unless_null(arguments: Sequence[Value], text: str) -> str:
    """The text, or NULL if an argument is NULL: for texts that would give another value then."""
    present = " AND ".join(f"{argument.text} IS NOT NULL" for argument in arguments if argument.nullable)
    return f"CASE WHEN {present} THEN {text} END" if present else text


def _type_error(what: str, value: Value) -> Refusal:
    return Refusal(f"expected {what}, got {value.type}")


def _any(value: Value) -> Value:
    if value.type == MONTHS:
        raise _type_error("a value", value)
    return value


def _text(value: Value) -> Value:
    if value.type not in (STRING, NULL):
        raise _type_error("text", value)
    return cast_to(value, STRING)


def _as_text(value: Value) -> Value:
    return cast_to(value, STRING)


def _integer(value: Value) -> Value:
    if not is_integer(value.type) and value.type not in (NULL, UINT64):
        raise _type_error("an integer", value)
    return cast_to(value, INT64)


def _position(value: Value) -> Value:
    """An integer as Spark's INT, the type of its positions; a larger number is an error of the row."""
    integer = _integer(value)
    if isinstance(integer.constant, int):
        position = max(-(2**31) + 1, min(integer.constant, 2**31 - 1))
        return Value(str(position) if position >= 0 else f"({position})", INT64, nullable=False, constant=position)
    return Value(f"CAST({integer.text} AS INT)", INT64, integer.nullable)


def _number(value: Value) -> Value:
    if value.type == NULL:
        return cast_to(value, FLOAT64)
    if not is_number(value.type):
        raise _type_error("a number", value)
    return computed_value(value)


def _double(value: Value) -> Value:
    return cast_to(_number(value), FLOAT64)


def _time(value: Value) -> Value:
    if value.type in (STRING, NULL):
        return cast_to(value, TIMESTAMP)
    if not is_time(value.type):
        raise _type_error("a timestamp or date", value)
    return computed_value(value)


def _list(value: Value) -> Value:
    if value.type.kind != "list":
        raise _type_error("a list", value)
    return value


def _map(value: Value) -> Value:
    if value.type.kind != "map":
        raise _type_error("a map", value)
    return value


def _bytes(value: Value) -> Value:
    if value.type not in (STRING, NULL) and value.type.kind != "binary":
        raise _type_error("text or bytes", value)
    return cast_to(value, BINARY)


def _literal_text(value: Value) -> Value:
    if not isinstance(value.constant, str):
        raise Refusal("expected a text literal")
    return value


def _literal_integer(value: Value) -> Value:
    if not isinstance(value.constant, int) or isinstance(value.constant, bool):
        raise Refusal("expected an integer literal")
    return value


ANY = Parameter("any value", _any)
TEXT = Parameter("text", _text)
AS_TEXT = Parameter("a value that can be cast to text", _as_text)
INTEGER = Parameter("an integer", _integer)
POSITION = Parameter("an integer", _position)
NUMBER = Parameter("a number", _number)
DOUBLE = Parameter("a number", _double)
TIME = Parameter("a timestamp or date", _time)
LIST = Parameter("a list", _list)
MAP = Parameter("a map", _map)
BYTES = Parameter("text or bytes", _bytes)
LITERAL_TEXT = Parameter("a text literal", _literal_text)
LITERAL_INTEGER = Parameter("an integer literal", _literal_integer)

"""What an entry of the function table is: the arguments it accepts and the Spark text it becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from streamling.plan.sql.coercions import computed, converted, is_integer, is_number, is_time
from streamling.plan.sql.values import MONTHS, Refusal, Value, any_nullable, is_short, named
from streamling.plan.types import BINARY, FLOAT64, INT64, NULL, STRING, TIMESTAMP, UINT64, DataType

Build = Callable[[Sequence[Value]], Value]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What may stand at one place of a call.

    admit   the argument as the function needs it, converted where our language converts; raises Refusal
    """

    what: str
    admit: Callable[[Value], Value]


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the language.

    usage        how it is written: `substr(text, start[, length])`
    parameters   in order; the last `optional` ones may be left out, the last one repeats if `variadic`
    build        the call as a value, from admitted arguments in the number the usage allows
    takes        the epoch parameters in its text; with EPOCH_SEED, `build` gets two more values: the row number and a
                 salt of the call
    plugin       the name under which a plugin offers it; Python workers compute it
    once         arguments stand in the text many times: calls inside of calls would grow without bound
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
        """The call with these arguments; raises Refusal when their number or types are not accepted.

        place   the row number and the salt of the call, for a function that takes them
        """
        self.check_count(len(arguments))
        admitted = [*(self._admitted(position, value) for position, value in enumerate(arguments)), *place]
        return self._built_once(admitted) if self.once else self.build(admitted)

    def check_count(self, number: int) -> None:
        """Raise Refusal when the function does not take so many arguments."""
        least = len(self.parameters) - self.optional
        if number < least or (number > len(self.parameters) and not self.variadic):
            raise Refusal(f"`{self.usage}` does not take {_count(number)}")

    def _built_once(self, arguments: list[Value]) -> Value:
        names = {n: f"a{n}" for n, value in enumerate(arguments) if not is_short(value)}
        result = self.build([replace(v, text=names[n]) if n in names else v for n, v in enumerate(arguments)])
        text = result.text
        for number, name in names.items():
            text = named(arguments[number].text, name, text)
        return replace(result, text=text)

    def _admitted(self, position: int, value: Value) -> Value:
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


def _count(number: int) -> str:
    return {0: "no argument", 1: "1 argument"}.get(number, f"{number} arguments")


def form(template: str, result: DataType | None = None, *, nullable: bool | None = None) -> Build:
    """Builds `template` with the arguments' texts at `{0}`, `{1}`, ..; `{all}` is all of them.

    result     the type, by default the first argument's
    nullable   by default true if any argument is
    """

    def build(arguments: Sequence[Value]) -> Value:
        texts = [argument.text for argument in arguments]
        text = template.format(*texts, all=", ".join(texts))
        type_ = arguments[0].type if result is None else result
        return Value(text, type_, any_nullable(arguments) if nullable is None else nullable)

    return build


def unless_null(arguments: Sequence[Value], text: str) -> str:
    """The text, NULL where an argument is: for forms that would give something else."""
    present = " AND ".join(f"{argument.text} IS NOT NULL" for argument in arguments if argument.nullable)
    return f"CASE WHEN {present} THEN {text} END" if present else text


def _wanted(what: str, value: Value) -> Refusal:
    return Refusal(f"expected {what}, got {value.type}")


def _any(value: Value) -> Value:
    if value.type == MONTHS:
        raise _wanted("a value", value)
    return value


def _text(value: Value) -> Value:
    if value.type not in (STRING, NULL):
        raise _wanted("text", value)
    return converted(value, STRING)


def _as_text(value: Value) -> Value:
    return converted(value, STRING)


def _integer(value: Value) -> Value:
    if not is_integer(value.type) and value.type not in (NULL, UINT64):
        raise _wanted("an integer", value)
    return converted(value, INT64)


def _position(value: Value) -> Value:
    """Spark counts positions in INT; what does not fit is an error of the row."""
    whole = _integer(value)
    if isinstance(whole.constant, int):
        clamped = max(-(2**31) + 1, min(whole.constant, 2**31 - 1))
        return Value(str(clamped) if clamped >= 0 else f"({clamped})", INT64, nullable=False, constant=clamped)
    return Value(f"CAST({whole.text} AS INT)", INT64, whole.nullable)


def _number(value: Value) -> Value:
    if value.type == NULL:
        return converted(value, FLOAT64)
    if not is_number(value.type):
        raise _wanted("a number", value)
    return computed(value)


def _double(value: Value) -> Value:
    return converted(_number(value), FLOAT64)


def _time(value: Value) -> Value:
    if value.type in (STRING, NULL):
        return converted(value, TIMESTAMP)
    if not is_time(value.type):
        raise _wanted("a timestamp or date", value)
    return computed(value)


def _list(value: Value) -> Value:
    if value.type.kind != "list":
        raise _wanted("a list", value)
    return value


def _map(value: Value) -> Value:
    if value.type.kind != "map":
        raise _wanted("a map", value)
    return value


def _bytes(value: Value) -> Value:
    if value.type not in (STRING, NULL) and value.type.kind != "binary":
        raise _wanted("text or bytes", value)
    return converted(value, BINARY)


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
AS_TEXT = Parameter("a value with a text form", _as_text)
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

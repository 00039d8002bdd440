"""The result of compiling an expression, and the exception if it cannot be compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from streamling.errors import SQL_TYPES, Condition
from streamling.plan.types import NULL, STRING, DataType

MONTHS = DataType("interval", unit="month")
"""The type of an interval literal with months: not a fixed duration, so it can only be added to times or subtracted."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The value of an interval literal."""

    months: int
    days: int
    microseconds: int

    @property
    def total_microseconds(self) -> int:
        """Days and microseconds; a day has 24 hours."""
        return self.days * 86_400_000_000 + self.microseconds

    @property
    def whole_days(self) -> bool:
        return self.microseconds == 0


Constant = str | int | float | bool | Interval


@dataclass(frozen=True, slots=True)
class Value:
    """A compiled expression: a Spark SQL text that can be used as an operand without parentheses, and its type.

    constant   the value of a literal, else None. A NULL literal has the type NULL.
    """

    text: str
    type: DataType
    nullable: bool = True
    constant: Constant | None = None


NULL_VALUE = Value("NULL", NULL)


class Refusal(Exception):
    """An expression cannot be compiled. The compiler turns it into a user error at the position of the expression.

    argument   the index, from 0, of the wrong argument of a call
    """

    def __init__(
        self,
        message: str,
        *,
        condition: Condition = SQL_TYPES,
        hint: str | None = None,
        argument: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.condition = condition
        self.hint = hint
        self.argument = argument


def any_nullable(values: Iterable[Value]) -> bool:
    return any(value.nullable for value in values)


def identifier(name: str) -> str:
    """A name as a Spark identifier."""
    return "`" + name.replace("`", "``") + "`"


_SHORT = 60


def is_short(value: Value) -> bool:
    """Whether its text is short enough to be repeated: a column, a literal, or little more."""
    return value.constant is not None or len(value.text) <= _SHORT


def bind_unless_short(text: str, name: str, build: Callable[[str], str]) -> str:
    """The result of `build` for a text; unless the text is short, Spark computes it once, however often it is used."""
    return build(text) if len(text) <= _SHORT else bind(text, name, build(name))


def bind(text: str, name: str, body: str) -> str:
    """`body` with `name` bound to `text`. Spark SQL has no local names, but a lambda over a list of one item has."""
    return f"element_at(transform(array({text}), {name} -> {body}), 1)"


_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def string_literal(text: str) -> str:
    """A text as a Spark string literal.

    Spark replaces backslash escapes in literals, and before parsing it replaces `${..}` by variables, also in literals.
    """
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    return "'" + escaped.replace("${", "\\u0024{") + "'"


def text_value(text: str) -> Value:
    return Value(string_literal(text), STRING, nullable=False, constant=text)

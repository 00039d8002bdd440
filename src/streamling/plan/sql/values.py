"""What an expression compiles to, and the refusal to compile one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from streamling.errors import SQL_TYPES, Condition
from streamling.plan.types import NULL, STRING, DataType

MONTHS = DataType("interval", unit="month")
"""A literal interval with months in it: not a length of time, so it can only be added to and subtracted from times."""


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
    """A compiled expression: Spark SQL text that stands for itself wherever an operand may stand, and its type.

    constant   the value when the user wrote a literal, else None. NULL is told by its type.
    """

    text: str
    type: DataType
    nullable: bool = True
    constant: Constant | None = None


NULL_VALUE = Value("NULL", NULL)


class Refusal(Exception):
    """An expression cannot be compiled. The compiler turns it into a user error at the place of the expression.

    argument   the number, from 0, of the argument of a call that is at fault
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
    """Whether a text may be repeated: a column, a literal, little more."""
    return value.constant is not None or len(value.text) <= _SHORT


def once(text: str, name: str, build: Callable[[str], str]) -> str:
    """What `build` makes of a text; unless it is short, it is computed once, however often it stands in the result."""
    return build(text) if len(text) <= _SHORT else named(text, name, build(name))


def named(text: str, name: str, body: str) -> str:
    """`body`, in which `name` stands for `text`: Spark SQL has no such names, but a list of one item gives one."""
    return f"element_at(transform(array({text}), {name} -> {body}), 1)"


_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def string_literal(text: str) -> str:
    """A text as a Spark string literal.

    Spark reads backslash escapes in literals and replaces `${..}` by variables before it parses, in literals too.
    """
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    return "'" + escaped.replace("${", "\\u0024{") + "'"


def text_value(text: str) -> Value:
    return Value(string_literal(text), STRING, nullable=False, constant=text)

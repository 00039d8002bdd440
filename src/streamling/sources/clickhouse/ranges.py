"""Ranges of the sorting key, which are the parts of a slice, and the position after one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamling.connector import Json
from streamling.sources.clickhouse.keys import KeyColumn, WrongKeyValue

Values = tuple[str, ...]
"""Of the first columns of the sorting key, or of all of them."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where reading continues: at the first row with these values, or `after` all rows that have them.

    Without values at the first row of the table. Values of the whole key are always `after`: they are those of the last
    row that was read, inside of one value of the first column.
    """

    values: Values = ()
    after: bool = False

    def to_json(self, keys: Sequence[KeyColumn], names: Sequence[str], start_at: str | None) -> Json:
        """As the state stores it. `after` is added where the values alone do not say it."""
        values, after = self.values, self.after
        if after and len(values) == 1 and (following := keys[0].successor(values[0])) is not None:
            values, after = (following,), False
        arguments: list[Json] = [dict(key.to_json(value)) for key, value in zip(keys, values, strict=False)]
        position: dict[str, Json] = {"sorting_keys": list(names), "args": arguments}
        if after and len(values) == 1:
            position["after"] = True
        if start_at is not None:
            position["start_at"] = start_at
        return position

    @classmethod
    def from_json(cls, arguments: Json, keys: Sequence[KeyColumn], *, after: bool) -> Cursor:
        """Raises WrongKeyValue."""
        if not isinstance(arguments, list) or len(arguments) > len(keys):
            raise WrongKeyValue(f"{arguments!r}")
        values = tuple(key.from_json(argument) for key, argument in zip(keys, arguments, strict=False))
        return cls(values, after or len(values) > 1)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows from a cursor up to these values: without the rows that have them, or with them if `closed`."""

    start: Cursor
    end: Values
    closed: bool

    @property
    def next(self) -> Cursor:
        return Cursor(self.end, self.closed)

    def to_json(self) -> Json:
        start: list[Json] = list(self.start.values)
        end: list[Json] = list(self.end)
        return {"start": start, "after": self.start.after, "end": end, "closed": self.closed}

    @classmethod
    def from_json(cls, part: Json) -> KeyRange:
        match part:
            case {"start": list() as start, "after": bool() as after, "end": list() as end, "closed": bool() as closed}:
                return cls(Cursor(tuple(map(str, start)), after), tuple(map(str, end)), closed)
        raise ValueError(f"not a range of keys: {part!r}")

    def condition(self, keys: Sequence[KeyColumn]) -> str:
        """As SQL. Conditions on single columns, which the index of the table can use, come first."""
        parts: list[str] = []
        if self.start.values:
            parts += _bound(keys, self.start.values, ">" if self.start.after else ">=")
        parts += _bound(keys, self.end, "<=" if self.closed else "<")
        if self.start.values[:1] == self.end[:1]:  # inside of one value of the first column
            for values, sign in ((self.start.values, ">="), (self.end, "<=")):
                parts += [f"{keys[1].sql} {sign} {keys[1].literal(values[1])}"] if len(values) > 1 else []
        return " AND ".join(parts)


def _bound(keys: Sequence[KeyColumn], values: Values, sign: str) -> list[str]:
    literals = [key.literal(value) for key, value in zip(keys, values, strict=False)]
    if len(values) == 1:
        return [f"{keys[0].sql} {sign} {literals[0]}"]
    columns = ", ".join(key.sql for key in keys[: len(values)])
    # The first column alone is never strictly beyond the values: other rows with the same value may be.
    return [f"{keys[0].sql} {sign[0]}= {literals[0]}", f"({columns}) {sign} ({', '.join(literals)})"]

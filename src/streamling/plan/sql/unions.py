"""Compiled queries as operands: selecting and casting their columns, and UNION ALL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamling.plan.sql.coercions import cast_to, common_type
from streamling.plan.sql.deletions import MATCH
from streamling.plan.sql.dependencies import Dependencies, merge
from streamling.plan.sql.values import Value, identifier
from streamling.plan.types import OPERATION_COLUMN, STRING, Field


@dataclass(frozen=True, slots=True)
class Branch:
    """A compiled query.

    needs      the dependencies of its text
    appended   whether its last column is an operation column that the user did not write
    computed   the columns that are computed from others; only known of queries that turn rows into deletes
    matching   whether its text has the column MATCH after the others
    """

    text: str
    fields: tuple[Field, ...]
    needs: Dependencies
    appended: bool
    computed: frozenset[str] = frozenset()
    matching: bool = False

    def select(self, targets: Sequence[Field], order: Sequence[int] | None = None) -> Branch:
        """The columns at the indexes `order`, cast and renamed to `targets`; itself if nothing changes."""
        fields = [self.fields[index] for index in (order or range(len(self.fields)))]
        if [(f.name, f.type) for f in fields] == [(f.name, f.type) for f in targets] and tuple(fields) == self.fields:
            return self
        columns = [_cast_column(field, target) for field, target in zip(fields, targets, strict=True)]
        columns += [identifier(MATCH)] if self.matching else []
        computed = frozenset(t.name for f, t in zip(fields, targets, strict=True) if f.name in self.computed)
        text = f"SELECT {', '.join(columns)} FROM ({self.text})"
        return replace(self, text=text, fields=tuple(targets), computed=computed)

    def position(self, name: str) -> int | None:
        """The index of a column among all but the operation column."""
        names = [field.name for field in self.fields if field.name != OPERATION_COLUMN]
        return names.index(name) if name in names else None

    def with_matches(self) -> Branch:
        """The query with the column MATCH."""
        if self.matching:
            return self
        return replace(self, text=f"SELECT *, true AS {identifier(MATCH)} FROM ({self.text})", matching=True)

    def rename(self, names: Sequence[str]) -> Branch | str:
        """The written columns under other names, or the reason why not. There is always an operation column."""
        written = self.fields[:-1] if self.appended else self.fields
        if len(names) != len(written):
            return f"there are {len(names)} column names for {len(written)} columns"
        if len(set(names)) < len(names):
            return f"duplicate column name: {', '.join(names)}"
        targets = [replace(field, name=name) for field, name in zip(written, names, strict=True)]
        order = list(range(len(targets)))
        operation = next((target for target in targets if target.name == OPERATION_COLUMN), None)
        if operation is None:
            order.append(_operation(self))
            targets.append(self.fields[order[-1]])
        elif operation.type != STRING:
            return f"`{OPERATION_COLUMN}` must be text, but it is {operation.type}"
        return replace(self.select(targets, order), appended=operation is None)


def _cast_column(field: Field, target: Field) -> str:
    value = cast_to(Value(identifier(field.name), field.type, field.nullable), target.type)
    name = identifier(target.name)
    return value.text if value.text == name else f"{value.text} AS {name}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why branches cannot be combined.

    branch   the index, from 0, of the branch that does not fit those before it
    """

    branch: int
    message: str


def union(parts: Sequence[Branch]) -> Branch | Mismatch:
    """UNION ALL of all parts, or why it is impossible.

    Columns are matched by position, except the operation column, which may be anywhere in a branch: the result has it
    at its position in the first branch.
    """
    first = parts[0]
    for number, part in enumerate(parts, start=1):
        if len(part.fields) != len(first.fields):
            return Mismatch(
                number - 1,
                f"UNION ALL: branch 1 has {len(first.fields)} columns ({_names(first)}), "
                f"branch {number} has {len(part.fields)} ({_names(part)})",
            )
    orders = [_align(part, _operation(first)) for part in parts]
    targets: list[Field] = []
    for position in range(len(first.fields)):
        field = _common_field([part.fields[order[position]] for part, order in zip(parts, orders, strict=True)])
        if isinstance(field, Mismatch):
            name = first.fields[position].name
            return Mismatch(field.branch, f"UNION ALL: column {position + 1} `{name}`: {field.message}")
        targets.append(field)
    selected = [part.select(targets, order) for part, order in zip(parts, orders, strict=True)]
    matching = any(part.matching for part in selected)
    if matching:
        selected = [part.with_matches() for part in selected]
    return Branch(
        " UNION ALL ".join(f"({part.text})" for part in selected),
        tuple(targets),
        merge(part.needs for part in parts),
        first.appended,
        frozenset[str]().union(*(part.computed for part in selected)),
        matching,
    )


def _names(branch: Branch) -> str:
    return ", ".join(field.name for field in branch.fields)


def _operation(branch: Branch) -> int:
    return next(index for index, field in enumerate(branch.fields) if field.name == OPERATION_COLUMN)


def _align(branch: Branch, position: int) -> list[int]:
    """The order of columns with the operation column at `position`."""
    own = _operation(branch)
    order = [index for index in range(len(branch.fields)) if index != own]
    return [*order[:position], own, *order[position:]]


def _common_field(fields: Sequence[Field]) -> Field | Mismatch:
    type_ = fields[0].type
    for number, field in enumerate(fields, start=1):
        common = common_type(type_, field.type, text_wins=True)
        if common is None:
            return Mismatch(number - 1, f"{type_} is not compatible with {field.type} of branch {number}")
        type_ = common
    return Field(fields[0].name, type_, any(field.nullable for field in fields))

"""The columns that an expression can use, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from sqlglot import exp

from streamling.errors import LOOKUP, SQL_UNKNOWN_COLUMN
from streamling.plan.sql.functions.structs import field
from streamling.plan.sql.values import Refusal, Value, identifier
from streamling.plan.types import Field, Schema

_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def name_of(node: exp.Expr) -> str:
    """The name of an identifier: as written if it is in quotes, else in lower case."""
    text = node.name
    return text if node.args.get("quoted") else text.translate(_ASCII_LOWER)


@dataclass(frozen=True, slots=True)
class JoinedTable:
    """A lookup in the scope of a SELECT.

    prefix   of its columns in the Spark text
    """

    columns: Schema
    qualifier: str
    prefix: str

    def field(self, column: Field) -> Field:
        """The column in the Spark text; NULL in rows without a match."""
        return Field(f"{self.prefix}{column.name}", column.type)


@dataclass(frozen=True, slots=True)
class Scope:
    """The one relation that a SELECT reads, and the lookups that are joined to it.

    qualifier   the optional prefix of a column: an alias, or the dotted name of the input, or its last parts
    """

    columns: Schema
    qualifier: str | None = None
    joined: tuple[JoinedTable, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        """All columns, as they are in the Spark text."""
        return (*self.columns, *(table.field(f) for table in self.joined for f in table.columns))

    def is_qualifier(self, names: Sequence[str]) -> bool:
        return any(_means(qualifier, names) for qualifier in (self.qualifier, *(t.qualifier for t in self.joined)))

    def __contains__(self, name: object) -> bool:
        return name in self.columns or any(name in table.columns for table in self.joined)

    def select(self, qualifier: Sequence[str]) -> list[tuple[str, Field]]:
        """The columns that a star means, with their names; without a qualifier, those of all tables."""
        own = [] if qualifier and not _means(self.qualifier, qualifier) else [(f.name, f) for f in self.columns]
        tables = [table for table in self.joined if not qualifier or _means(table.qualifier, qualifier)]
        return [*own, *((f.name, table.field(f)) for table in tables for f in table.columns)]

    def find(self, names: Sequence[str], *, quoted: bool = False) -> tuple[Field, Sequence[str]]:
        """The column in `[qualifier.]column[.field ...]`, and the fields after it.

        quoted   a single name was written in quotes
        """
        for length in range(len(names) - 1, 0, -1):
            column = self.columns.get(names[length])
            if column is not None and _means(self.qualifier, names[:length]):
                return column, names[length + 1 :]
            for table in self.joined:
                column = table.columns.get(names[length])
                if column is not None and _means(table.qualifier, names[:length]):
                    return table.field(column), names[length + 1 :]
        found = [table.field(column) for table in self.joined if (column := table.columns.get(names[0])) is not None]
        if (column := self.columns.get(names[0])) is not None:
            found.insert(0, column)
        if not found:
            raise self.unknown(names, quoted=quoted)
        if len(found) > 1:
            raise Refusal(
                f"several tables have a column `{names[0]}`",
                condition=LOOKUP,
                hint=f"write the name or the alias of the table before it: {self.qualifier or 't'}.{names[0]}",
            )
        return found[0], names[1:]

    def unknown(self, names: Sequence[str], *, quoted: bool = False) -> Refusal:
        """The refusal of a column that does not exist."""
        own = names[1:] if len(names) > 1 and self.is_qualifier(names[:1]) else names
        # A quoted name is more often meant as text than as a column with several typing mistakes.
        near = self._near(own[0], cutoff=0.75 if quoted else 0.6)
        suggestion = f" Did you mean {near}?" if near else ""
        valid = ", ".join(self._valid_names())
        return Refusal(
            f"No field named {'.'.join(_sql_name(name) for name in names)}.{suggestion} Valid fields are {valid}.",
            condition=SQL_UNKNOWN_COLUMN,
            hint=_hint(own[0], near, quoted=quoted),
        )

    def _valid_names(self) -> list[str]:
        joined = [f"{table.qualifier}.{_sql_name(name)}" for table in self.joined for name in table.columns.names]
        return [*map(_sql_name, self.columns.names), *joined]

    def _near(self, name: str, *, cutoff: float) -> str | None:
        names = [*(name for table in self.joined for name in table.columns.names), *self.columns.names]
        by_lower = {column.lower(): column for column in names}
        close = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
        return _sql_name(by_lower[close[0]]) if close else None


def _means(qualifier: str | None, names: Sequence[str]) -> bool:
    """Whether the names before a column are the qualifier of a table, or its last parts."""
    if qualifier is None or not names:
        return False
    written = ".".join(names)
    return qualifier == written or qualifier.endswith(f".{written}")


def _hint(name: str, near: str | None, *, quoted: bool) -> str | None:
    if quoted and near is None:
        text = name.replace("'", "''")
        return f"double quotes mean a column; write text as '{text}'"
    return f"write {near}: a name with capital letters needs double quotes" if near and '"' in near else None


def column_value(column: Field, fields: Sequence[str] = ()) -> Value:
    """A column, or a field inside it."""
    value = Value(identifier(column.name), column.type, column.nullable)
    for name in fields:
        value = field(value, name)
    return value


def _sql_name(name: str) -> str:
    """A name as it must be written in SQL."""
    plain = name.isidentifier() and name == name.translate(_ASCII_LOWER)
    return name if plain else '"' + name.replace('"', '""') + '"'

"""Where a SQL text comes from: its node, and how to find a position in the user's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from streamling.errors import Condition, UserError, Where

Locate = Callable[[int, int], Where | None]
"""(line, column) inside the SQL text, from 1 -> position in the user's file."""

_QUOTE_LENGTH = 120


def nowhere(line: int, column: int) -> Where | None:
    """The `Locate` of SQL that is not in a file."""
    return None


@dataclass(frozen=True, slots=True)
class SqlOrigin:
    """The SQL text as the user wrote it, its node, and the function that finds positions in the file."""

    sql: str
    node: str
    locate: Locate
    only: str | None = None
    """A sentence about what this node supports, if that is less than in other nodes."""

    def error(
        self,
        condition: Condition,
        message: str,
        *,
        at: exp.Expr | int | None = None,
        hint: str | None = None,
        cause: BaseException | None = None,
    ) -> UserError:
        """An error at a tree node or at a character offset of the text."""
        offset = at if isinstance(at, int) else offset_of(at)
        where = None if offset is None else self.locate(*self.place(offset))
        return UserError(
            condition, message, node=self.node, where=where, hint=hint, cause=cause, quote=self._quote(offset)
        )

    def _quote(self, offset: int | None) -> str:
        """The line with the error, for reports that show no excerpt of the file."""
        if offset is None:
            return f"in the SQL of '{self.node}'"
        line, column = self.place(min(offset, len(self.sql)))
        text = self.sql.split("\n")[line - 1]
        start = 0 if len(text) <= _QUOTE_LENGTH else max(0, column - 1 - _QUOTE_LENGTH // 2)
        return f"in the SQL of '{self.node}', line {line}: `{text[start : start + _QUOTE_LENGTH].strip()}`"

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, from 1, of a character offset."""
        before = self.sql[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def offset(self, line: int, column: int) -> int:
        """The inverse of `place`."""
        return sum(len(text) + 1 for text in self.sql.split("\n")[: line - 1]) + column - 1


def offset_of(node: exp.Expr | None) -> int | None:
    """The character offset at which a tree begins in its text.

    sqlglot stores offsets of names and literals only: take the first one inside the tree, else inside its parent.
    """
    while node is not None:
        marks = (part.meta.get("start") for part in node.walk())
        offset = min((mark for mark in marks if isinstance(mark, int)), default=None)
        if offset is not None:
            return offset
        node = node.parent
    return None

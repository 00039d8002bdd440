"""Calls that look values up in dynamic tables: what a table contains is known only when the pipeline runs.

The rows that a SELECT reads get a column with the result of each call before Spark computes the SELECT, so a call can
stand wherever a column can. A call whose value contains another call comes in a later level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from streamling.plan.sql.epoch import ROW_NUMBER, number_rows
from streamling.plan.sql.functions.streamling_functions import DYNAMIC_TABLE_GET
from streamling.plan.sql.values import Refusal, Value, identifier
from streamling.plan.types import BOOLEAN, STRING, DataType, Field, Schema

# With `#`, these names do not clash with columns of users.
_RESULT = "#call_{}"
_ARGUMENT = "#argument_{}"
_NAME = "#table_{}"


@dataclass(frozen=True, slots=True)
class TableCall:
    """One call.

    column     the column with its result
    table      the reference name of the table; None if `name` computes it
    name       the table's name as a Spark text
    value      the value that is looked up
    type       the type of the result
    fetched    the column of the table whose value is the result; None if it is whether the table has the value
    level      one more than the calls inside of its value
    """

    column: str
    table: str | None
    name: str
    value: Value
    type: DataType
    fetched: str | None = None
    level: int = 0

    @property
    def argument(self) -> str:
        """The column of a level's query with the value."""
        return _ARGUMENT.format(self.column)

    @property
    def table_argument(self) -> str:
        """The column of a level's query with the name of the table, if it is computed."""
        return _NAME.format(self.column)


@dataclass(frozen=True, slots=True)
class CallLevel:
    """Calls over the same rows, which can be answered together.

    view     the view with the rows and the results, which later levels and the query read
    rows     the rows as a Spark text
    input    the view of the input that has these rows, one for one; None if they come from a nested query
    first    whether the rows are those of `input` or of a nested query, not of another level
    columns  the columns of the rows
    calls    the calls
    """

    view: str
    rows: str
    input: str | None
    first: bool
    columns: Schema
    calls: tuple[TableCall, ...]

    @property
    def schema(self) -> Schema:
        """The columns of the view."""
        return Schema((*self.columns, *(Field(call.column, call.type) for call in self.calls)))

    @property
    def argument_schema(self) -> Schema:
        """The columns of `text`."""
        values = [Field(call.argument, call.value.type) for call in self.calls]
        names = [Field(call.table_argument, STRING) for call in self.calls if call.table is None]
        return Schema((*self.columns, *values, *names))

    def column_of(self, call: TableCall) -> str | None:
        """The column of the rows that is looked up; None if the value is computed."""
        return next((f.name for f in self.columns if identifier(f.name) == call.value.text), None)

    @property
    def is_computed(self) -> bool:
        """Whether Spark has to compute rows or values before they are looked up."""
        return self.input is None or not self.first or any(self._is_computed(call) for call in self.calls)

    def _is_computed(self, call: TableCall) -> bool:
        return call.table is None or (call.value.constant is None and self.column_of(call) is None)

    @property
    def text(self) -> str:
        """The query for the rows with the values that are looked up."""
        columns = [identifier(f.name) for f in self.columns]
        columns += [f"{call.value.text} AS {identifier(call.argument)}" for call in self.calls]
        columns += [f"{call.name} AS {identifier(call.table_argument)}" for call in self.calls if call.table is None]
        numbered = any(identifier(ROW_NUMBER) in column for column in columns)
        return f"SELECT {', '.join(columns)} FROM {number_rows(self.rows) if numbered else self.rows}"


@dataclass(slots=True)
class SelectCalls:
    """The calls of one SELECT.

    tables   the columns, besides the values themselves, that can be fetched from each table, by its reference name
    """

    tables: Mapping[str, Schema]
    calls: list[TableCall] = field(default_factory=list)

    def add(self, function: str, arguments: Sequence[Value]) -> Value:
        """The result of a call, as a column. The arguments are admitted. Raises Refusal."""
        name, value = arguments[:2]
        table = name.constant.lower() if isinstance(name.constant, str) else None
        fetched = str(arguments[2].constant) if function == DYNAMIC_TABLE_GET else None
        type_ = BOOLEAN if fetched is None else self._fetched_type(str(name.constant), fetched)
        nullable = value.nullable or name.nullable or fetched is not None
        level = 1 + max(
            (call.level for call in self.calls if identifier(call.column) in value.text + name.text), default=-1
        )
        made = TableCall(_RESULT.format(len(self.calls)), table, name.text, value, type_, fetched, level)
        known = next((call for call in self.calls if replace(made, column=call.column) == call), None)
        if known is None:
            self.calls.append(made)
        return Value(identifier((known or made).column), type_, nullable)

    def _fetched_type(self, table: str, column: str) -> DataType:
        columns = self.tables.get(table.lower())
        if columns is None:  # reported as a table that does not exist
            return STRING
        found = columns.get(column)
        if found is None:
            declared = ", ".join(columns.names) or "none"
            raise Refusal(
                f"the dynamic table '{table}' declares no column '{column}'; its columns: {declared}",
                hint=f"declare it on the table: columns: {{{column}: <type>}}",
                argument=2,
            )
        return found.type

    def levels(self, rows: str, input_: str | None, columns: Iterable[Field], views: Iterable[str]) -> list[CallLevel]:
        """The calls in the order in which they can be answered, over these rows. Takes the names of views it needs."""
        levels: list[CallLevel] = []
        names, schema = iter(views), Schema(tuple(columns))
        for level, calls in groupby(sorted(self.calls, key=lambda call: call.level), key=lambda call: call.level):
            levels.append(CallLevel(next(names), rows, input_, level == 0, schema, tuple(calls)))
            rows, schema = identifier(levels[-1].view), levels[-1].schema
        return levels

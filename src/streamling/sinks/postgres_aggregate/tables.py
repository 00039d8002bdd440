"""The tables and the trigger of a sink: created if missing, compared with the input if they exist."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from streamling.clients.postgres import PostgresSession, PostgresTable, create_schema, quote, table_exists
from streamling.errors import TABLE_UNFIT, UserError
from streamling.plan.types import INT64, OPERATION_COLUMN, Field
from streamling.sinks.postgres.columns import TableColumn, table_column
from streamling.sinks.postgres.tables import (
    TableComparison,
    compare_table,
    create_table,
    existing_columns,
    missing_unique,
    unfit_table,
)
from streamling.sinks.postgres_aggregate.functions import choose_function, function_body, is_of_another, values_of
from streamling.sinks.postgres_aggregate.names import EPOCH_COLUMN, Names, group_column, value_column
from streamling.sinks.postgres_aggregate.result import Computation, ComputedColumn, Result
from streamling.spec.pipeline import NodeSpec

log = logging.getLogger(__name__)
_HINT = "change the table, or the columns in a sql transform or in the sink"
_ADDED = (Computation.COUNT, Computation.SUM)
# Most epochs change every row of a page of the result: half of the page is for the new rows.
_RESULT_FILL_PERCENT = 50
# Of the last values, an epoch changes some.
_VALUES_FILL_PERCENT = 80
# An index cannot hold long texts.
_LONG_VALUES = ("TEXT", "BYTEA", "JSONB")
_FUNCTION = """
SELECT p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = %s AND p.proname = %s AND p.pronargs = 0
"""
# An enabled trigger after a statement that inserts, with the right function.
_TRIGGER = """
SELECT 1 FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE t.tgrelid = %s::regclass AND t.tgname = %s AND t.tgtype = 4 AND t.tgnewtable = 'new_table'
AND t.tgenabled IN ('O', 'A') AND n.nspname = %s AND p.proname = %s
"""


@dataclass(frozen=True, slots=True)
class AggregateTables:
    """What a sink has in the database: `columns` and `key` are those of the input, `_gs_op` included in the columns."""

    node: NodeSpec
    session: PostgresSession
    names: Names
    result: Result
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]

    @property
    def landing_key(self) -> tuple[str, ...]:
        return (*self.key, OPERATION_COLUMN)

    @property
    def lock(self) -> str:
        """Wait for other writers to these tables, and let only the trigger of this sink count the rows.

        Groups overlap, so writers would wait for each other anyway, and might deadlock. Sinks that share one of the
        tables take these locks in the same order.
        """
        landing, result = (_lock_number(kind, t) for kind, t in zip("lr", self.names.tables[:2], strict=True))
        locks = f"pg_advisory_xact_lock({landing}), pg_advisory_xact_lock({result})"
        return f"SELECT {locks}, {choose_function(self.names)}"

    # Created if missing

    def create(self) -> None:
        """Raises UserError if the table of last values would not have the rows that are in the result."""
        session, names = self.session, self.names
        create_schema(session, names.landing.schema)
        session.execute(self.lock)
        if not table_exists(session, names.landing):
            columns = [*map(_landing_ddl, self.columns), _epoch_column(required=True)]
            self._create(names.landing, columns, self.landing_key)
        if not table_exists(session, names.result):
            groups = [replace(group.fit, ddl=f"{group.ddl} NOT NULL") for group in self.result.groups]
            computed = [replace(column.fit, ddl=_computed_ddl(column)) for column in self.result.computed]
            self._create(names.result, [*groups, *computed], self.result.group_names, _RESULT_FILL_PERCENT)
        if names.values is not None and not table_exists(session, names.values):
            self._create_values(names.values)

    def _create(
        self, table: PostgresTable, columns: Sequence[TableColumn], key: Sequence[str], fill_percent: int = 100
    ) -> None:
        create_table(self.session, table, columns, key, fill_percent=fill_percent)
        log.info("%s: created table %s", self.node.described(), table)

    def _create_values(self, table: PostgresTable) -> None:
        ((filled,),) = self.session.rows(f"SELECT EXISTS (SELECT FROM {self.names.result.sql})")
        if filled:
            text = f"table {self.names.result} has rows that were added without 'retract'; {table} does not have theirs"
            hint = f"empty {self.names.result}, then read the source from the beginning: streamling state reset"
            raise UserError(TABLE_UNFIT, f"{self.node.described()}: {text}", node=self.node.name, hint=hint)
        groups = [group_column(group.name) for group in self.result.groups if group.value is not None]
        values = [column.value for column in self.result.computed if column.is_edge and column.value]
        edges = dict.fromkeys(value.column for value in values if value.ddl not in _LONG_VALUES)
        indexed = [[*groups, value_column(column)] for column in edges] or [groups]
        # With edges, every change of a value changes an index.
        self._create(table, self._values_columns, self.key, 100 if edges else _VALUES_FILL_PERCENT)
        for columns in filter(None, indexed):
            self.session.execute(f"CREATE INDEX ON {table.sql} ({', '.join(map(quote, columns))})")

    @property
    def _values_columns(self) -> list[TableColumn]:
        """Keys have the types of the landing table, so that both compare them in the same way. If it lacks one, the
        check tells."""
        landed = existing_columns(self.session, self.names.landing)
        inputs = {column.name: column for column in self.columns}
        types = {name: landed[name].type_name.replace("%", "%%") for name in self.key if name in landed}
        keys = [replace(inputs[name], ddl=types.get(name, inputs[name].ddl)) for name in self.key]
        return [*keys, *self._kept_columns(required=True)]

    def _kept_columns(self, *, required: bool = False) -> Iterator[TableColumn]:
        for group in self.result.groups:
            if group.value is not None:
                ddl = f"{group.ddl} NOT NULL" if required else group.fit.ddl
                yield replace(group.fit, name=group_column(group.name), ddl=ddl)
        inputs = {column.name: column for column in self.columns}
        for name in dict.fromkeys(column.value.column for column in self.result.computed if column.value):
            yield replace(inputs[name], name=value_column(name))

    # Compared if they exist

    def check(self, problem: str = "does not fit") -> tuple[TableColumn, ...]:
        """The columns of the input with the casts that the landing table needs. Raises UserError that lists all that
        does not fit in one of the tables."""
        names, session = self.names, self.session
        comparison = compare_table(session, names.landing, [*self.columns, _epoch_column()], self.landing_key)
        self._refuse(names.landing, f"{problem} the input", comparison.problems(names.landing))
        fits = [column.fit for column in (*self.result.groups, *self.result.computed)]
        groups = self._check(names.result, fits, self.result.group_names)
        self._refuse(names.result, f"{problem} 'group_by' and 'aggregate'", groups)
        if names.values is not None:
            inputs = [column for column in self.columns if column.name in self.key]
            last = self._check(names.values, [*inputs, *self._kept_columns()], self.key)
            self._refuse(names.values, f"{problem} the input", last)
        return tuple(column for column in comparison.columns if column.name != EPOCH_COLUMN)

    def _check(self, table: PostgresTable, columns: Sequence[TableColumn], key: Sequence[str]) -> list[str]:
        """The server compares the keys of this table, so any type that fits can be one."""
        comparison: TableComparison = compare_table(self.session, table, columns, ())
        problems = comparison.problems(table)
        if not comparison.missing and (unique := missing_unique(self.session, table, key)):
            problems.append(unique)
        return problems

    def _refuse(self, table: PostgresTable, problem: str, problems: Sequence[str]) -> None:
        if problems:
            raise unfit_table(self.node, table, problem, problems, _HINT)

    # The trigger

    def restore_index(self) -> None:
        """Create the index by which old rows are found, unless it exists."""
        index, landing = self.names.index, self.names.landing
        if not table_exists(self.session, index):
            self.session.execute(
                f"CREATE INDEX IF NOT EXISTS {quote(index.name)} ON {landing.sql} ({quote(EPOCH_COLUMN)})"
            )

    def restore_trigger(self) -> None:
        """Create or replace the function and the trigger, unless they are as they should be: then no lock is needed,
        nor the right to change the tables. An empty statement lets the server check the function."""
        names, session = self.names, self.session
        function, body = names.function, function_body(self.names, self.result, self.key)
        sources = [source for (source,) in session.rows(_FUNCTION, (function.schema, function.name))]
        if any(is_of_another(source, names) for source in sources):
            text = f"the trigger function {function} belongs to another sink, whose table names give the same name"
            hint = "give the tables other names"
            raise UserError(TABLE_UNFIT, f"{self.node.described()}: {text}", node=self.node.name, hint=hint)
        self._refuse_stale_values(sources)
        if body.replace("%%", "%") not in sources:
            session.execute(
                f"CREATE OR REPLACE FUNCTION {function.sql}() RETURNS trigger LANGUAGE plpgsql "
                f"SET plan_cache_mode = 'force_custom_plan' AS {_dollar_quoted(body)}"
            )
        if not session.rows(_TRIGGER, (names.landing.value, names.trigger, function.schema, function.name)):
            trigger, landing = quote(names.trigger), names.landing.sql
            session.execute(f"DROP TRIGGER IF EXISTS {trigger} ON {landing}")
            session.execute(
                f"CREATE TRIGGER {trigger} AFTER INSERT ON {landing} REFERENCING NEW TABLE AS new_table "
                f"FOR EACH STATEMENT EXECUTE FUNCTION {function.sql}()"
            )
        columns = ", ".join(quote(column.name) for column in self.columns)
        landing = names.landing.sql
        session.execute(f"INSERT INTO {landing} ({columns}) SELECT {columns} FROM {landing} LIMIT 0")

    def _refuse_stale_values(self, sources: Sequence[str]) -> None:
        """Without `retract` the table of last values would not follow the result any more."""
        last = next(filter(None, map(values_of, sources)), None) if self.names.values is None else None
        if last is not None and self.session.rows("SELECT to_regclass(%s) IS NOT NULL", (last,)) == [(True,)]:
            text = f"the last values of each key in {last} would no longer be kept: 'retract' was removed"
            hint = f"set 'retract: true' again, or drop table {last}"
            raise UserError(TABLE_UNFIT, f"{self.node.described()}: {text}", node=self.node.name, hint=hint)


def _epoch_column(*, required: bool = False) -> TableColumn:
    column = table_column(Field(EPOCH_COLUMN, INT64))
    return replace(column, ddl="BIGINT NOT NULL DEFAULT 0") if required else column


def _landing_ddl(column: TableColumn) -> TableColumn:
    return replace(column, ddl="TEXT NOT NULL") if column.name == OPERATION_COLUMN else column


def _computed_ddl(column: ComputedColumn) -> str:
    return f"{column.ddl} NOT NULL DEFAULT 0" if column.computation in _ADDED else column.ddl


def _lock_number(kind: str, table: PostgresTable) -> int:
    """A number for an advisory lock, which names no table."""
    text = f"streamling {kind} {table.value}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)


def _dollar_quoted(text: str) -> str:
    tag = "body"
    while f"${tag}$" in text:
        tag += "_"
    return f"${tag}${text}${tag}$"

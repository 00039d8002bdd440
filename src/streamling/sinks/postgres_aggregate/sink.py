"""The sink: rows are inserted into the landing table, whose trigger changes the aggregate table, in one transaction
with the ledger."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamling.clients.postgres import ConnectionOptions, RowRejected, create_once, quote, table_exists
from streamling.connector import BadRow, BatchPolicy, Epoch, SinkContext
from streamling.errors import TABLE_UNFIT, PermanentError, StreamlingError
from streamling.plan.types import OPERATION_COLUMN, OPERATION_FIELD, Schema
from streamling.sinks.postgres.columns import table_column
from streamling.sinks.postgres.ledger import Ledger
from streamling.sinks.postgres.rounds import EffectiveRows
from streamling.sinks.postgres.search import SAVEPOINT, RowSearch
from streamling.sinks.postgres.tables import TableVersion, lock_version, parent_tables, read_version
from streamling.sinks.postgres.transaction import TransactionSink, UsableRows
from streamling.sinks.postgres_aggregate.names import EPOCH_COLUMN, Names
from streamling.sinks.postgres_aggregate.result import Computation, Result
from streamling.sinks.postgres_aggregate.selection import DELETE, UPDATE, counted_rows, operations
from streamling.sinks.postgres_aggregate.statements import AggregateStatements
from streamling.sinks.postgres_aggregate.tables import AggregateTables
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.postgres_aggregate import PostgresAggregateOptions

log = logging.getLogger(__name__)
# So many rows are removed from the landing table by one statement, and after so many they are removed earlier.
_CLEANED_ROWS = 50_000
_CHANGED = "was changed while the pipeline was running, and does not fit"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a sink, with the defaults of the settings."""

    options: PostgresAggregateOptions
    names: Names
    batch: BatchPolicy | None
    batch_rows: int
    cleaning_s: float
    """Seconds between two removals of old rows from the landing table."""


@dataclass(frozen=True, slots=True)
class _OpenTables:
    """What `open` makes: the tables, the version that was compared with the input, the ledger beside them, and the
    statements that write to them."""

    tables: AggregateTables
    version: TableVersion
    ledger: Ledger
    statements: AggregateStatements


class PostgresAggregateSink(TransactionSink):
    def __init__(self, node: NodeSpec, server: ConnectionOptions, options: WriteOptions) -> None:
        super().__init__(node, server, options.names.result, options.batch)
        self._options = options
        self._retract = options.names.values is not None
        self._open_tables: _OpenTables | None = None
        self._unseen_changes = dict[int, str]()
        self._landed_rows = 0
        self._cleaned_at = 0.0

    # Before the first epoch

    def open(self, context: SinkContext) -> None:
        fields = [field for field in context.schema if field.name != OPERATION_COLUMN]
        columns = tuple(table_column(field) for field in (*fields, OPERATION_FIELD))
        result = self._options.options.result(Schema(tuple(fields)))
        names = self._options.names
        tables = AggregateTables(self._node, self._session, names, result, columns, context.primary_key)
        ledger = Ledger(names.landing.schema, context.generation, context.node)
        try:
            create_once(self._session, lambda: self._create(tables, ledger))
            with self._session.transaction():
                self._session.execute(tables.lock)
                fitted = tables.check()
                tables.restore_index()
                tables.restore_trigger()
                version = read_version(self._session, *names.tables, triggers=True)
                parents = {p for table in names.tables for p in parent_tables(self._session, table)}
        except RowRejected as error:
            raise PermanentError(TABLE_UNFIT, f"{self._described}: {error}", node=self._node.name) from error
        portions = self._portions(self._options.batch_rows)
        key = tables.landing_key
        statements = AggregateStatements(names.landing, fitted, key, names.result, result, self._retract, portions)
        self._open_tables = _OpenTables(tables, version, ledger, statements)
        self._unseen_changes = {} if self._retract else _misleading_changes(result)
        self._cleaned_at = time.monotonic()
        self.depends_on = frozenset(f"{self._server}/{table}" for table in parents)

    def _create(self, tables: AggregateTables, ledger: Ledger) -> None:
        tables.create()
        if not table_exists(self._session, ledger.table):
            ledger.create(self._session)

    @property
    def _opened(self) -> _OpenTables:
        if self._open_tables is None:
            raise AssertionError("not opened")
        return self._open_tables

    @property
    def _ledger(self) -> Ledger:
        return self._opened.ledger

    @property
    def doubles(self) -> bool:
        return not self._retract

    # Epochs

    def _usable(self, rows: pa.Table) -> UsableRows:
        """Rows with a key and a group; with `retract` a deletion needs no group."""
        import pyarrow as pa

        if OPERATION_COLUMN not in rows.column_names:
            rows = rows.append_column(OPERATION_COLUMN, pa.repeat("i", rows.num_rows))
        keyed = self._without_nulls(rows, self._opened.tables.key, "key")
        allowed = pa.array(operations(keyed.rows) == DELETE) if self._retract else None
        grouped = self._without_nulls(keyed.rows, self._opened.tables.result.group_inputs, "group", allowed)
        return keyed.reduced(grouped)

    def _apply(self, epoch: Epoch, rows: pa.Table) -> tuple[tuple[BadRow, ...], int]:
        self._warn_of_changes(rows)
        with self._session.about(f"table {self._options.names.landing}"):
            self._lock_tables()
            statements = replace(self._opened.statements, epoch=epoch.number)
            selected = self._select(rows)
            bad = RowSearch(self._node, self._session, statements, final=self._final).write(rows, selected)
        self._landed_rows += len(selected)
        return bad, len(selected) - len(bad)

    def _count(self, rows: pa.Table) -> int:
        return len(self._select(rows))

    def _select(self, rows: pa.Table) -> EffectiveRows:
        return counted_rows(
            self._opened.statements.fold_keys(self._session, rows),
            self._opened.tables.key,
            self._options.batch_rows,
            deduplicate=self._options.options.deduplicate,
            retract=self._retract,
        )

    def _lock_tables(self) -> None:
        """Wait for other writers, set the first savepoint, and keep the tables and the trigger from being changed. If
        they were changed since they were compared with the input, compare them again: values might be rounded, or not
        be counted."""
        opened, names = self._opened, self._options.names
        version = lock_version(self._session, names.tables, opened.version, first=opened.tables.lock, then=SAVEPOINT)
        if version == opened.version:
            return
        log.warning("%s: its tables were changed while the pipeline was running", self._described)
        columns = opened.tables.check(_CHANGED)
        opened.tables.restore_trigger()
        version = read_version(self._session, *names.tables, triggers=True)
        statements = replace(opened.statements, columns=columns)
        self._open_tables = replace(opened, version=version, statements=statements)

    def _epoch_committed(self) -> None:
        self._opened.statements.epoch_committed()

    def _warn_of_changes(self, rows: pa.Table) -> None:
        """Once for each kind of change that a column cannot follow."""
        if not self._unseen_changes:
            return
        present = operations(rows)
        for kind in [kind for kind in self._unseen_changes if (present == kind).any()]:
            message = "%s: %s, because earlier values are not known; `retract: true` keeps them"
            log.warning(message, self._described, self._unseen_changes.pop(kind))

    # The landing table

    def finalized(self, epoch: int) -> None:
        """Remove the rows of earlier epochs, now and then. They are not needed any more: the ledger tells what was
        counted. Rows that another process is about to replace are left to it, so that neither waits."""
        due = time.monotonic() - self._cleaned_at >= self._options.cleaning_s
        if not self._landed_rows or not (due or self._landed_rows >= _CLEANED_ROWS):
            return
        landing, column = self._options.names.landing.sql, quote(EPOCH_COLUMN)
        old = f"SELECT ctid FROM {landing} WHERE {column} < {epoch} LIMIT {_CLEANED_ROWS} FOR UPDATE SKIP LOCKED"
        try:
            removed = _CLEANED_ROWS
            while removed == _CLEANED_ROWS:
                with self._session.transaction():
                    removed = self._session.execute(f"DELETE FROM {landing} WHERE ctid = ANY(ARRAY({old}))")
        except (StreamlingError, RowRejected) as error:
            log.warning("%s: rows of earlier epochs stay in the landing table for now: %s", self._described, error)
        self._landed_rows = 0
        self._cleaned_at = time.monotonic()


def _misleading_changes(result: Result) -> dict[int, str]:
    """By kind of change: what is wrong about columns that cannot follow it."""
    edges = result.names_of(Computation.MIN, Computation.MAX)
    added = [*result.names_of(Computation.SUM), *edges]
    changes = {}
    if added:
        changes[UPDATE] = f"an update counts as a new value in {', '.join(added)}"
    if edges:
        changes[DELETE] = f"the value of a deleted row stays in {', '.join(edges)}"
    return changes

"""The sink: a table is created or compared with the input, and gets the rows of each epoch in its transaction."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamling.clients.postgres import (
    ConnectionOptions,
    PostgresTable,
    RowRejected,
    create_once,
    create_schema,
    table_exists,
)
from streamling.connector import (
    Applied,
    BadRow,
    BatchPolicy,
    Epoch,
    SinkContext,
    WaitsForOthers,
)
from streamling.errors import TABLE_UNFIT, PermanentError
from streamling.plan.types import OPERATION_COLUMN
from streamling.sinks.postgres.columns import TableColumn, table_column
from streamling.sinks.postgres.ledger import Ledger
from streamling.sinks.postgres.rounds import EffectiveRows, effective_rows
from streamling.sinks.postgres.search import SAVEPOINT, RowSearch
from streamling.sinks.postgres.statements import Statements
from streamling.sinks.postgres.tables import (
    TableVersion,
    add_columns,
    compare_table,
    create_table,
    lock_version,
    parent_tables,
    read_version,
    unfit_table,
)
from streamling.sinks.postgres.transaction import TransactionSink, UsableRows
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a sink, with the defaults of the settings."""

    table: PostgresTable
    on_conflict: str
    conditions: Mapping[str, str]
    deduplicate: bool
    adds_columns: bool
    batch: BatchPolicy | None
    batch_rows: int


@dataclass(frozen=True, slots=True)
class _OpenTable:
    """What `open` makes: the columns and the key of the input, the ledger beside the table, the version of the table
    that was compared with the input, and the statements that write to it."""

    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    ledger: Ledger
    version: TableVersion
    statements: Statements


class PostgresSink(TransactionSink):
    def __init__(self, node: NodeSpec, server: ConnectionOptions, options: WriteOptions) -> None:
        super().__init__(node, server, options.table, options.batch)
        self._options = options
        self._open_table: _OpenTable | None = None
        self._warned_of_deletes = False

    # Before the first epoch

    def open(self, context: SinkContext) -> None:
        columns = tuple(table_column(f) for f in context.schema if f.name != OPERATION_COLUMN)
        for column in columns:
            if not column.has_counterpart:
                message = "%s: column '%s' is %s, which Postgres does not have; it is written as text"
                log.warning(message, self._described, column.name, column.type)
        key = context.primary_key
        ledger = Ledger(self._options.table.schema, context.generation, context.node)
        try:
            create_once(self._session, lambda: self._create(ledger, columns, key))
            with self._session.transaction():
                if self._options.adds_columns:
                    self._add_columns(columns, key)
                # Before the check, and without a lock: if the table is changed meanwhile, the first epoch notices.
                version = read_version(self._session, self._options.table)
                fitted = self._check_table(columns, key)
                parents = parent_tables(self._session, self._options.table)
        except RowRejected as error:
            raise PermanentError(TABLE_UNFIT, f"{self._described}: {error}", node=self._node.name) from error
        statements = Statements(
            self._options.table,
            fitted,
            key,
            self._options.on_conflict,
            self._options.conditions,
            not self._options.deduplicate,
            self._portions(self._options.batch_rows),
            self._portions(self._options.batch_rows),
        )
        self._open_table = _OpenTable(columns, key, ledger, version, statements)
        self.depends_on = frozenset(f"{self._server}/{table}" for table in parents)
        if not key:
            log.warning("%s has no primary key: rows are only added", self._described)

    @property
    def _table(self) -> _OpenTable:
        if self._open_table is None:
            raise AssertionError("not opened")
        return self._open_table

    @property
    def _ledger(self) -> Ledger:
        return self._table.ledger

    def _create(self, ledger: Ledger, columns: Sequence[TableColumn], key: Sequence[str]) -> None:
        session, table = self._session, self._options.table
        create_schema(session, table.schema)
        if not table_exists(session, table):
            create_table(session, table, columns, key)
            log.info("%s: created table %s", self._described, table)
        if not table_exists(session, ledger.table):
            ledger.create(session)

    def _add_columns(self, columns: tuple[TableColumn, ...], key: Sequence[str]) -> None:
        """Add the missing columns, unless the table does not fit for other reasons."""
        table = self._options.table
        comparison = compare_table(self._session, table, columns, key)
        if comparison.missing and not comparison.misfits:
            add_columns(self._session, table, comparison.missing)
            names = ", ".join(column.name for column in comparison.missing)
            log.info("%s: added columns to %s: %s", self._described, table, names)

    def _check_table(
        self, columns: tuple[TableColumn, ...], key: Sequence[str], problem: str = "does not fit the input"
    ) -> tuple[TableColumn, ...]:
        """The columns with the casts that this table needs. Raises UserError that lists all that does not fit."""
        comparison = compare_table(self._session, self._options.table, columns, key)
        if problems := comparison.problems(self._options.table):
            hint = "change the table, or the columns in a sql transform; `schema_evolution: additive` adds columns"
            raise unfit_table(self._node, self._options.table, problem, problems, hint)
        return comparison.columns

    @property
    def doubles(self) -> bool:
        return not self._table.key

    def _epoch_committed(self) -> None:
        self._table.statements.epoch_committed()

    # Rows

    def _apply(self, epoch: Epoch, rows: pa.Table) -> tuple[tuple[BadRow, ...], int]:
        """Write the rows; returns those that the server rejects, and how many rows count as written."""
        self._warn_of_deletes(rows)
        with self._session.about(f"table {self._options.table}"):
            self._lock_table()
            selected = self._select(rows)
            search = RowSearch(self._node, self._session, self._table.statements, final=self._final)
            try:
                bad = search.write(rows, selected)
            except WaitsForOthers:
                self.abort(epoch)
                self._write_ahead(epoch, rows, selected)
                raise
        return bad, len(selected) - len(bad)

    def _count(self, rows: pa.Table) -> int:
        return len(self._select(rows))

    def _select(self, rows: pa.Table) -> EffectiveRows:
        options = self._options
        folded = self._table.statements.fold_keys(self._session, rows)
        return effective_rows(folded, self._table.key, options.batch_rows, deduplicate=options.deduplicate)

    def _lock_table(self) -> None:
        """Set the first savepoint, and keep the table from being changed until the transaction ends. If it was changed
        since it was compared with the input, compare it again: its new columns might round or cut values."""
        table = self._table
        version = lock_version(self._session, [self._options.table], table.version, then=SAVEPOINT)
        if version == table.version:
            return
        log.warning("%s: table %s was changed while the pipeline was running", self._described, self._options.table)
        problem = "was changed while the pipeline was running, and does not fit the input any more"
        columns = self._check_table(table.columns, table.key, problem)
        version = read_version(self._session, self._options.table)
        statements = replace(table.statements, columns=columns)
        self._open_table = replace(table, version=version, statements=statements)

    def _write_ahead(self, epoch: Epoch, rows: pa.Table, selected: EffectiveRows) -> None:
        """Commit inserts and updates of an epoch whose deletions wait for other sinks, because rows of these sinks may
        refer to them. The epoch is not recorded: it is written again as a whole, which has the same result."""
        whole = next(selected.rounds(merged=True))
        if not self._table.statements.last_wins or not len(whole.deletes) or not len(whole.upserts):
            return
        self._session.begin()
        try:
            if self._table.ledger.lock(self._session, epoch) is Applied.NO:
                self._lock_table()
                self._table.statements.upsert(self._session, rows, whole.upserts)
                self._session.commit()
                return
        except RowRejected as error:
            log.debug("%s: nothing is written ahead: %s", self._described, error)
        except BaseException:
            self._session.rollback()
            raise
        self._session.rollback()

    def _usable(self, rows: pa.Table) -> UsableRows:
        return self._without_nulls(rows, self._table.key, "key")

    def _warn_of_deletes(self, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        if self._table.key or self._warned_of_deletes:
            return
        if pc.any(pc.equal(pc.utf8_lower(rows.column(OPERATION_COLUMN)), "d")).as_py():
            self._warned_of_deletes = True
            log.warning("%s: without a primary key nothing can be deleted; deletions are left out", self._described)

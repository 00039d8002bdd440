"""The sink: one transaction per epoch, which begins by locking the ledger."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamling.clients.postgres import (
    ConnectionOptions,
    PostgresSession,
    PostgresTable,
    RowRejected,
    create_once,
    create_schema,
    sqlstate,
    table_exists,
)
from streamling.clients.postgres_errors import hint_for, is_foreign_key
from streamling.connector import (
    Applied,
    BadRow,
    BatchPolicy,
    Epoch,
    Guarantee,
    Json,
    Report,
    Sink,
    SinkCapabilities,
    SinkContext,
    Slice,
    Task,
    WaitsForOthers,
)
from streamling.errors import SINK_FAILED, STATE_MOVED, TABLE_UNFIT, Fenced, PermanentError, TransientError, UserError
from streamling.plan.types import OPERATION_COLUMN
from streamling.sinks.postgres.columns import TableColumn, table_column
from streamling.sinks.postgres.ledger import Ledger
from streamling.sinks.postgres.portions import Portions
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
)
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError
from streamling.spec.settings.names import connection_name

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
_NO_SUCH_TABLE = "42P01"
# If so few rows exceed the statement timeout, they wait for a lock. For a slower table, `batch_size` can be smaller.
_MIN_PORTION_ROWS = 100


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


class PostgresSink(Sink):
    def __init__(self, node: NodeSpec, server: ConnectionOptions, options: WriteOptions) -> None:
        self.capabilities = SinkCapabilities(guarantee=Guarantee.EXACTLY_ONCE, transactional=True, batch=options.batch)
        self.target: str | None = f"{server}/{options.table}"
        self._server = server
        self._node = node
        self._options = options
        self._statement_limit_s = server.statement_s
        self._session = PostgresSession(server, name=node.name, node=node.name, hint=self._advice)
        self._open_table: _OpenTable | None = None
        self._open_epoch: str | None = None
        self._final = True
        self._last_write: tuple[str, Report] | None = None
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
            self._portions(),
            self._portions(),
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
    def _described(self) -> str:
        return self._node.described()

    def _portions(self) -> Portions:
        return Portions(self._described, min(self._options.batch_rows, _MIN_PORTION_ROWS), self._statement_limit_s)

    def _advice(self, state: str | None) -> str | None:
        if state is not None:
            return hint_for(state)
        own = f"postgres_sink_connections.{connection_name(self._node.name)}"
        return f"check postgres_sink, or {own}: host, port, db, user, pass, sslmode"

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
        problems = [
            f'column "{column.name}" of relation "{self._options.table}" does not exist; it would be {column.ddl}'
            for column in comparison.missing
        ]
        problems += comparison.misfits
        if problems:
            listed = "".join(f"\n  - {problem}" for problem in problems)
            raise UserError(
                TABLE_UNFIT,
                f"{self._described}: table {self._options.table} {problem}:{listed}",
                node=self._node.name,
                where=self._node.where,
                hint="change the table, or the columns in a sql transform; `schema_evolution: additive` adds columns",
            )
        return comparison.columns

    # After a crash

    def applied(self, slices: Sequence[Slice]) -> Applied:
        with self._session.transaction():
            return self._table.ledger.applied(self._session, slices)

    def abandon(self, epoch: Epoch) -> Applied:
        """The earlier owner may be in the middle of a transaction: waits until it ends."""
        with self._session.transaction():
            applied = self._table.ledger.lock(self._session, epoch)
            if applied is Applied.NO:
                self._table.ledger.abandon(self._session, epoch)
        return Applied.NO if applied is None else applied

    # For `streamling state rewind`

    @property
    def doubles(self) -> bool:
        return not self._table.key

    def ledger(self) -> Mapping[str, Json]:
        with self._session.transaction():
            return self._table.ledger.positions(self._session)

    def rewind(self, positions: Mapping[str, Json]) -> None:
        with self._session.transaction():
            self._table.ledger.rewind(self._session, positions)

    # Epochs

    def writer(self) -> PostgresSink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        import pyarrow as pa

        # Before the transaction begins: no locks are held while Spark computes the rows.
        batches = list(batches)
        rows = pa.Table.from_batches(batches).combine_chunks() if batches else None
        arrived = rows.num_rows if rows is not None else 0
        keyed, indexes, null_keys = self._without_null_keys(rows) if rows is not None else (None, None, ())
        self._session.begin()
        self._open_epoch = epoch.id
        applied = self._lock_ledger(epoch)
        if applied is Applied.YES:
            if self._last_write is not None and self._last_write[0] == epoch.id:  # the answer to our commit was lost
                return self._last_write[1]
            return Report(arrived, detail=0)
        if applied is not Applied.NO:
            message = f"{self._described}: another process has taken over these rows"
            raise Fenced(STATE_MOVED, message, node=self._node.name)
        self._final = task.final
        bad, count = self._apply(epoch, keyed) if keyed is not None and keyed.num_rows else ((), 0)
        self._table.ledger.move(self._session, epoch)
        if indexes is not None:  # indexes among the rows with a key become indexes among all rows
            bad = tuple(replace(row, index=indexes[row.index].as_py()) for row in bad)
        rejected = (*null_keys, *bad)
        report = Report(arrived - len(rejected), len(rejected), rejected, detail=count)
        self._last_write = (epoch.id, report)
        return report

    def _lock_ledger(self, epoch: Epoch) -> Applied | None:
        try:
            return self._table.ledger.lock(self._session, epoch)
        except PermanentError as error:
            if sqlstate(error) != _NO_SUCH_TABLE:
                raise
            self.abort(epoch)
            with self._session.transaction():
                self._table.ledger.create(self._session)
            text = f"{self._described}: table {self._table.ledger.table} was dropped and has been created again"
            log.warning("%s; an epoch that was not finalized may have been written twice", text)
            raise TransientError(SINK_FAILED, text, node=self._node.name) from error

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        if self._open_epoch == epoch.id:
            try:
                with self._session.about(f"table {self._options.table}"):
                    self._session.commit()
            except RowRejected as error:
                if is_foreign_key(error.state) and not self._final:
                    raise WaitsForOthers(str(error)) from error
                text = f"{self._described}: table {self._options.table} rejects the epoch at commit: {error}"
                hint = "a deferred constraint is checked at commit, and the server does not say which row breaks it"
                raise PermanentError(SINK_FAILED, text, node=self._node.name, hint=hint) from error
            self._open_epoch = None
            self._table.statements.epoch_committed()
        return sum(report.detail for report in reports if isinstance(report.detail, int))

    def abort(self, epoch: Epoch) -> None:
        if self._open_epoch is not None:
            self._open_epoch = None
            self._session.rollback()

    def close(self) -> None:
        self._session.close()

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

    def _select(self, rows: pa.Table) -> EffectiveRows:
        options = self._options
        folded = self._table.statements.fold_keys(self._session, rows)
        return effective_rows(folded, self._table.key, options.batch_rows, deduplicate=options.deduplicate)

    def _lock_table(self) -> None:
        """Set the first savepoint, and keep the table from being changed until the transaction ends. If it was changed
        since it was compared with the input, compare it again: its new columns might round or cut values."""
        table = self._table
        version = lock_version(self._session, self._options.table, table.version.oid, then=SAVEPOINT)
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

    def _without_null_keys(self, rows: pa.Table) -> tuple[pa.Table, pa.Array | None, tuple[BadRow, ...]]:
        """The rows with a key, their indexes among all rows (None: the same), and the rows without a key."""
        import pyarrow.compute as pc

        from streamling.formats.json import json_row

        missing = None
        for name in self._table.key:
            nulls = rows.column(name).is_null()
            missing = nulls if missing is None else pc.or_(missing, nulls)
        if missing is None or not pc.any(missing).as_py():
            return rows, None, ()
        indexes = pc.indices_nonzero(missing)
        if self._node.options.on_error is OnError.FAIL:  # one is enough to end the run
            indexes = indexes[:1]
        null_keys = []
        for index in indexes.to_pylist():
            names = ", ".join(name for name in self._table.key if not rows.column(name)[index].is_valid)
            message = f"the key column {names} is null"
            null_keys.append(BadRow("null_key", message, {}, row=json_row(rows, index), index=index))
        keyed = pc.invert(missing)
        return rows.filter(keyed), pc.indices_nonzero(keyed), tuple(null_keys)

    def _warn_of_deletes(self, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        if self._table.key or self._warned_of_deletes:
            return
        if pc.any(pc.equal(pc.utf8_lower(rows.column(OPERATION_COLUMN)), "d")).as_py():
            self._warned_of_deletes = True
            log.warning("%s: without a primary key nothing can be deleted; deletions are left out", self._described)

"""The sink: one transaction per epoch, which begins by locking the ledger."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
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
from streamling.clients.postgres_errors import hint_for, reject_reason
from streamling.connector import (
    Applied,
    BadRow,
    BatchPolicy,
    Epoch,
    Guarantee,
    Report,
    Sink,
    SinkCapabilities,
    SinkContext,
    Slice,
    Task,
)
from streamling.errors import SINK_FAILED, STATE_MOVED, TABLE_UNFIT, Fenced, PermanentError, TransientError, UserError
from streamling.plan.types import OPERATION_COLUMN
from streamling.sinks.postgres.columns import TableColumn, table_column
from streamling.sinks.postgres.ledger import Ledger
from streamling.sinks.postgres.portions import Portions
from streamling.sinks.postgres.rounds import EffectiveRows, Round, effective_rows
from streamling.sinks.postgres.statements import Statements
from streamling.sinks.postgres.tables import add_columns, compare_table, create_table
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError
from streamling.spec.settings.names import connection_name

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.postgres.rounds import Indexes

log = logging.getLogger(__name__)
_NO_SUCH_TABLE = "42P01"
# Each rejected row takes some statements: a long search logs its progress, so that it does not look stuck.
_REMIND_S = 10.0
# If so few rows exceed the statement timeout, they wait for a lock. For a slower table, `batch_size` can be smaller.
_MIN_PORTION_ROWS = 100
# A value does not fit, or its domain rejects it: the server does not name the column.
_COLUMN_UNKNOWN = ("22", "23502", "23514")


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
    """What `open` makes: the key of the rows, the ledger beside the table, and the statements that write to it."""

    key: tuple[str, ...]
    ledger: Ledger
    statements: Statements


class PostgresSink(Sink):
    def __init__(self, node: NodeSpec, server: ConnectionOptions, options: WriteOptions) -> None:
        self.capabilities = SinkCapabilities(guarantee=Guarantee.EXACTLY_ONCE, transactional=True, batch=options.batch)
        self.target: str | None = f"{server}/{options.table}"
        self._node = node
        self._options = options
        self._statement_limit_s = server.statement_s
        self._session = PostgresSession(server, name=node.name, node=node.name, hint=self._advice)
        self._open_table: _OpenTable | None = None
        self._open_epoch: str | None = None
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
                columns = self._check_table(columns, key)
        except RowRejected as error:
            raise PermanentError(TABLE_UNFIT, f"{self._described}: {error}", node=self._node.name) from error
        statements = Statements(
            self._options.table,
            columns,
            key,
            self._options.on_conflict,
            self._options.conditions,
            self._portions(),
            self._portions(),
        )
        self._open_table = _OpenTable(key, ledger, statements)
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

    def _check_table(self, columns: tuple[TableColumn, ...], key: Sequence[str]) -> tuple[TableColumn, ...]:
        """The columns with the casts that this table needs. Raises UserError that lists all that does not fit."""
        comparison = compare_table(self._session, self._options.table, columns, key)
        missing = comparison.missing
        if missing and self._options.adds_columns and not comparison.misfits:
            add_columns(self._session, self._options.table, missing)
            log.info(
                "%s: added columns to %s: %s",
                self._described,
                self._options.table,
                ", ".join(column.name for column in missing),
            )
            missing = ()
        problems = [
            f'column "{column.name}" of relation "{self._options.table}" does not exist; it would be {column.ddl}'
            for column in missing
        ]
        problems += comparison.misfits
        if problems:
            listed = "".join(f"\n  - {problem}" for problem in problems)
            raise UserError(
                TABLE_UNFIT,
                f"{self._described}: table {self._options.table} does not fit the input:{listed}",
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
        bad, count = self._apply(keyed) if keyed is not None and keyed.num_rows else ((), 0)
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

    def _apply(self, rows: pa.Table) -> tuple[tuple[BadRow, ...], int]:
        """Write the rows; returns those that the server rejects, and how many rows count as written."""
        self._warn_of_deletes(rows)
        options = self._options
        with self._session.about(f"table {options.table}"):
            folded = self._table.statements.fold_keys(self._session, rows)
            selected = effective_rows(folded, self._table.key, options.batch_rows, deduplicate=options.deduplicate)
            bad = self._write_rows(rows, selected)
        return bad, len(selected) - len(bad)

    @property
    def _last_wins(self) -> bool:
        return self._options.on_conflict == "update" and not self._options.conditions

    def _write_round(self, rows: pa.Table, round_: Round) -> None:
        if len(round_.deletes):
            self._table.statements.delete(self._session, rows, round_.deletes)
        if len(round_.upserts):
            self._table.statements.upsert(self._session, rows, round_.upserts)

    def _write_rows(self, rows: pa.Table, selected: EffectiveRows) -> tuple[BadRow, ...]:
        """Write the rows; returns those that the server rejects. With `on_error: fail` the first one is enough."""
        if self._node.options.on_error is OnError.FAIL:
            return tuple(islice(self._write_halves(rows, selected), 1))
        bad_rows: list[BadRow] = []
        logged_at = time.monotonic()
        for bad in self._write_halves(rows, selected):
            bad_rows.append(bad)
            if time.monotonic() - logged_at > _REMIND_S:
                logged_at = time.monotonic()
                message = "%s: searching for rejected rows, %d of %d so far"
                log.warning(message, self._described, len(bad_rows), rows.num_rows)
        return tuple(bad_rows)

    def _write_halves(self, rows: pa.Table, selected: EffectiveRows) -> Iterator[BadRow]:
        """Write the rows. If the server rejects one of them, write the first half, then the second, until the row is
        found."""
        if not len(selected):
            return
        self._session.execute("SAVEPOINT half")
        try:
            for round_ in selected.rounds(last_wins=self._last_wins):
                self._write_round(rows, round_)
            self._session.execute("RELEASE half")
            return
        except RowRejected as error:
            self._session.execute("ROLLBACK TO half; RELEASE half")  # otherwise the next one would be nested in it
            if len(selected) == 1:
                yield self._bad_row(rows, selected.indexes, error)
                return
            log.debug("%s: one of %d rows is rejected: %s", self._described, len(selected), error)
        for half in selected.halves():
            yield from self._write_halves(rows, half)

    def _bad_row(self, rows: pa.Table, indexes: Indexes, error: RowRejected) -> BadRow:
        from streamling.formats.json import json_row

        column = error.column
        if column is None and error.state.startswith(_COLUMN_UNKNOWN):
            column = self._table.statements.rejecting_column(self._session, rows, indexes, error.state)
        named = f", column '{column}'" if column else ""
        text = f"table {self._options.table}{named}: {error}"
        index = int(indexes[0])
        return BadRow(reject_reason(error.state), text, {}, row=json_row(rows, index), index=index)

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

"""A sink that writes an epoch in one transaction, which begins by locking the ledger and ends by moving it."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from streamling.clients.postgres import ConnectionOptions, PostgresSession, PostgresTable, RowRejected, sqlstate
from streamling.clients.postgres_errors import hint_for, is_foreign_key
from streamling.connector import (
    Applied,
    BadRow,
    BatchPolicy,
    Epoch,
    Guarantee,
    Json,
    Report,
    Runtime,
    Sink,
    SinkCapabilities,
    Slice,
    Task,
    WaitsForOthers,
)
from streamling.errors import SINK_FAILED, STATE_MOVED, Fenced, PermanentError, TransientError
from streamling.sinks.postgres.ledger import Ledger
from streamling.sinks.postgres.portions import MIN_PORTION_ROWS, Portions
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError
from streamling.spec.settings.names import connection_name

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
_NO_SUCH_TABLE = "42P01"


@dataclass(frozen=True, slots=True)
class UsableRows:
    """Rows without nulls where the table needs values, their indexes among all rows (None: the same), and the rows that
    have such nulls."""

    rows: pa.Table
    indexes: pa.Array | None = None
    bad: tuple[BadRow, ...] = ()

    def index_among_all(self, bad: tuple[BadRow, ...]) -> tuple[BadRow, ...]:
        """Bad rows with an index among the usable rows, with their index among all rows."""
        indexes = self.indexes
        return bad if indexes is None else tuple(replace(row, index=indexes[row.index].as_py()) for row in bad)

    def reduced(self, usable: UsableRows) -> UsableRows:
        """`usable` are rows of these rows."""
        indexes = usable.indexes
        if self.indexes is not None:
            indexes = self.indexes if indexes is None else self.indexes.take(indexes)
        return UsableRows(usable.rows, indexes, (*self.bad, *self.index_among_all(usable.bad)))


class TransactionSink(Sink):
    """The protocol of an exactly-once sink into Postgres. What it does with the rows is up to the derived class."""

    def __init__(
        self, node: NodeSpec, server: ConnectionOptions, table: PostgresTable, batch: BatchPolicy | None
    ) -> None:
        """`table` is what the sink is about: errors of the server name it."""
        self.capabilities = SinkCapabilities(guarantee=Guarantee.EXACTLY_ONCE, transactional=True, batch=batch)
        self.target: str | None = f"{server}/{table}"
        self._server = server
        self._node = node
        self._written_table = table
        self._session = PostgresSession(server, name=node.name, node=node.name, hint=self._advice)
        self._open_epoch: str | None = None
        self._final = True
        self._last_write: tuple[str, Report] | None = None
        self._runtime: Runtime | None = None

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def _portions(self, batch_rows: int) -> Portions:
        """The portions of one kind of statement."""
        portions = Portions(self._node.described(), min(batch_rows, MIN_PORTION_ROWS), self._server.statement_s)
        if self._runtime is not None:
            portions.advance = self._runtime.advance
        return portions

    # What a derived class has to say

    @property
    @abstractmethod
    def _ledger(self) -> Ledger:
        """The ledger of an open sink."""

    @abstractmethod
    def _usable(self, rows: pa.Table) -> UsableRows:
        """Split off the rows that have nulls where the table needs values."""

    @abstractmethod
    def _apply(self, epoch: Epoch, rows: pa.Table) -> tuple[tuple[BadRow, ...], int]:
        """Write the rows in the open transaction; returns those that the server rejects, and how many rows count as
        written."""

    @abstractmethod
    def _count(self, rows: pa.Table) -> int:
        """How many of these rows count as written, if the server rejects none. In an open transaction."""

    @abstractmethod
    def _epoch_committed(self) -> None: ...

    # After a crash

    def applied(self, slices: Sequence[Slice]) -> Applied:
        with self._session.transaction():
            return self._ledger.applied(self._session, slices)

    def abandon(self, epoch: Epoch) -> Applied:
        """The earlier owner may be in the middle of a transaction: waits until it ends."""
        with self._session.transaction():
            applied = self._ledger.lock(self._session, epoch)
            if applied is Applied.NO:
                self._ledger.abandon(self._session, epoch)
        return Applied.NO if applied is None else applied

    # For `streamling state rewind`

    def ledger(self) -> Mapping[str, Json]:
        with self._session.transaction():
            return self._ledger.positions(self._session)

    def rewind(self, positions: Mapping[str, Json]) -> None:
        with self._session.transaction():
            self._ledger.rewind(self._session, positions)

    # Epochs

    def writer(self) -> Self:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        import pyarrow as pa

        # Before the transaction begins: no locks are held while Spark computes the rows.
        batches = list(batches)
        rows = pa.Table.from_batches(batches).combine_chunks() if batches else None
        arrived = rows.num_rows if rows is not None else 0
        usable = self._usable(rows) if rows is not None else None
        self._session.begin()
        self._open_epoch = epoch.id
        applied = self._lock_ledger(epoch)
        if applied is Applied.YES:
            if self._last_write is not None and self._last_write[0] == epoch.id:  # the answer to our commit was lost
                return self._last_write[1]
            return Report(arrived, detail=self._counted(usable))
        if applied is not Applied.NO:
            message = f"{self._described}: another process has taken over these rows"
            raise Fenced(STATE_MOVED, message, node=self._node.name)
        self._final = task.final
        rejected, count = self._write_rows(epoch, usable) if usable is not None else ((), 0)
        self._ledger.move(self._session, epoch)
        report = Report(arrived - len(rejected), len(rejected), rejected, detail=count)
        self._last_write = (epoch.id, report)
        return report

    def recount(self, batches: Iterable[pa.RecordBatch]) -> int:
        import pyarrow as pa

        held = list(batches)
        if not held:
            return 0
        usable = self._usable(pa.Table.from_batches(held).combine_chunks())
        with self._session.transaction():
            return self._counted(usable)

    def _counted(self, usable: UsableRows | None) -> int:
        return self._count(usable.rows) if usable is not None and usable.rows.num_rows else 0

    def _write_rows(self, epoch: Epoch, usable: UsableRows) -> tuple[tuple[BadRow, ...], int]:
        bad, count = self._apply(epoch, usable.rows) if usable.rows.num_rows else ((), 0)
        return (*usable.bad, *usable.index_among_all(bad)), count

    def _lock_ledger(self, epoch: Epoch) -> Applied | None:
        try:
            return self._ledger.lock(self._session, epoch)
        except PermanentError as error:
            if sqlstate(error) != _NO_SUCH_TABLE:
                raise
            self.abort(epoch)
            with self._session.transaction():
                self._ledger.create(self._session)
            text = f"{self._described}: table {self._ledger.table} was dropped and has been created again"
            log.warning("%s; an epoch that was not finalized may have been written twice", text)
            raise TransientError(SINK_FAILED, text, node=self._node.name) from error

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        if self._open_epoch == epoch.id:
            try:
                with self._session.about(f"table {self._written_table}"):
                    self._session.commit()
            except RowRejected as error:
                if is_foreign_key(error.state) and not self._final:
                    raise WaitsForOthers(str(error)) from error
                text = f"{self._described}: table {self._written_table} rejects the epoch at commit: {error}"
                hint = "a deferred constraint is checked at commit, and the server does not say which row breaks it"
                raise PermanentError(SINK_FAILED, text, node=self._node.name, hint=hint) from error
            self._open_epoch = None
            self._epoch_committed()
        return sum(report.detail for report in reports if isinstance(report.detail, int))

    def abort(self, epoch: Epoch) -> None:
        if self._open_epoch is not None:
            self._open_epoch = None
            self._session.rollback()

    def close(self) -> None:
        self._session.close()

    # For derived classes

    @property
    def _described(self) -> str:
        return self._node.described()

    def _advice(self, state: str | None) -> str | None:
        if state is not None:
            return hint_for(state)
        own = f"postgres_sink_connections.{connection_name(self._node.name)}"
        return f"check postgres_sink, or {own}: host, port, db, user, pass, sslmode"

    def _without_nulls(self, rows: pa.Table, columns: Sequence[str], kind: str, allowed: pa.Array = None) -> UsableRows:
        """Split off the rows in which one of these columns is null, unless they are `allowed` to have nulls. `kind`
        names the columns: `key`."""
        import pyarrow.compute as pc

        from streamling.formats.json import json_row

        missing = None
        for name in columns:
            nulls = rows.column(name).is_null()
            missing = nulls if missing is None else pc.or_(missing, nulls)
        if missing is not None and allowed is not None:
            missing = pc.and_not(missing, allowed)
        if missing is None or not pc.any(missing).as_py():
            return UsableRows(rows)
        indexes = pc.indices_nonzero(missing)
        if self._node.options.on_error is OnError.FAIL:  # one is enough to end the run
            indexes = indexes[:1]
        bad = []
        for index in indexes.to_pylist():
            names = ", ".join(name for name in columns if not rows.column(name)[index].is_valid)
            message = f"the {kind} column {names} is null"
            bad.append(BadRow(f"null_{kind}", message, {}, row=json_row(rows, index), index=index))
        present = pc.invert(missing)
        return UsableRows(rows.filter(present), pc.indices_nonzero(present), tuple(bad))

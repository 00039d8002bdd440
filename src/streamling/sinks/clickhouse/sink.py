"""The sink: blocks of rows, each an insert with a token by which the table recognises a repetition."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.clients.clickhouse import ClickHouse
from streamling.connector import (
    BadRow,
    BatchPolicy,
    Epoch,
    Report,
    RequestKeys,
    Runtime,
    Sink,
    SinkCapabilities,
    SinkContext,
    Task,
)
from streamling.errors import SINK_FAILED, TABLE_UNFIT, PermanentError, UserError
from streamling.sinks.clickhouse.requests import Requests, errors_of
from streamling.sinks.clickhouse.streams import Stream, Work
from streamling.sinks.clickhouse.tables import (
    DELETED,
    MAX_BLOCKS,
    ExistingTable,
    PairedColumn,
    Pairing,
    TableOptions,
    cautions,
    create_statement,
    describe_table,
    pair_columns,
)
from streamling.sinks.streams import run_streams
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError
from streamling.spec.settings.blocks import ClickHouseConnection, Compression

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.clickhouse.blocks import EncodedRows

log = logging.getLogger(__name__)
_CONNECT_S = 10.0
# An insert of many rows may take long, and so may a delete, which writes parts of the table anew.
_REQUEST_S = 300.0
_REMARK = "the table drops repeated inserts if it has a deduplication window, as one that the sink creates has"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a sink, with the defaults of the settings."""

    table: TableOptions
    batch: BatchPolicy
    batch_rows: int
    deduplicate: bool
    compression: Compression
    compression_level: int


@dataclass(frozen=True, slots=True)
class _OpenTable:
    """What `open` makes: the columns that are written, one connection per stream, and what is sent over it."""

    columns: tuple[PairedColumn, ...]
    servers: tuple[ClickHouse, ...]
    context: SinkContext
    requests: Requests
    marks_deletes: bool

    @property
    def key(self) -> tuple[str, ...]:
        return self.context.primary_key


class ClickHouseSink(Sink):
    def __init__(
        self, node: NodeSpec, connection: ClickHouseConnection, options: WriteOptions, application_id: str
    ) -> None:
        self.capabilities = SinkCapabilities(batch=options.batch, same_rows=True, remark=_REMARK)
        self.target: str | None = f"{connection.url}/{options.table.name}"
        self._node = node
        self._connection = connection
        self._options = options
        self._application_id = application_id
        self._runtime: Runtime | None = None
        self._opened: _OpenTable | None = None

    @property
    def doubles(self) -> bool:
        return False

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    # Before the first epoch

    def open(self, context: SinkContext) -> None:
        server = self._connect()
        try:
            with errors_of(self._node, "failed to prepare", self._options.table.name):
                table, is_new = self._describe(server, context)
                pairing = self._pair(table, context)
                opened = self._make_open_table(server, table, pairing, context)
                # No rows: the server checks names, types and rights all the same.
                self._check_insert(opened)
        except BaseException:
            server.close()
            raise
        if not is_new:
            self._warn(table, pairing, context)
        self._opened = opened

    def _connect(self) -> ClickHouse:
        return ClickHouse(
            self._connection,
            application_id=self._application_id,
            timeout=_REQUEST_S,
            connect_timeout=_CONNECT_S,
            condition=SINK_FAILED,
        )

    def _describe(self, server: ClickHouse, context: SinkContext) -> tuple[ExistingTable, bool]:
        """The table, and whether it was created now."""
        options = self._options.table
        table = describe_table(server, options.name)
        if table is not None:
            return table, False
        server.execute(create_statement(options, context.schema, context.primary_key))
        log.info("%s: created table %s", self._described, options.name)
        table = describe_table(server, options.name)
        if table is None:
            raise PermanentError(SINK_FAILED, "it was created, but the server does not find it", node=self._node.name)
        return table, True

    def _pair(self, table: ExistingTable, context: SinkContext) -> Pairing:
        pairing = pair_columns(table, context.schema, context.primary_key)
        if pairing.problems:
            listed = "".join(f"\n  - {problem}" for problem in pairing.problems)
            raise UserError(
                TABLE_UNFIT,
                f"{self._described}: table {self._options.table.name} does not fit the input:{listed}",
                node=self._node.name,
                where=self._node.where,
                hint="change the table, or the columns in a sql transform",
            )
        return pairing

    def _make_open_table(
        self, server: ClickHouse, table: ExistingTable, pairing: Pairing, context: SinkContext
    ) -> _OpenTable:
        options = self._options.table
        marks = options.append_only and DELETED in table.types
        names = [column.name for column in pairing.columns] + ([DELETED] if marks else [])
        if self._runtime is None:
            raise AssertionError("not attached")
        requests = Requests(
            self._node,
            self._runtime,
            options.name,
            names,
            self._options.compression,
            self._options.compression_level,
            distributed=table.engine == "Distributed",
        )
        servers = (server, *(self._connect() for _ in range(context.width - 1)))
        return _OpenTable(pairing.columns, servers, context, requests, marks)

    def _check_insert(self, opened: _OpenTable) -> None:
        import numpy as np

        from streamling.formats.arrow import arrow_schema
        from streamling.sinks.clickhouse.blocks import encode_rows

        rows = arrow_schema(opened.context.schema).empty_table()
        encoded, _ = encode_rows(rows, opened.columns, marks=opened.marks_deletes)
        opened.requests.check(opened.servers[0], encoded.take(np.arange(0)))

    def _warn(self, table: ExistingTable, pairing: Pairing, context: SinkContext) -> None:
        name = self._options.table.name
        if pairing.dropped:
            names = ", ".join(pairing.dropped)
            log.warning("%s: table %s has no column for %s: not written", self._described, name, names)
        for caution in cautions(table, self._options.table, context.primary_key):
            log.warning("%s: table %s: %s", self._described, name, caution)
        if not table.drops_repeated:
            window = "is not known" if table.window is None else f"is {table.window}"
            log.warning(
                "%s: the deduplication window of table %s %s, so rows may be there twice after a crash or a lost "
                "answer, until the table merges them: set %s to %d or more",
                self._described,
                name,
                window,
                table.window_setting,
                MAX_BLOCKS,
            )

    @property
    def _table(self) -> _OpenTable:
        if self._opened is None:
            raise AssertionError("not opened")
        return self._opened

    @property
    def _described(self) -> str:
        return self._node.described()

    # Epochs

    def writer(self) -> ClickHouseSink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        import pyarrow as pa

        from streamling.formats.last_rows import last_rows
        from streamling.sinks.clickhouse.blocks import ReplacedRows, divide, encode_rows

        # All of them before the first insert: if Spark fails to compute some, none is written.
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return Report(detail=0)
        table, options = self._table, self._options
        rows = pa.Table.from_batches(held).combine_chunks()
        encoded, unfit = encode_rows(rows, table.columns, marks=table.marks_deletes)
        bad = self._unwritable(rows, encoded, {value.index: (value.column, value.message) for value in reversed(unfit)})
        if bad and self._node.options.on_error is OnError.FAIL:
            return Report(0, len(bad), bad, detail=0)
        excluded = [row.index for row in bad if row.index is not None]
        indexes = last_rows(rows, table.key, options.batch_rows if options.deduplicate else None, excluded)
        work = Work(
            rows,
            encoded,
            ReplacedRows(rows, table.key, options.batch_rows if options.deduplicate else None, excluded),
            tuple(column for column in table.columns if column.name in table.key),
            table.requests,
            self._make_keys(epoch, encoded),
            batch_rows=options.batch_rows,
            mutates=not options.table.append_only,
            fails=self._node.options.on_error is OnError.FAIL,
        )
        parts = divide(rows, table.key, indexes, len(table.servers))
        streams = [Stream(work, server, part) for server, part in zip(table.servers, parts, strict=False)]
        run_streams(streams, f"clickhouse {self._node.name}")
        rejected = sorted((*bad, *(row for s in streams for row in s.bad)), key=lambda row: row.index or 0)
        written = sum(stream.written for stream in streams)
        return Report(rows.num_rows - len(rejected), len(rejected), tuple(rejected), detail=written)

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        return sum(report.detail for report in reports if isinstance(report.detail, int))

    def _make_keys(self, epoch: Epoch, encoded: EncodedRows) -> Callable[[bytes], str]:
        """Makes the token of an insert. A replay deletes again what the epoch deletes: inserts that follow must then
        not be taken for repetitions."""
        if not self._options.table.append_only and encoded.deletions.any():
            return lambda _: secrets.token_hex(16)
        return RequestKeys(epoch, self._table.context.node).key

    def _unwritable(
        self, rows: pa.Table, encoded: EncodedRows, unfit: dict[int, tuple[str, str]]
    ) -> tuple[BadRow, ...]:
        from streamling.formats.json import json_row

        table, name = self._table, self._options.table.name
        if self._options.table.append_only and not table.marks_deletes:
            for index in encoded.deletions.nonzero()[0].tolist():
                unfit.setdefault(index, (DELETED, "the row is a delete, and the table has no such column"))
        indexes = sorted(unfit)
        if self._node.options.on_error is OnError.FAIL:  # one is enough to end the run
            indexes = indexes[:1]
        bad = []
        for index in indexes:
            column, why = unfit[index]
            missing = column in table.key and not rows.column(column)[index].is_valid
            text = f"table {name}, column '{column}': {'the key is null' if missing else why}"
            reason = "null_key" if missing else "type_mismatch"
            bad.append(BadRow(reason, text, {}, row=json_row(rows, index), index=index, cause=column))
        return tuple(bad)

    def trouble(self) -> str | None:
        return self._opened.requests.trouble if self._opened is not None else None

    def close(self) -> None:
        if self._opened is not None:
            for server in self._opened.servers:
                server.close()

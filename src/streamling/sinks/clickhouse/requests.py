"""Inserts and deletes as requests, repeated until the server has them."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamling.clients.clickhouse import ClickHouse
from streamling.clients.clickhouse_errors import ValueRejected
from streamling.clients.http import quote_text
from streamling.connector import BadRow, Runtime
from streamling.errors import SINK_FAILED, StreamlingError, TransientError
from streamling.formats.clickhouse_syntax import quote_name
from streamling.retry import retry
from streamling.sinks.clickhouse.tables import TableName
from streamling.spec.pipeline import NodeSpec
from streamling.spec.settings.blocks import Compression

if TYPE_CHECKING:
    import pyarrow as pa

# How soon the end of the run ends a pause between two attempts.
_CHECK_S = 0.2
_INSERT = {
    # One insert is one block: the server must not gather inserts, nor answer before they are stored.
    "async_insert": "0",
    "insert_deduplicate": "1",
    # Rows of one key stay as they are until the table merges them.
    "optimize_on_insert": "0",
    "input_format_null_as_default": "0",
    "throw_on_max_partitions_per_insert_block": "0",
}
# Without it a Distributed table answers before the rows are where they belong.
_DISTRIBUTED = {"distributed_foreground_insert": "1"}
# Wait until the delete is done, on all replicas.
_DELETE = {"mutations_sync": "2"}
_MUTATION = """
SELECT is_done, latest_fail_reason FROM system.mutations
WHERE database = {database:String} AND table = {table:String} AND position(command, {mark:String}) > 0
"""
_CONSTRAINTS = (395, 469)


@contextmanager
def errors_of(node: NodeSpec, what: str, table: TableName) -> Iterator[None]:
    """Errors of the server name the node and the table; one about a row becomes a bad row, which does so itself."""
    try:
        yield
    except ValueRejected:
        raise
    except StreamlingError as error:
        if error.node is None:
            error.node = node.name
            error.message = f"{node.described()}: {what} table {table}: {error.message}"
            error.args = (error.message,)
        raise


class Requests:
    """What is sent to one table, with these columns; several threads may do so at once, each over its own server."""

    def __init__(
        self,
        node: NodeSpec,
        runtime: Runtime,
        table: TableName,
        columns: Sequence[str],
        compression: Compression,
        level: int,
        *,
        distributed: bool,
    ) -> None:
        self._node = node
        self._runtime = runtime
        self.table = table
        self._statement = f"INSERT INTO {table.sql} ({', '.join(map(quote_name, columns))}) FORMAT ArrowStream"
        self._compression = compression
        self._level = level
        self._settings = {**_INSERT, **(_DISTRIBUTED if distributed else {})}
        self._troubles: dict[int, str] = {}
        """By thread."""

    @property
    def trouble(self) -> str | None:
        """Why requests are being repeated at the moment."""
        return next(iter(list(self._troubles.values())), None)

    def check(self, server: ClickHouse, block: pa.RecordBatch) -> None:
        """Insert a block without rows, once."""
        self._sending(server, block, self._settings)()

    def insert(self, server: ClickHouse, block: pa.RecordBatch, token: str, is_over: Callable[[], bool]) -> None:
        """Raises ValueRejected if a row is at fault; TransientError only when the run stops, or it `is_over`."""
        settings = {**self._settings, "insert_deduplication_token": token}
        self._repeat(self._sending(server, block, settings), "an insert", is_over)

    def delete(self, server: ClickHouse, statement: str, is_over: Callable[[], bool]) -> None:
        """Waits until the server has executed it; one that takes longer than a request is not begun again."""
        from streamling.sinks.clickhouse.deletions import marked

        mark = secrets.token_hex(8)
        statement = marked(statement, mark)
        attempts = itertools.count(1)

        def attempt() -> None:
            if next(attempts) == 1 or not self._is_executed(server, mark):
                server.execute(statement, _DELETE)

        self._repeat(attempt, "a delete", is_over)

    def _is_executed(self, server: ClickHouse, mark: str) -> bool:
        """Whether the server has executed a delete, False if it does not know it. Raises TransientError meanwhile."""
        found = server.rows(_MUTATION, database=self.table.database, table=self.table.table, mark=mark)
        for is_done, reason in found:
            if not is_done:
                why = f": {quote_text(reason)}" if reason else ""
                raise TransientError(SINK_FAILED, f"the server has not finished a delete yet{why}")
        return bool(found)

    def rejected(self, rows: pa.Table, index: int, error: ValueRejected) -> BadRow:
        from streamling.formats.json import json_row

        reason = "constraint_violation" if error.number in _CONSTRAINTS else "type_mismatch"
        text = f"table {self.table}: {error.message}"
        return BadRow(reason, text, {}, row=json_row(rows, index), index=index, cause=error.cause)

    def _sending(self, server: ClickHouse, block: pa.RecordBatch, settings: dict[str, str]) -> Callable[[], None]:
        """A function that sends the block; what it sends is made once."""
        from streamling.sinks.clickhouse.blocks import arrow_stream, compress

        body, encoding = compress(arrow_stream(block), self._compression, self._level)
        return lambda: server.insert(self._statement, body, settings, encoding)

    def _repeat(self, action: Callable[[], None], what: str, is_over: Callable[[], bool]) -> None:
        runtime = self._runtime

        def stopping() -> bool:
            return runtime.ends_retries() or is_over()

        def sleep(seconds: float) -> None:
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0 and not stopping():
                runtime.pause(min(left, _CHECK_S))

        with errors_of(self._node, "failed to write to", self.table):
            retry(
                action,
                what=f"{what} of {self._node.described()}",
                stopping=stopping,
                sleep=sleep,
                on_trouble=self._note_trouble,
            )
        runtime.advance()

    def _note_trouble(self, trouble: str | None) -> None:
        thread = threading.get_ident()
        if trouble is None:
            self._troubles.pop(thread, None)
        else:
            self._troubles[thread] = trouble

"""Reads ranges of a ClickHouse table as Arrow, in the driver or in an executor."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamling.clients.clickhouse import ClickHouse, StreamedAnswer
from streamling.clients.clickhouse_errors import QueryTimeout
from streamling.connector import BadRow, Json, Reached
from streamling.errors import SOURCE_FAILED, StreamlingError
from streamling.formats.clickhouse_wire import unwired
from streamling.plan.types import OPERATION_COLUMN, Field, Schema
from streamling.sources.clickhouse.queries import TableQueries
from streamling.sources.clickhouse.ranges import Cursor, KeyRange
from streamling.spec.settings.blocks import ClickHouseSourceSettings

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Rows = Iterator["pa.RecordBatch | BadRow"]
# The last bytes of an Arrow stream. Without them a stream that was cut between two batches would look complete.
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_BATCH_BYTES = 8 << 20
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class ClickHouseReader:
    """Holds options only. A query that gets no answer within `timeout` seconds is repeated for half of its range."""

    node: str
    connection: ClickHouseSourceSettings
    application_id: str
    timeout: float
    queries: TableQueries
    columns: Schema

    def read(self, part: Json) -> Iterator[pa.RecordBatch | BadRow | Reached]:
        try:
            with self.server() as server:
                yield from self._rows(server, KeyRange.from_json(part))
        except StreamlingError as error:
            error.node = error.node or self.node
            raise
        yield Reached(part)

    def server(self) -> ClickHouse:
        return ClickHouse(
            self.connection, application_id=self.application_id, timeout=self.timeout, condition=SOURCE_FAILED
        )

    def _rows(self, server: ClickHouse, range_: KeyRange) -> Rows:
        began = False
        try:
            for item in self._stream(server, range_):
                began = True
                yield item
            return
        except QueryTimeout as error:
            halves = [] if began else halve(server, self.queries, range_)
            if not halves:
                raise
            log.warning("source %s: trying again with half of the range: %s", self.node, error.message)
        time.sleep(_PAUSE_S)
        for half in halves:
            yield from self._rows(server, half)

    def _stream(self, server: ClickHouse, range_: KeyRange) -> Rows:
        number = 0
        with server.stream(self.queries.rows(range_)) as answer:
            for batch in _batches(answer):
                for item in self._checked(batch):
                    if isinstance(item, str):
                        yield BadRow("decode_error", item, self._place(server, range_, number))
                        number += 1
                    else:
                        yield from _cut(item)
                        number += item.num_rows

    def _place(self, server: ClickHouse, range_: KeyRange, number: int) -> Mapping[str, Json]:
        (values,) = server.rows(self.queries.places(range_, number))
        return place(self.queries, values)

    def _checked(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | str]:
        """The rows as the pipeline knows them; for a row with a value that cannot be read, what is wrong with it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        start = 0
        if self.queries.checks:
            *_, failed, values = batch.columns
            for row in pc.indices_nonzero(failed).to_pylist():
                if row > start:
                    yield from self._shaped(batch.slice(start, row - start))
                check = self.queries.checks[failed[row].as_py() - 1]
                value = values[row].cast(pa.binary()).as_py().decode(errors="replace")
                yield f"the value {value!r} of the column '{check.column}' cannot be read as {check.type}"
                start = row + 1
        if start < batch.num_rows:
            yield from self._shaped(batch.slice(start) if start else batch)

    def _shaped(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | str]:
        """The rows as the pipeline knows them; for a row with text that is not UTF-8, what is wrong with it."""
        import pyarrow as pa

        try:
            yield self._cast(batch)
        except pa.ArrowInvalid as error:
            if batch.num_rows == 1:
                yield f"the row cannot be read: {error}"
                return
            middle = batch.num_rows // 2
            for half in (batch.slice(0, middle), batch.slice(middle)):
                yield from self._shaped(pa.concat_batches([half]))

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        from streamling.formats.arrow import arrow_schema

        arrays = [
            pa.repeat(pa.scalar("i"), batch.num_rows) if field is None else unwired(batch.column(index), field)
            for index, field in self._wires()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self.columns))

    def _wires(self) -> Iterator[tuple[int, Field | None]]:
        """Every column with its number in the answer; None for the operation, which the server does not send."""
        index = 0
        for field in self.columns:
            if field.name == OPERATION_COLUMN:
                yield -1, None
            else:
                yield index, field
                index += 1


@dataclass(frozen=True, slots=True)
class ClickHouseLocator:
    """The keys of rows, by reading a range again."""

    reader: ClickHouseReader

    def places(self, part: Json) -> Iterator[Mapping[str, Json]]:
        queries = self.reader.queries
        with self.reader.server() as server:
            for values in server.rows(queries.places(KeyRange.from_json(part))):
                yield place(queries, values)

    def rejects(self, parts: Sequence[Json], numbers: Sequence[int]) -> Mapping[int, BadRow]:
        """The server filters: no row is rejected by the filter of the source."""
        return {}


def place(queries: TableQueries, values: Sequence[Any]) -> Mapping[str, Json]:
    """Where a row with this key is."""
    key: list[Json] = [key.to_json(str(value))["value"] for key, value in zip(queries.keys, values, strict=True)]
    return {"table": queries.name, "key": key}


def halve(server: ClickHouse, queries: TableQueries, range_: KeyRange) -> list[KeyRange]:
    """Two ranges with about the same number of rows; none if the range cannot be cut."""
    inside = range_.start.values[:1] == range_.end[:1]
    if inside and not queries.pages_in_key:
        return []
    middle = int(server.rows(queries.count(range_))[0][0]) // 2
    if not middle:
        return []
    keys = queries.keys if inside else queries.keys[:1]
    ((_, edges),) = server.rows(queries.edges(range_, keys, middle, middle))
    first, *_, edge = (tuple(map(str, values)) for values in edges)
    if inside:
        is_inner = edge != range_.end
        return [KeyRange(range_.start, edge, True), KeyRange(Cursor(edge, True), range_.end, True)] if is_inner else []
    if edge != first:
        return [KeyRange(range_.start, edge, False), KeyRange(Cursor(edge), range_.end, range_.closed)]
    # More than half of the rows have the first value.
    halves = halve(server, queries, KeyRange(Cursor(first), first, True))
    return [*halves, KeyRange(Cursor(first, True), range_.end, range_.closed)] if halves else []


def _batches(answer: StreamedAnswer) -> Iterator[pa.RecordBatch]:
    """The batches of a complete answer; the last of them may come before it is known that the answer is not complete,
    which is an error then."""
    import pyarrow as pa

    try:
        stream = pa.ipc.open_stream(pa.PythonFile(answer, mode="r"))
        yield from stream
    except pa.ArrowInvalid:
        # Nothing was sent, or the text of an exception, which the end of the answer tells.
        answer.end(_END)
        if answer.tail:
            raise
        return
    answer.end(_END)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded size; a single row may be larger."""
    if batch.num_rows > 1 and batch.nbytes > _BATCH_BYTES:
        middle = batch.num_rows // 2
        yield from _cut(batch.slice(0, middle))
        yield from _cut(batch.slice(middle))
    elif batch.num_rows:
        yield batch

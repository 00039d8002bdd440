"""The control side of a ClickHouse source: which ranges of the table were offered, and which come next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from streamling.clients.clickhouse import ClickHouse, is_local
from streamling.connector import Extent, Json, Offer, Room, Slice, Source, SourceCapabilities
from streamling.errors import INVALID_VALUE, SOURCE_FAILED, PermanentError, StreamlingError, UserError
from streamling.formats.clickhouse_casts import cast_to
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.sources.clickhouse.columns import ClickHouseTable
from streamling.sources.clickhouse.keys import WrongKeyValue
from streamling.sources.clickhouse.planner import Planner, Ranges
from streamling.sources.clickhouse.queries import Check, TableQueries
from streamling.sources.clickhouse.ranges import Cursor, KeyRange
from streamling.sources.clickhouse.reader import ClickHouseLocator, ClickHouseReader
from streamling.spec.settings.blocks import ClickHouseSourceSettings

# Rows that the driver reads are cut as well: if they are larger than expected, those of the last parts are taken back.
_DRIVER_PARTS = 4
_LEAST_PART_ROWS = 2000
Thing = TypeVar("Thing")


class ClickHouseSource(Source):
    """Offers the ranges of a table one after the other, up to the largest key at its start."""

    capabilities = SourceCapabilities(takes_back=True)

    def __init__(
        self,
        *,
        node: str,
        name: str,
        look_up: Callable[[], ClickHouseTable],
        filter_: str | None,
        start_at: str | None,
        connection: ClickHouseSourceSettings,
        application_id: str,
        query_timeout: float,
        cursor: str | None = None,
    ) -> None:
        """`cursor`: the name in the state key, by default that of the node."""
        self._node = node
        self._name = name
        self._look_up = look_up
        self._filter = filter_
        self._start_at = start_at
        self._connection = connection
        self._application_id = application_id
        self._query_timeout = query_timeout
        self._key = f"clickhouse_source:{cursor or node}:v1"
        self.until: str | None = None
        """The largest value to read of the first column of the key; None: the one that the table has at the start."""
        self._table: ClickHouseTable | None = None
        self._reader: ClickHouseReader | None = None
        self._planner: Planner | None = None
        self._server: ClickHouse | None = None
        self._stored: Json = None
        """The position after the last offer."""
        self._cursor = Cursor()
        """The same, as the planner takes it."""
        self._last: str | None = None
        """The largest value of the first column of the key."""
        self._started = False
        """Whether that value is known."""
        self._ended = False
        self._rows = (0, 0)
        """Rows that were offered, and all of them."""
        self._offered = 0
        """Rows of the last offer."""

    def prepare(self, columns: Schema, read: Collection[str]) -> None:
        self.columns = Schema(tuple(field for field in columns if field.name in read))
        table = self._table = self._look_up()
        queries = table_queries(table, self.columns, self._filter, self._connection)
        self._reader = ClickHouseReader(
            self._node, self._connection, self._application_id, self._query_timeout, queries, self.columns
        )
        self._planner = Planner(queries, self._connection.page_size)

    def open(self, positions: Mapping[str, Json]) -> None:
        self._stored = positions.get(self._key)
        self._cursor = self._begin(_prepared(self._table))
        self._started = False
        self._ended = False
        self._rows = (0, 0)
        self._offered = 0

    def _begin(self, table: ClickHouseTable) -> Cursor:
        """Where reading starts: the stored position, unless `start_at` was changed since."""
        stored, first = self._stored, _first_item(self._start_at)
        if isinstance(stored, dict) and stored.get("args"):
            same_start = first is None or stored.get("start_at") == first
            if same_start and stored.get("sorting_keys") != list(table.sorting_key):
                raise self._unusable(f"it is one of the sorting key {stored.get('sorting_keys')}")
            if same_start:
                try:
                    return Cursor.from_json(stored["args"], table.keys, after=stored.get("after") is True)
                except WrongKeyValue as error:
                    raise self._unusable(f"{error}") from error
        if first is None:
            return Cursor()
        try:
            return Cursor((table.keys[0].parse(first),))
        except WrongKeyValue as error:
            message = f"clickhouse source '{self._name}': 'start_at' {error}"
            raise UserError(INVALID_VALUE, message, node=self._name) from error

    def _unusable(self, reason: str) -> PermanentError:
        return PermanentError(
            SOURCE_FAILED,
            f"clickhouse source '{self._name}': the stored position does not fit the table: {reason}",
            node=self._name,
            hint="reset the state to read the table from the start: streamling state reset",
        )

    @property
    def bounded(self) -> bool:
        return True

    @property
    def ended(self) -> bool:
        return self._ended

    def offer(self, room: Room) -> Offer | None:
        try:
            return self._offer(room)
        except StreamlingError as error:
            error.node = error.node or self._name
            raise

    def _offer(self, room: Room) -> Offer | None:
        server = self._server = self._server or _prepared(self._reader).server()
        if not self._started:
            self._start(server)
        found = self._find(server, room.rows, _count_parts(room))
        if found is None:
            return None
        table, start = _prepared(self._table), self._stored
        self._move(found.ranges[-1].next, table)
        parts_ = tuple(range_.to_json() for range_ in found.ranges)
        done, total = self._rows
        self._rows = (min(done + found.rows, total), total)
        self._offered = found.rows
        slice_ = Slice(self._node, self._key, start, self._stored, parts_, found.rows)
        return Offer((slice_,), waiting=self._rows[1] - self._rows[0])

    def _find(self, server: ClickHouse, rows: int, parts: int) -> Ranges | None:
        """The next ranges with rows; None at the end."""
        planner = _prepared(self._planner)
        while self._last is not None and not self._ended:
            found = planner.next(server, self._cursor, self._last, rows, parts)
            if found.rows:
                return found
            if not found.ranges:
                break
            self._cursor = found.ranges[-1].next  # the rest of one key, which has no more rows
        self._ended = True
        return None

    def last_key(self) -> str | None:
        """The largest value of the first column of the key at the moment; None if the table is empty."""
        self._server = self._server or _prepared(self._reader).server()
        return _prepared(self._planner).last_key(self._server)

    def _start(self, server: ClickHouse) -> None:
        planner = _prepared(self._planner)
        self._last = self.until if self.until is not None else planner.last_key(server)
        if self._last is not None:
            self._rows = (0, planner.count(server, self._cursor, self._last))
        self._started = True

    def _move(self, cursor: Cursor, table: ClickHouseTable) -> None:
        self._cursor = cursor
        self._stored = cursor.to_json(table.keys, table.sorting_key, _first_item(self._start_at))
        self._ended = cursor.after and cursor.values == (self._last,)

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        if place == slice_.parts[-1]:
            return slice_
        kept = slice_.parts.index(place) + 1 if place in slice_.parts else 0
        done, total = self._rows
        rows = slice_.rows * kept // len(slice_.parts)
        self._rows = (max(done - self._offered + rows, 0), total)
        self._ended = False
        if not kept:
            self._cursor = KeyRange.from_json(slice_.parts[0]).start
            self._stored = slice_.start
            return None
        self._move(KeyRange.from_json(slice_.parts[kept - 1]).next, _prepared(self._table))
        return replace(slice_, end=self._stored, parts=slice_.parts[:kept], rows=rows)

    def reader(self) -> ClickHouseReader:
        return _prepared(self._reader)

    def locator(self) -> ClickHouseLocator:
        return ClickHouseLocator(_prepared(self._reader))

    def extent(self) -> Extent | None:
        if not self._started:
            return None
        done, total = self._rows
        return Extent(total if self._ended else done, total, "rows")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


def _prepared(thing: Thing | None) -> Thing:
    if thing is None:
        raise AssertionError("the source is not prepared")
    return thing


def table_queries(
    table: ClickHouseTable,
    columns: Schema,
    filter_: str | None,
    connection: ClickHouseSourceSettings,
) -> TableQueries:
    """The queries that read these columns of a table."""
    names = [field.name for field in columns if field.name != OPERATION_COLUMN]
    # A query whose answer nobody waits for must not go on.
    always = (("cancel_http_readonly_queries_on_client_close", "1"),) if table.settable else ()
    # Between processes of one machine bytes cost less than compression.
    method = "none" if is_local(connection) else "lz4_frame"
    arrow = (("output_format_arrow_compression_method", f"'{method}'"),) if table.settable else ()
    casts = {f: cast_to(f, table.types[f.name]) for f in columns if f.name in names}
    expressions = {field.name: cast.sql for field, cast in casts.items()}
    return TableQueries(
        table.name,
        table.database,
        table.table,
        table.keys,
        columns=tuple(expressions.values()),
        checks=tuple(Check(f.name, str(f.type), cast.fails) for f, cast in casts.items() if cast.fails is not None),
        # Maps cannot be compared by all versions of the server.
        order=tuple(
            f"toString({sql})" if "Map(" in table.types[name] else sql
            for name, sql in expressions.items()
            if name not in table.sorting_key
        ),
        all_columns=tuple(table.types),
        version=table.version,
        tombstone=table.tombstone,
        filter=filter_,
        settings=always,
        page_settings=(*always, *arrow),
    )


def _count_parts(room: Room) -> int:
    parts, least = room.parts, room.part_rows
    if parts == 1:
        parts, least = _DRIVER_PARTS, min(least, _LEAST_PART_ROWS)
    return max(1, min(parts, room.rows // least))


def _first_item(start_at: str | None) -> str | None:
    """Only the first item of a list counts."""
    return None if start_at is None else start_at.split(",")[0].strip()

"""Cuts the rest of a table into ranges of the sorting key with a known number of rows.

The keys at every so many rows are the edges of ranges, so dense and sparse keys, empty stretches and any type of key
are all the same. A value of the first column with more rows than a page is cut by the other columns of the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamling.clients.clickhouse import ClickHouse
from streamling.clients.clickhouse_errors import QueryTimeout
from streamling.errors import SOURCE_FAILED, PermanentError
from streamling.sources.clickhouse.queries import TableQueries
from streamling.sources.clickhouse.ranges import Cursor, KeyRange, Values

# Counting fewer rows than this takes a fraction of a second; of more, an estimate is good enough to show progress.
_COUNTED_ROWS = 20_000_000
# A query that times out is repeated for half as many rows, but not for fewer than this.
_LEAST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Ranges:
    """Consecutive ranges, and about how many rows they have. No ranges: the table has no more rows."""

    ranges: tuple[KeyRange, ...]
    rows: int


class Planner:
    """Asks one server about one table. `page_rows` is the setting `page_size`."""

    def __init__(self, queries: TableQueries, page_rows: int) -> None:
        self._queries = queries
        self._page_rows = page_rows
        self._most_rows = page_rows
        """Less than a page after a query has timed out."""

    def last_key(self, server: ClickHouse) -> str | None:
        """The largest value of the first column of the key; None if the table is empty."""
        rows = server.rows(self._queries.last_key())
        return str(rows[0][0]) if rows else None

    def count(self, server: ClickHouse, start: Cursor, last: str) -> int:
        """About how many rows there are from a cursor up to a value of the first column."""
        rest = KeyRange(start, (last,), closed=True)
        rows = sum(int(row[3]) for row in server.rows(self._queries.estimate(rest)))
        return rows if rows > _COUNTED_ROWS else int(server.rows(self._queries.count(rest))[0][0])

    def next(self, server: ClickHouse, start: Cursor, last: str, rows: int, parts: int) -> Ranges:
        """The next ranges: about `parts`, of about `rows` rows in all, and of at most `page_size`."""
        wanted = max(min(rows, self._most_rows), 1)
        step = -(-wanted // parts)
        try:
            found = self._next(server, start, last, wanted, step)
        except QueryTimeout:
            self._most_rows = max(wanted // 2, min(_LEAST_ROWS, self._page_rows))
            raise
        self._most_rows = min(2 * self._most_rows, self._page_rows)
        return found

    def _next(self, server: ClickHouse, start: Cursor, last: str, rows: int, step: int) -> Ranges:
        if len(start.values) > 1:
            return self._continued(server, self._inside(server, start, rows, step), last, rows, step)
        rest = KeyRange(start, (last,), closed=True)
        count, edges = self._edges(server, rest, 1, rows, step)
        if not count:
            return Ranges((), 0)
        first, *later = edges
        if count <= rows:
            return Ranges(_half_open(start, first, later, rest), count)
        *inner, end = later
        if end == first:
            return self._continued(server, self._hot(server, first, rows, step), last, rows, step)
        return Ranges(_half_open(start, first, inner, KeyRange(start, end, closed=False)), rows)

    def _continued(self, server: ClickHouse, found: Ranges, last: str, rows: int, step: int) -> Ranges:
        """The same ranges; after the last rows of one value also the next ones, if there is room for a part of them. So
        the end of every such value is not a small epoch."""
        end = found.ranges[-1].next
        left = rows - found.rows
        if len(end.values) > 1 or end.values == (last,) or left < step:
            return found
        more = self._next(server, end, last, left, step)
        return Ranges((*found.ranges, *more.ranges), found.rows + more.rows)

    def _edges(
        self, server: ClickHouse, range_: KeyRange, columns: int, rows: int, step: int, offset: int = 0
    ) -> tuple[int, list[Values]]:
        query = self._queries.edges(range_, self._queries.keys[:columns], rows, step, offset=offset)
        ((count, edges),) = server.rows(query)
        return int(count), [_values(edge) for edge in edges]

    # One value of the first column with more rows than fit

    def _hot(self, server: ClickHouse, value: Values, rows: int, step: int) -> Ranges:
        if self._queries.pages_in_key:
            return self._inside(server, Cursor(value), rows, step)
        return self._whole_key(server, KeyRange(Cursor(value), value, closed=True))

    def _inside(self, server: ClickHouse, start: Cursor, rows: int, step: int) -> Ranges:
        """Ranges inside of one value of the first column, from a cursor on: each ends with all rows of a whole key."""
        rest = KeyRange(start, start.values[:1], closed=True)
        width = len(self._queries.keys)
        count, edges = self._edges(server, rest, width, rows, step, offset=step - 1)
        if count <= rows:
            return Ranges(_closed(start, edges[:-1], rest), count)
        *ends, beyond = edges
        if ends[-1] == beyond:  # so the rows end in the middle of a key: it belongs to the next ranges
            found = server.rows(self._queries.last_before(rest, beyond))
            if not found:
                return self._whole_key(server, KeyRange(start, beyond, closed=True))
            ends = [*(end for end in ends if end != beyond), _values(found[0])]
        return Ranges(_closed(start, ends[:-1], KeyRange(start, ends[-1], closed=True)), step * len(ends))

    def _whole_key(self, server: ClickHouse, range_: KeyRange) -> Ranges:
        """All rows of one key, which cannot be cut."""
        count = int(server.rows(self._queries.count(range_))[0][0])
        if count > self._page_rows:
            values = zip(self._queries.keys, range_.end, strict=False)
            shown = ", ".join(str(key.to_json(value)["value"]) for key, value in values)
            raise PermanentError(
                SOURCE_FAILED,
                f"table '{self._queries.name}' has {count:,} rows with the key ({shown}); a page has at most "
                f"{self._page_rows:,}, and the rows of one key cannot be cut",
                hint="raise clickhouse_source.page_size, or read a table with a sorting key that tells the rows apart",
            )
        return Ranges((range_,), count)


def _half_open(start: Cursor, first: Values, edges: Sequence[Values], last: KeyRange) -> tuple[KeyRange, ...]:
    """Ranges between different edges, each without the rows of its end; the last one ends like `last`. There are no
    rows before `first`."""
    ranges: list[KeyRange] = []
    for edge in edges:
        if edge not in (first, start.values) and (last.closed or edge != last.end):
            ranges.append(KeyRange(start, edge, closed=False))
            start = Cursor(edge)
    return (*ranges, KeyRange(start, last.end, last.closed))


def _closed(start: Cursor, edges: Sequence[Values], last: KeyRange) -> tuple[KeyRange, ...]:
    """Ranges that end with different keys, each with all rows of its last key."""
    ranges: list[KeyRange] = []
    for edge in edges:
        if edge not in (start.values, last.end):
            ranges.append(KeyRange(start, edge, closed=True))
            start = Cursor(edge, after=True)
    return (*ranges, KeyRange(start, last.end, last.closed))


def _values(row: Sequence[Any]) -> Values:
    return tuple(str(value) for value in row)

"""The queries of a ClickHouse source: rows of a range, and keys that cut a table into ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamling.formats.clickhouse_syntax import quote_name
from streamling.sources.clickhouse.keys import KeyColumn
from streamling.sources.clickhouse.ranges import KeyRange, Values

ALIAS = "__streamling_"
# The number of the first insert in a part of the table, from its name: `<partition>_<first>_<last>_<level>`.
_PART_NUMBER = "toUInt64OrZero(splitByChar('_', toString(_part))[2])"


# The beginning of a value that cannot be cast is shown.
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Check:
    """`fails`: a condition in SQL, true in rows whose value of a column cannot be read as the type."""

    column: str
    type: str
    fails: str


@dataclass(frozen=True, slots=True)
class TableQueries:
    """The text of the queries on one table. Picklable.

    `columns` are the SQL with which the columns of the rows are read, `order` is what orders rows with the same key,
    and `all_columns` are the names of the columns of the table. With `checks`, two more columns follow in every row:
    the number of the first check that fails, or 0, and the value that cannot be read.
    """

    name: str
    """As in the pipeline."""
    database: str
    table: str
    keys: tuple[KeyColumn, ...]
    columns: tuple[str, ...]
    order: tuple[str, ...]
    all_columns: tuple[str, ...]
    version: str | None
    tombstone: str | None
    filter: str | None
    settings: tuple[tuple[str, str], ...]
    """Settings of the server for every query; none if the user must not change settings."""
    page_settings: tuple[tuple[str, str], ...]
    """Settings of the server for queries that return rows."""
    checks: tuple[Check, ...] = ()

    @property
    def _source(self) -> str:
        return f"{quote_name(self.database)}.{quote_name(self.table)}"

    @property
    def _key(self) -> str:
        return ", ".join(key.sql for key in self.keys)

    @property
    def pages_in_key(self) -> bool:
        """Whether the rows of one value of the first column can be cut by the other columns of the key."""
        return len(self.keys) > 1 and all(key.is_ranged for key in self.keys)

    def rows(self, range_: KeyRange) -> str:
        """The rows of a range, always in the same order: rows with the same key are ordered by their values."""
        columns = (*(self.columns or ("1",)), *self._failures())
        return self._select(columns, range_) + _clause(self.page_settings) + " FORMAT ArrowStream"

    def _failures(self) -> tuple[str, ...]:
        if not self.checks:
            return ()
        numbers = ", ".join(f"{check.fails}, {number}" for number, check in enumerate(self.checks, start=1))
        values = ", ".join(
            f"{check.fails}, substringUTF8(ifNull(toString({quote_name(check.column)}), ''), 1, {_SHOWN_CHARACTERS})"
            for check in self.checks
        )
        return f"toUInt16(multiIf({numbers}, 0))", f"multiIf({values}, '')"

    def places(self, range_: KeyRange, number: int | None = None) -> str:
        """The keys of the rows that `rows` returns, in the same order, or that of one row."""
        one = f" LIMIT 1 OFFSET {number}" if number is not None else ""
        return self._select(tuple(key.shown for key in self.keys), range_) + one + _clause(self.settings)

    def _select(self, columns: Sequence[str], range_: KeyRange) -> str:
        named = ", ".join(f"{sql} AS {ALIAS}{number}" for number, sql in enumerate(columns))
        if self.version is not None:
            conditions = [f"{quote_name(self.tombstone)} = 0"] if self.tombstone else []
            conditions += [f"({self.filter}\n)"] if self.filter else []
            where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            return f"SELECT {named} FROM ({self._newest_rows(range_, self.version)}){where}"
        where = range_.condition(self.keys) + (f" AND ({self.filter}\n)" if self.filter else "")
        order = ", ".join([self._key, *self.order])
        return f"SELECT {named} FROM {self._source} WHERE {where} ORDER BY {order}"

    def _newest_rows(self, range_: KeyRange, version: str) -> str:
        """Of every key the row with the highest version; of equal versions a deleted one, else the latest."""
        columns = ", ".join(map(quote_name, self.all_columns))
        order = [self._key, f"{quote_name(version)} DESC"]
        order += [f"{quote_name(self.tombstone)} DESC"] if self.tombstone else []
        order += [f"{_PART_NUMBER} DESC", "_part_offset DESC"]
        return (
            f"SELECT {columns} FROM {self._source} WHERE {range_.condition(self.keys)} "
            f"ORDER BY {', '.join(order)} LIMIT 1 BY {self._key}"
        )

    # Planning

    def last_key(self) -> str:
        """The largest value of the first column of the key."""
        key = self.keys[0]
        return f"SELECT {key.shown} FROM {self._source} ORDER BY {key.sql} DESC LIMIT 1" + _clause(self.settings)

    def estimate(self, range_: KeyRange) -> str:
        """Rows of which the fourth column is about how many rows a range has, from the index alone.

        Not as a subquery, which a user who may only read must not run.
        """
        return f"EXPLAIN ESTIMATE SELECT 1 FROM {self._source} WHERE {self._where(range_)}"

    def count(self, range_: KeyRange) -> str:
        return f"SELECT count() FROM {self._source} WHERE {self._where(range_)}" + _clause(self.settings)

    def edges(self, range_: KeyRange, keys: Sequence[KeyColumn], rows: int, step: int, *, offset: int = 0) -> str:
        """How many rows a range has, at most `rows` + 1, and the values of `keys` in every row number that is `offset`
        modulo `step`, and in row number `rows`, ordered by `keys`."""
        columns = ", ".join(f"{key.sql} AS {ALIAS}{number}" for number, key in enumerate(keys))
        order = ", ".join(f"{ALIAS}{number}" for number in range(len(keys)))
        shown = ", ".join(KeyColumn(f"{ALIAS}{number}", key.type).shown for number, key in enumerate(keys))
        inner = f"SELECT {columns} FROM {self._source} WHERE {self._where(range_)} ORDER BY {order} LIMIT {rows + 1}"
        # Aggregation in several threads does not keep the order.
        edges = f"groupArrayIf((n, [{shown}]), n % {step} = {offset} OR n = {rows})"
        return (
            f"SELECT count(), arrayMap(edge -> edge.2, arraySort(edge -> edge.1, {edges})) "
            f"FROM (SELECT *, rowNumberInAllBlocks() AS n FROM ({inner}))" + _clause(self.settings)
        )

    def last_before(self, range_: KeyRange, values: Values) -> str:
        """The largest key of a range that is below these values of the whole key."""
        below = KeyRange(range_.start, values, closed=False)
        shown = ", ".join(key.shown for key in self.keys)
        order = ", ".join(f"{key.sql} DESC" for key in self.keys)
        where = f"{self._where(range_)} AND {self._where(below)}"
        return f"SELECT {shown} FROM {self._source} WHERE {where} ORDER BY {order} LIMIT 1" + _clause(self.settings)

    def _where(self, range_: KeyRange) -> str:
        return range_.condition(self.keys)


def _clause(settings: Sequence[tuple[str, str]]) -> str:
    return f" SETTINGS {', '.join(f'{name} = {value}' for name, value in settings)}" if settings else ""

"""The SQL that changes the aggregate table, and the trigger functions that run it.

Inside of a statement `g1`, `g2`, ... are the groups of a row and `v1`, `v2`, ... its values for the computed columns,
by their place; `sign` is -1 for a row that goes and 1 for a row that comes, and `number` is what it adds to a count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from streamling.clients.postgres import PostgresTable, quote
from streamling.plan.types import OPERATION_COLUMN
from streamling.sinks.postgres_aggregate.names import Names, group_column, value_column
from streamling.sinks.postgres_aggregate.result import GLOBAL_VALUE, Computation, ComputedColumn, Result

SETTING = "streamling.aggregate"
"""Set in the transaction of a sink: the only function that counts its rows. Other sinks may share its landing table."""
_HEAD = "-- streamling: "
# The label of the block: a column may have the name of a variable.
_BLOCK = "streamling"
_DELETED = f"{_BLOCK}.deleted"
_VALUES = "-- last values: "
_GLOBAL = f"'{GLOBAL_VALUE}'::text"
_OPERATION = f"lower(n.{quote(OPERATION_COLUMN)})"
_SIGN = f"CASE {_OPERATION} WHEN 'd' THEN -1 ELSE 1 END"
_Item = TypeVar("_Item")
_NUMBER = f"CASE {_OPERATION} WHEN 'd' THEN -1 WHEN 'u' THEN 0 ELSE 1 END"


def merge(
    table: PostgresTable,
    result: Result,
    changes: str,
    *,
    retract: bool = False,
    only: ComputedColumn | None = None,
) -> str:
    """Add changes to the aggregate table: `changes` selects them. With `retract` edges are those of the rows that come.
    `only`: change only this column. Groups are locked in their order, so that two writers do not deadlock."""
    chosen = [(place, column) for place, column in enumerate(result.computed, start=1) if only in (None, column)]
    groups = ", ".join(f"g{place}" for place, _ in enumerate(result.groups, start=1))
    names = ", ".join(map(quote, (*result.group_names, *(column.name for _, column in chosen))))
    totals = ", ".join(_total(column, f"v{place}", retract=retract) for place, column in chosen)
    return (
        f"INSERT INTO {table.sql} AS t ({names})\n"
        f"SELECT {groups}, {totals} FROM ({changes}) c GROUP BY {groups} ORDER BY {groups}\n"
        f"ON CONFLICT ({', '.join(map(quote, result.group_names))}) "
        f"DO UPDATE SET {', '.join(_merged(column) for _, column in chosen)}"
    )


def landed_changes(result: Result, rows: str, *, sign: str = _SIGN, number: str = _NUMBER, where: str = "") -> str:
    """Rows of the landing table, or such as could be in it, as changes. An update counts as a row that comes: the value
    before it is not known."""
    groups = [f"{group.value.sql('n') if group.value else _GLOBAL} AS g{n}" for n, group in _numbered(result.groups)]
    values = [f"{column.value.sql('n')} AS v{n}" for n, column in _numbered(result.computed) if column.value]
    return f"SELECT {', '.join([*groups, *values, f'{sign} AS sign', f'{number} AS number'])} FROM {rows} n{where}"


def function_body(names: Names, result: Result, key: Sequence[str]) -> str:
    """The body of the trigger function. It runs after a statement that has inserted the rows `new_table`."""
    if names.values is None:
        declared, steps = list[str](), [merge(names.result, result, landed_changes(result, "new_table"))]
    else:
        retraction = Retraction(names.result, names.values, result, tuple(key))
        declared, steps = retraction.declared, retraction.steps
    owner = _literal(names.function.sql)
    guard = f"IF coalesce(current_setting('{SETTING}', true), '') NOT IN ('', {owner}) THEN RETURN NULL; END IF"
    lines = [
        _header(names),
        *([_values_line(names.values)] if names.values else []),
        "#variable_conflict use_column",
        f"<<{_BLOCK}>>",
    ]
    lines += ["DECLARE", *(f"{one};" for one in declared)] if declared else []
    lines += ["BEGIN", *(f"{step};" for step in (guard, *steps, "RETURN NULL")), "END"]
    return "\n".join(lines)


def is_of_another(source: str, names: Names) -> bool:
    """Whether the function in the database belongs to another sink, whose tables give the same name."""
    first = source.strip().partition("\n")[0].strip()
    return first.startswith(_HEAD) and first != _header(names).replace("%%", "%")


def values_of(source: str) -> str | None:
    """The table of last values that a function in the database keeps."""
    lines = (line.removeprefix(_VALUES) for line in source.splitlines() if line.startswith(_VALUES))
    return next(lines, None)


def choose_function(names: Names) -> str:
    """The SELECT item that lets only the function of this sink count the rows of the transaction."""
    return f"set_config('{SETTING}', {_literal(names.function.sql)}, true)"


@dataclass(frozen=True, slots=True)
class Retraction:
    """The trigger function of a sink that keeps the last values of each key. A statement inserts one row per key."""

    table: PostgresTable
    values: PostgresTable
    result: Result
    key: tuple[str, ...]

    @property
    def declared(self) -> list[str]:
        """`gone1`, `gone2`, ... are the groups that rows were taken from. `deleted` makes statements depend on a
        parameter, so that they are planned each time (`plan_cache_mode`): the tables grow."""
        arrays = [f"gone{place} {group.ddl}[]" for place, group in _numbered(self.result.groups)]
        return [*arrays, "deleted CONSTANT text := 'd'"]

    @property
    def steps(self) -> list[str]:
        changes = f"{self._gone}\nUNION ALL\n{self._come}"
        return [
            self._remember_groups,
            merge(self.table, self.result, changes, retract=True),
            self._forget,
            self._remember,
            *self._repairs,
        ]

    # What goes, what comes

    @property
    def _matches(self) -> str:
        """The rows of the last values whose key has a new row."""
        keys = " AND ".join(f"v.{quote(name)} = n.{quote(name)}" for name in self.key)
        return f"{self.values.sql} v JOIN new_table n ON {keys} AND {_DELETED} IS NOT NULL"

    @property
    def _gone(self) -> str:
        values = [f"{self._value(column)} AS v{n}" for n, column in _numbered(self.result.computed) if column.value]
        return f"SELECT {', '.join([*self._groups, *values])}, -1 AS sign, -1 AS number FROM {self._matches}"

    @property
    def _come(self) -> str:
        where = f" WHERE {_OPERATION} <> {_DELETED}"
        return landed_changes(self.result, "new_table", sign="1", number="1", where=where)

    @property
    def _groups(self) -> list[str]:
        """The groups of a row of the last values."""
        names = [f"v.{quote(group_column(g.name))}" if g.value else _GLOBAL for g in self.result.groups]
        return [f"{name} AS g{place}" for place, name in _numbered(names)]

    @property
    def _remember_groups(self) -> str:
        places = [place for place, _ in _numbered(self.result.groups)]
        arrays = ", ".join(f"array_agg(g{place})" for place in places)
        into = ", ".join(f"{_BLOCK}.gone{place}" for place in places)
        return f"SELECT {arrays} INTO {into} FROM (SELECT DISTINCT {', '.join(self._groups)} FROM {self._matches}) c"

    # The last values

    @property
    def _forget(self) -> str:
        keys = " AND ".join(f"v.{quote(name)} = n.{quote(name)}" for name in self.key)
        return f"DELETE FROM {self.values.sql} v USING new_table n WHERE {keys} AND {_OPERATION} = {_DELETED}"

    @property
    def _remember(self) -> str:
        kept = dict(self.kept)
        names = ", ".join(map(quote, (*self.key, *kept)))
        items = ", ".join([*(f"n.{quote(name)}" for name in self.key), *kept.values()])
        key = ", ".join(map(quote, self.key))
        changes = ", ".join(f"{quote(name)} = EXCLUDED.{quote(name)}" for name in kept)
        old, new = (", ".join(f"{row}.{quote(name)}" for name in kept) for row in ("v", "EXCLUDED"))
        # Rows whose values have not changed stay as they are: other columns of the input may have.
        action = f"UPDATE SET {changes} WHERE ({old}) IS DISTINCT FROM ({new})" if kept else "NOTHING"
        return (
            f"INSERT INTO {self.values.sql} AS v ({names}) SELECT {items} FROM new_table n "
            f"WHERE {_OPERATION} <> {_DELETED} ORDER BY {', '.join(f'n.{quote(name)}' for name in self.key)} "
            f"ON CONFLICT ({key}) DO {action}"
        )

    @property
    def kept(self) -> Iterator[tuple[str, str]]:
        """The columns of the last values beside the key, and what they get from a new row."""
        for group in self.result.groups:
            if group.value is not None:
                yield group_column(group.name), group.value.sql("n")
        for column in self.result.computed:
            if column.value is not None:
                yield value_column(column.value.column), column.value.sql("n", as_stored=True)

    # Groups that have lost rows

    @property
    def _repairs(self) -> list[str]:
        """Compute what cannot be subtracted again, and remove groups without rows."""
        gone = ", ".join(f"{_BLOCK}.gone{place}" for place, _ in _numbered(self.result.groups))
        places = ", ".join(f"g{place}" for place, _ in _numbered(self.result.groups))
        lost = f"unnest({gone}) AS x ({places})"
        same = " AND ".join(f"t.{quote(group.name)} = x.g{place}" for place, group in _numbered(self.result.groups))
        repairs = []
        if not self.result.is_global:
            repairs.append(
                f"DELETE FROM {self.table.sql} t USING {lost} WHERE {same} "
                f"AND NOT EXISTS (SELECT FROM {self.values.sql} v WHERE {self._in_group})"
            )
        if again := [column for column in self.result.computed if column.is_edge or not column.exact]:
            repairs.append(self._compute_again(again, lost, same))
        for column in self.result.computed:
            if column.may_be_infinite:
                name = quote(column.name)
                change = f"{name} = ({self._computed_again(column)})"
                repairs.append(
                    f"UPDATE {self.table.sql} t SET {change} FROM {lost} WHERE {same} AND t.{name} - t.{name} <> 0"
                )
        return repairs

    def _compute_again(self, columns: Sequence[ComputedColumn], lost: str, same: str) -> str:
        """Most groups keep their edges, and need no second change. Without OFFSET, the server would compute each value
        for the comparison and once more for the change."""
        totals = ", ".join(f"({self._computed_again(column)}) AS c{n}" for n, column in _numbered(columns))
        changes = ", ".join(f"{quote(column.name)} = c.c{n}" for n, column in _numbered(columns))
        old = ", ".join(f"t.{quote(column.name)}" for column in columns)
        new = ", ".join(f"c.c{n}" for n, _ in _numbered(columns))
        return (
            f"UPDATE {self.table.sql} t SET {changes} FROM {lost}, LATERAL (SELECT {totals} OFFSET 0) c "
            f"WHERE {same} AND ({old}) IS DISTINCT FROM ({new})"
        )

    @property
    def _in_group(self) -> str:
        groups = [(place, group.name) for place, group in _numbered(self.result.groups) if group.value]
        return " AND ".join(f"v.{quote(group_column(name))} = x.g{place}" for place, name in groups) or "true"

    def _computed_again(self, column: ComputedColumn) -> str:
        total = f"{column.computation.value}({self._value(column)})"
        total = total if column.is_edge else f"coalesce({total}, 0)"
        return f"SELECT {total} FROM {self.values.sql} v WHERE {self._in_group}"

    @staticmethod
    def _value(column: ComputedColumn) -> str:
        if column.value is None:
            raise AssertionError("a count reads no value")
        return column.value.cast_sql(f"v.{quote(value_column(column.value.column))}")


def _total(column: ComputedColumn, value: str, *, retract: bool) -> str:
    """What the changes of a group add to a column, or the edge of their values. Without a value, a sum gets 0."""
    if column.computation is Computation.COUNT:
        return "sum(number)"
    if column.computation is Computation.SUM:
        come, go = (f"coalesce(sum({value}) FILTER (WHERE sign {which} 0), 0)" for which in "><")
        return f"{come} - {go}"
    return f"{column.computation.value}({value})" + (" FILTER (WHERE sign > 0)" if retract else "")


def _merged(column: ComputedColumn) -> str:
    name = quote(column.name)
    match column.computation:
        case Computation.MIN:
            return f"{name} = LEAST(t.{name}, EXCLUDED.{name})"
        case Computation.MAX:
            return f"{name} = GREATEST(t.{name}, EXCLUDED.{name})"
    return f"{name} = coalesce(t.{name}, 0) + EXCLUDED.{name}"


def _numbered(items: Sequence[_Item]) -> Iterator[tuple[int, _Item]]:
    return enumerate(items, start=1)


def _header(names: Names) -> str:
    return " ".join(f"{_HEAD}{names.landing.sql} to {names.result.sql}".split())


def _values_line(table: PostgresTable) -> str:
    return " ".join(f"{_VALUES}{table.sql}".split())


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

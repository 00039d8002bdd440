"""The table of a sink: created if missing, otherwise compared with the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamling.clients.postgres import PostgresSession, PostgresTable, quote
from streamling.errors import TABLE_UNFIT, UserError
from streamling.sinks.postgres.columns import ExistingColumn, TableColumn, key_misfit, misfit, with_cast
from streamling.spec.pipeline import NodeSpec

# A domain counts as its base type; it may itself forbid nulls or have a default.
_COLUMNS = """
SELECT a.attname, b.typname, format_type(a.atttypid, a.atttypmod), b.modifier, b.typtype = 'e',
       a.attnotnull OR b.required, a.atthasdef OR a.attidentity <> '' OR b.has_default,
       a.attgenerated <> '' OR a.attidentity = 'a', coalesce(c.collisdeterministic, true)
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation JOIN LATERAL (
    WITH RECURSIVE made (typname, typtype, typbasetype, modifier, required, has_default) AS (
        SELECT typname, typtype, typbasetype, greatest(a.atttypmod, typtypmod), typnotnull, typdefault IS NOT NULL
        FROM pg_type WHERE oid = a.atttypid
        UNION ALL
        SELECT t.typname, t.typtype, t.typbasetype, greatest(m.modifier, t.typtypmod),
               m.required OR t.typnotnull, m.has_default OR t.typdefault IS NOT NULL
        FROM made m JOIN pg_type t ON t.oid = m.typbasetype WHERE m.typtype = 'd'
    ) SELECT * FROM made WHERE typtype <> 'd'
) b ON true
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# A deferrable constraint cannot arbitrate conflicts, and an index may have another collation than its column.
_UNIQUE = """
SELECT array_agg(a.attname::text)
FROM pg_index i JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place) ON k.place <= i.indnkeyatts
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
LEFT JOIN pg_collation c ON c.oid = i.indcollation[k.place::int - 1]
WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid AND i.indimmediate
AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid HAVING bool_and(coalesce(c.collisdeterministic, true) OR c.oid = a.attcollation)
"""
# The row of a column in the catalog has a new xmin after every change.
_VERSION = (
    "SELECT hashtextextended(string_agg(attnum || ' ' || xmin, ',' ORDER BY attrelid, attnum){more}, 0) "
    "FROM pg_attribute WHERE attrelid IN ({oids}) AND attnum > 0"
)
_TRIGGERS = (
    " || coalesce((SELECT string_agg(oid || ' ' || xmin, ',' ORDER BY oid) FROM pg_trigger "
    "WHERE tgrelid IN ({oids})), '')"
)
_PARENTS = """
SELECT DISTINCT n.nspname::text, p.relname::text FROM pg_constraint f JOIN pg_class p ON p.oid = f.confrelid
JOIN pg_namespace n ON n.oid = p.relnamespace
WHERE f.conrelid = %s::regclass AND f.contype = 'f' AND f.confrelid <> f.conrelid
"""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """Identifies the columns of tables at one time: they are unchanged while the version is the same."""

    oids: tuple[int, ...]
    columns: int | None
    triggers: bool = False
    """Whether their triggers are included."""

    @property
    def query(self) -> str:
        """Reads the columns of the tables with these oids."""
        oids = ", ".join(map(str, self.oids))
        return _VERSION.format(oids=oids, more=_TRIGGERS.format(oids=oids) if self.triggers else "")


def read_version(session: PostgresSession, *tables: PostgresTable, triggers: bool = False) -> TableVersion:
    oids = [session.rows("SELECT %s::regclass::oid::bigint", (table.value,))[0][0] for table in tables]
    version = TableVersion(tuple(oids), None, triggers)
    ((columns,),) = session.rows(version.query)
    return replace(version, columns=columns)


def lock_version(
    session: PostgresSession, tables: Sequence[PostgresTable], known: TableVersion, *, first: str = "", then: str
) -> TableVersion:
    """Keep others from changing the tables until the transaction ends; returns the version of the known ones.

    One round trip, which also runs the statements `first` and `then`. Those between take the locks for which ALTER
    TABLE waits, so the next reads the columns as they will be written to.
    """
    locks = [f"SELECT FROM {table.sql} WHERE false" for table in tables]
    ((columns,),) = session.last_rows("; ".join([*filter(None, [first]), *locks, known.query, then]))
    return replace(known, columns=columns)


def parent_tables(session: PostgresSession, table: PostgresTable) -> list[PostgresTable]:
    """The other tables that foreign keys of the table refer to."""
    return [PostgresTable(schema, name) for schema, name in session.rows(_PARENTS, (table.value,))]


def create_table(
    session: PostgresSession,
    table: PostgresTable,
    columns: Sequence[TableColumn],
    key: Sequence[str],
    *,
    fill_percent: int = 100,
) -> None:
    """`fill_percent`: how full inserts make a page. A change of columns without an index stays in the page, if there is
    room, and does not touch the indexes."""
    parts = [f"{quote(column.name)} {column.ddl}" for column in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    storage = f" WITH (fillfactor = {fill_percent})" if fill_percent < 100 else ""
    session.execute(f"CREATE TABLE IF NOT EXISTS {table.sql} ({', '.join(parts)}){storage}")


@dataclass(frozen=True, slots=True)
class TableComparison:
    """An existing table compared with the input: the columns with the casts they need, the missing ones, and what does
    not fit."""

    columns: tuple[TableColumn, ...]
    missing: tuple[TableColumn, ...]
    misfits: tuple[str, ...]

    def problems(self, table: PostgresTable) -> list[str]:
        """All that does not fit, missing columns first."""
        absent = [
            f'column "{column.name}" of relation "{table}" does not exist; it would be {column.ddl}'
            for column in self.missing
        ]
        return [*absent, *self.misfits]


def unfit_table(node: NodeSpec, table: PostgresTable, problem: str, problems: Sequence[str], hint: str) -> UserError:
    """The error that lists all that does not fit. `problem` continues a sentence that begins with the table."""
    listed = "".join(f"\n  - {one}" for one in problems)
    text = f"{node.described()}: table {table} {problem}:{listed}"
    return UserError(TABLE_UNFIT, text, node=node.name, where=node.where, hint=hint)


def existing_columns(session: PostgresSession, table: PostgresTable) -> dict[str, ExistingColumn]:
    return {row[0]: ExistingColumn(*row) for row in session.rows(_COLUMNS, (table.value,))}


def missing_unique(session: PostgresSession, table: PostgresTable, key: Sequence[str]) -> str | None:
    """What is wrong if no unique constraint of the table has exactly these columns; None if one has."""
    if set(key) in [set(names) for (names,) in session.rows(_UNIQUE, (table.value,))]:
        return None
    return (
        f"there is no unique or exclusion constraint matching the primary key ({', '.join(key)}): "
        f"ALTER TABLE {table.value} ADD UNIQUE ({', '.join(map(quote, key))})"
    )


def compare_table(
    session: PostgresSession, table: PostgresTable, columns: Sequence[TableColumn], key: Sequence[str]
) -> TableComparison:
    existing = existing_columns(session, table)
    pairs = [(column, existing[column.name]) for column in columns if column.name in existing]
    misfits = [why for pair in pairs if (why := misfit(*pair) or (key_misfit(*pair) if pair[0].name in key else None))]
    names = {column.name for column in columns}
    misfits += [
        f'column "{other.name}" is NOT NULL and has no default, and the input has no such column'
        for other in existing.values()
        if other.name not in names and other.required and not other.has_default and not other.generated
    ]
    if key and (missing_key := missing_unique(session, table, key)):
        misfits.append(missing_key)
    return TableComparison(
        tuple(with_cast(c, existing[c.name]) if c.name in existing else c for c in columns),
        tuple(column for column in columns if column.name not in existing),
        tuple(misfits),
    )


def add_columns(session: PostgresSession, table: PostgresTable, columns: Sequence[TableColumn]) -> None:
    """Add the columns, nullable, because the table may have rows."""
    parts = ", ".join(f"ADD COLUMN IF NOT EXISTS {quote(column.name)} {column.ddl}" for column in columns)
    session.execute(f"ALTER TABLE {table.sql} {parts}")

"""The table of a sink: created if missing, otherwise compared with the input."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.clients.clickhouse import ClickHouse
from streamling.clients.clickhouse_errors import NO_SUCH_TABLE, ServerRefused
from streamling.formats.clickhouse_syntax import plain_name, quote_name, split_list
from streamling.formats.clickhouse_types import clickhouse_type
from streamling.plan.types import OPERATION_COLUMN, Field, Schema

if TYPE_CHECKING:
    from streamling.formats.clickhouse_encoding import Encode
    from streamling.formats.clickhouse_targets import Target

DELETED = "is_deleted"
INSERTED = "insert_time"
MAX_BLOCKS = 100
"""Inserts of one epoch, at most. A replay repeats all of them."""
# Inserts that a table remembers. An insert has an entry in each partition of the table that gets rows of it.
_WINDOW = 10_000
_STORAGE = """
SELECT engine, engine_full, sorting_key FROM system.tables WHERE database = {database:String} AND name = {table:String}
"""
_DEFAULT_WINDOW = "SELECT value FROM system.merge_tree_settings WHERE name = {name:String}"
_CODEC = re.compile(r"\s+CODEC\s*\(.*", re.IGNORECASE | re.DOTALL)
# Columns that an INSERT cannot set.
_COMPUTED = ("MATERIALIZED", "ALIAS")


@dataclass(frozen=True, slots=True)
class TableName:
    database: str
    table: str

    @classmethod
    def parse(cls, text: str, database: str) -> TableName:
        """`table`, or `database.table`."""
        first, dot, rest = text.partition(".")
        return cls(first, rest) if dot and first and rest else cls(database, text)

    @property
    def sql(self) -> str:
        return f"{quote_name(self.database)}.{quote_name(self.table)}"

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """A table as the server describes it.

    types          by name, the types of the columns that can be inserted
    engine         without parameters; empty if the server does not show it
    sorting_key    columns, and expressions where the key is computed
    window         how many inserts it remembers, to drop repeated ones; None if that is not known
    """

    types: Mapping[str, str]
    engine: str
    sorting_key: tuple[str, ...]
    window: int | None

    @property
    def drops_repeated(self) -> bool:
        return self.window is not None and self.window >= MAX_BLOCKS

    @property
    def window_setting(self) -> str:
        return _window_setting(self.engine)


def describe_table(server: ClickHouse, name: TableName) -> ExistingTable | None:
    """None if there is no such table."""
    try:
        columns = server.rows(f"DESCRIBE TABLE {name.sql}")
    except ServerRefused as error:
        if error.number == NO_SUCH_TABLE:
            return None
        raise
    types = {column: _on_one_line(type_) for column, type_, default, *_ in columns if default not in _COMPUTED}
    storage = server.rows(_STORAGE, database=name.database, table=name.table)
    engine, engine_full, sorting_key = storage[0] if storage else ("", "", "")
    return ExistingTable(types, engine, _sorting_key(sorting_key), _read_window(server, engine, engine_full))


def _sorting_key(text: str) -> tuple[str, ...]:
    """Of one column, the server keeps the parentheses."""
    parts = split_list(text)
    if len(parts) == 1 and parts[0].startswith("("):
        parts = split_list(parts[0][1:-1])
    return tuple(plain_name(part) or part for part in parts)


def _on_one_line(type_: str) -> str:
    """The server writes tuples on several lines."""
    return re.sub(r"\n\s*", " ", re.sub(r"\(\n\s*", "(", type_))


def _window_setting(engine: str) -> str:
    replicated = engine.startswith(("Replicated", "Shared"))
    return "replicated_deduplication_window" if replicated else "non_replicated_deduplication_window"


def _read_window(server: ClickHouse, engine: str, engine_full: str) -> int | None:
    if not engine.endswith("MergeTree"):
        return None
    setting = _window_setting(engine)
    own = re.search(rf"\b{setting} = (\d+)", engine_full)
    if own is not None and (own.start() == 0 or engine_full[own.start() - 1] == " "):
        return int(own[1])
    default = server.rows(_DEFAULT_WINDOW, name=setting)
    return int(default[0][0]) if default else None


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How the sink uses its table. `version`: the column of the input whose highest value wins, if one is named."""

    name: TableName
    append_only: bool
    version: str | None
    overrides: Mapping[str, str]


def create_statement(options: TableOptions, columns: Schema, key: Sequence[str]) -> str:
    parts = [f"{quote_name(f.name)} {_column_ddl(f, options, key)}" for f in data_columns(columns)]
    key_list = f"({', '.join(map(quote_name, key))})"
    if options.append_only:
        parts.append(f"{quote_name(DELETED)} UInt8")
        if options.version is None:
            parts.append(f"{quote_name(INSERTED)} {_insert_time_ddl(options.overrides.get(INSERTED, 'DateTime'))}")
        version = quote_name(options.version or INSERTED)
        engine = f"ReplacingMergeTree({version}, {quote_name(DELETED)}) ORDER BY {key_list}"
    else:
        engine = f"ReplacingMergeTree() PRIMARY KEY {key_list} ORDER BY {key_list}"
    settings = f"{_window_setting('')} = {_WINDOW}"
    return f"CREATE TABLE IF NOT EXISTS {options.name.sql} ({', '.join(parts)}) ENGINE = {engine} SETTINGS {settings}"


def data_columns(columns: Schema) -> list[Field]:
    """The columns of the input that are written as they are."""
    return [field for field in columns if field.name not in (OPERATION_COLUMN, DELETED)]


def _column_ddl(field: Field, options: TableOptions, key: Sequence[str]) -> str:
    if (override := options.overrides.get(field.name)) is not None:
        return override
    required = field.name in key or (options.append_only and field.name == options.version)
    return clickhouse_type(field.type, nullable=field.nullable and not required)


def _insert_time_ddl(type_: str) -> str:
    """The type, as it may be overridden, with a default in front of its codec."""
    if re.search(r"\bDEFAULT\b", type_, re.IGNORECASE):
        return type_
    now = "now64(9)" if "datetime64" in type_.casefold() else "now()"
    codec = _CODEC.search(type_)
    return f"{type_} DEFAULT {now}" if codec is None else f"{type_[: codec.start()]} DEFAULT {now}{codec[0]}"


@dataclass(frozen=True, slots=True)
class PairedColumn:
    """A column of the input, and the column of the table that has its name."""

    name: str
    target: Target
    encode: Encode


@dataclass(frozen=True, slots=True)
class Pairing:
    """The input compared with the table: columns that are written, names of columns that the table does not have, and
    what does not fit."""

    columns: tuple[PairedColumn, ...]
    dropped: tuple[str, ...]
    problems: tuple[str, ...]


def pair_columns(table: ExistingTable, columns: Schema, key: Sequence[str]) -> Pairing:
    from streamling.formats.clickhouse_encoding import Unfit, make_encoder
    from streamling.formats.clickhouse_targets import parse_target

    paired, dropped, problems = [], [], []
    for field in data_columns(columns):
        text = table.types.get(field.name)
        if text is None:
            if field.name in key:
                problems.append(f"column '{field.name}', which belongs to the primary key, does not exist")
            dropped.append(field.name)
            continue
        try:
            target = parse_target(text)
            paired.append(PairedColumn(field.name, target, make_encoder(field.type, target)))
        except (Unfit, ValueError) as error:
            problems.append(f"column '{field.name}' does not fit: {error}")
    if not paired and not problems:
        problems.append("it has no column of the input")
    return Pairing(tuple(paired), tuple(dropped), tuple(problems))


def cautions(table: ExistingTable, options: TableOptions, key: Sequence[str]) -> list[str]:
    """What an existing table does other than one that the sink would create."""
    found = []
    if "Replacing" not in table.engine and table.engine.endswith("MergeTree"):
        found.append(f"its engine is {table.engine}, which keeps every version of a row")
    elif "Replacing" in table.engine and set(table.sorting_key) != set(key):
        sorting_key = ", ".join(table.sorting_key)
        found.append(f"its sorting key is ({sorting_key}), so rows of the key ({', '.join(key)}) may not be replaced")
    if options.append_only and DELETED not in table.types:
        found.append(f"it has no column '{DELETED}', so deletes are rejected")
    return found

"""The names of what a sink creates in the database."""

from __future__ import annotations

from dataclasses import dataclass

from streamling.clients.postgres import PostgresTable

MAX_NAME_BYTES = 63
EPOCH_COLUMN = "_gs_checkpoint_epoch"
"""Column of the landing table: the number of the epoch in which a row was written."""


@dataclass(frozen=True, slots=True)
class Names:
    """The tables and the trigger of a sink. Postgres cuts names off after 63 bytes, and so do these."""

    landing: PostgresTable
    result: PostgresTable
    values: PostgresTable | None
    """With `retract`: the table of the last values of each key."""

    @property
    def function(self) -> PostgresTable:
        return PostgresTable(self.landing.schema, _cut(f"{self.landing.name}_to_{self.result.name}_fn"))

    @property
    def trigger(self) -> str:
        return _cut(f"{self.landing.name}_to_{self.result.name}_trigger")

    @property
    def index(self) -> PostgresTable:
        return PostgresTable(self.landing.schema, _cut(f"idx_{self.landing.name}_checkpoint_epoch"))

    @property
    def tables(self) -> tuple[PostgresTable, ...]:
        return (self.landing, self.result) if self.values is None else (self.landing, self.result, self.values)


def group_column(group: str) -> str:
    """The column of a group in the table of last values."""
    return f"_gs_group_{group}"


def value_column(column: str) -> str:
    """The column of an input column in the table of last values."""
    return f"_gs_value_{column}"


def _cut(name: str) -> str:
    return name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")

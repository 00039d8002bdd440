"""What keeps the values of a dynamic table. It answers for all values of an epoch at once, in the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a table for some keys, in their order."""

    present: pa.BooleanArray
    """Whether the table has the key."""
    columns: Mapping[str, pa.Array]
    """The values of its other columns; NULL where it does not have the key."""


class TableBackend(ABC):
    """A set of texts, each with the values of some columns, that queries look up while the pipeline runs."""

    def open(self) -> None:
        """Called once, before the first epoch: checks and prepares what keeps the texts. Called again if it fails
        transiently."""
        return

    @abstractmethod
    def look_up(self, keys: pa.StringArray) -> Found:
        """Look up keys, which are unique and not NULL. One call per query and epoch, whatever the number of keys."""

    @abstractmethod
    def add(self, keys: pa.StringArray) -> None:
        """Add keys, which are unique and not NULL, durably if the table is durable. `look_up` finds them at once.
        Called again with the same keys if an epoch is replayed."""

    @abstractmethod
    def sample(self, rows: int) -> pa.Table:
        """At most this many rows, in any order: the keys, then the other columns. For a preview."""

    def for_preview(self) -> TableBackend:
        """A table with the same texts that prepares nothing and keeps what is added in the memory of the process."""
        return self

    def close(self) -> None:
        return

"""What a lookup promises the engine: a table that is read as a whole, again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from streamling.plan.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 256 << 20
"""The most bytes of a lookup in memory: Spark sends all of it to every executor."""


class Lookup(ABC):
    """The control side of a lookup; lives in the driver. `read` and `may_have_changed` are called from one thread at a
    time."""

    refresh_s: float
    """The pause between two looks at whether the table has changed."""

    def prepare(self, columns: Schema) -> None:
        """Called once, before the first read, with the planned columns."""
        return

    @abstractmethod
    def read(self) -> pa.Table:
        """All rows, with the planned columns. Raises TransientError, PermanentError or UserError."""

    def may_have_changed(self) -> bool:
        """Whether another read could give other rows than the last one. Raises as `read`."""
        return True

    def close(self) -> None:
        return

"""The size of a source's rows, estimated before they are read."""

from __future__ import annotations

from streamling.connector import Report
from streamling.plan.types import Schema

# Assumed size of a row before any was read.
_LIKELY_BYTES = 1024.0
_WIDTHS = {
    "boolean": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 2,
    "uint16": 4,
    "uint32": 8,
    "uint64": 16,
    "float16": 4,
    "float32": 4,
    "float64": 8,
    "date32": 4,
    "date64": 4,
    "time32": 8,
    "time64": 8,
    "timestamp": 8,
    "duration": 8,
}


class RowSize:
    """The bytes that the driver holds for a row of a source: of the row itself, and of the results computed from it."""

    def __init__(self, columns: Schema) -> None:
        widths = [_WIDTHS.get(field.type.kind) for field in columns]
        self._read: float | None = max(sum(width for width in widths if width), 1.0) if all(widths) else None
        """Known in advance if all columns have a fixed width, otherwise measured."""
        self._collected = 0.0

    @property
    def known(self) -> float | None:
        return None if self._read is None else max(self._read, self._collected)

    @property
    def likely(self) -> float:
        return self.known if self.known is not None else _LIKELY_BYTES

    def note(self, report: Report) -> None:
        """Learn from rows that were read."""
        if report.rows and report.bytes:
            self._read = _follow(self._read, max(report.bytes / report.rows, 1.0))

    def note_collected(self, size: float) -> None:
        """Learn how many bytes per row were collected in the driver: a query may make much data of a small row."""
        self._collected = _follow(self._collected, size)


def _follow(known: float | None, size: float) -> float:
    """Longer rows count immediately, shorter ones gradually: the next rows may be long again."""
    return size if known is None else max(size, (known + size) / 2)

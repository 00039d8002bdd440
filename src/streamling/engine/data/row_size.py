"""How large rows are, as far as it is known before they are read."""

from __future__ import annotations

from streamling.connector import Report
from streamling.plan.types import Schema

# Of a row, as long as none was seen.
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
    """How many bytes the driver has to hold for a row of a source: of the row itself, and of what comes of it."""

    def __init__(self, columns: Schema) -> None:
        widths = [_WIDTHS.get(field.type.kind) for field in columns]
        self._read: float | None = max(sum(width for width in widths if width), 1.0) if all(widths) else None
        """Known beforehand if all columns have a fixed width, else measured."""
        self._collected = 0.0

    @property
    def known(self) -> float | None:
        return None if self._read is None else max(self._read, self._collected)

    @property
    def likely(self) -> float:
        return self.known if self.known is not None else _LIKELY_BYTES

    def note(self, report: Report) -> None:
        """Rows were read."""
        if report.rows and report.bytes:
            self._read = _follow(self._read, max(report.bytes / report.rows, 1.0))

    def note_collected(self, size: float) -> None:
        """So many bytes of each row have come into the driver: a query may make much of little."""
        self._collected = _follow(self._collected, size)


def _follow(known: float | None, size: float) -> float:
    """Longer rows count at once, shorter ones little by little: the next ones may be long again."""
    return size if known is None else max(size, (known + size) / 2)

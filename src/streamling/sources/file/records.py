"""The ends of records in text files: line ends, in CSV those outside of quotes.

Bytes are scanned in bulk. Only a chunk with quotes in odd places is scanned field by field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from streamling.errors import DATA_ERROR, PermanentError
from streamling.sources.file.listing import SourceFile
from streamling.sources.file.parts import FilePart
from streamling.sources.file.storage import check_same

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ends = NDArray[np.int64]

_CHUNK = 4 << 20
# A record is in memory several times. One as long as this means a file without line ends, or an open quote.
LONGEST_RECORD = 256 << 20
BOM = b"\xef\xbb\xbf"
_COMMA, _QUOTE, _LF, _CR = b',"\n\r'
_FIELD_ENDS = re.compile(rb"[,\n\r]")


@dataclass(slots=True)
class LineEnds:
    """Finds the ends of lines, chunk after chunk."""

    def feed(self, chunk: bytes) -> Ends:
        """The offsets in the chunk after each line end."""
        return np.flatnonzero(np.frombuffer(chunk, np.uint8) == _LF) + 1


@dataclass(slots=True)
class CsvEnds:
    """Finds the ends of CSV records, chunk after chunk: line ends outside of quoted fields.

    A quote opens a field only as its first character and is literal elsewhere, as in Arrow's own reader.
    `inside`: the next byte belongs to a quoted field. `last`: the byte before it, 0 for a byte without meaning.
    """

    inside: bool = False
    last: int = _LF
    _walked: list[int] = field(default_factory=list)

    def feed(self, chunk: bytes) -> Ends:
        """The offsets in the chunk after the end of each record."""
        if not chunk:
            return np.empty(0, np.int64)
        letters = np.frombuffer(chunk, np.uint8)
        lines: Ends = np.flatnonzero(letters == _LF)
        if self.inside or _QUOTE in chunk:
            quotes: Ends = np.flatnonzero(letters == _QUOTE)
            if not self._is_regular(letters, quotes):
                return self._scan_fields(chunk)
            # A line end is outside of quotes if an even number of quotes is before it.
            lines = lines[(np.searchsorted(quotes, lines) + self.inside) % 2 == 0]
            self.inside = bool((len(quotes) + self.inside) % 2)
        self.last = chunk[-1]
        return lines + 1

    def _is_regular(self, letters: NDArray[np.uint8], quotes: Ends) -> bool:
        """Whether every quote that would open a field is at the beginning of one, or right after a closing quote.

        The latter is the pair of quotes that means one quote inside the field.
        """
        opening = quotes[1 if self.inside else 0 :: 2]
        before = letters[opening - 1]  # for the first byte this is the last one: corrected below
        if len(opening) and opening[0] == 0:
            before[0] = self.last
        return bool(np.isin(before, (_COMMA, _LF, _CR, _QUOTE)).all())

    def _scan_fields(self, chunk: bytes) -> Ends:
        """Scans field by field."""
        ends: list[int] = []
        place, inside = 0, self.inside
        begins = not inside and self.last in (_COMMA, _LF, _CR)
        if not inside and self.last == _QUOTE and chunk[0] == _QUOTE:
            place, inside = 1, True  # the second of a pair
        while place < len(chunk):
            if inside:
                place = chunk.find(b'"', place) + 1
                if not place:
                    break
                if chunk[place : place + 1] == b'"':
                    place += 1
                else:
                    inside = begins = False
            elif begins and chunk[place] == _QUOTE:
                place, inside = place + 1, True
            else:
                field_end = _FIELD_ENDS.search(chunk, place)
                if field_end is None:
                    begins = False
                    break
                place, begins = field_end.end(), True
                if field_end[0] == b"\n":
                    ends.append(place)
        # A closing quote at the very end may be the first of a pair.
        closed = not inside and not begins and chunk.endswith(b'"') and place == len(chunk)
        self.inside = inside
        self.last = chunk[-1] if begins or closed else 0
        return np.asarray(ends, np.int64)


RecordEnds = LineEnds | CsvEnds


@dataclass(slots=True)
class RecordCutter:
    """Cuts a text file between records. Reads all bytes once, to find and count the ends of records."""

    file: SourceFile
    stream: Any
    scanner: RecordEnds
    at: int
    row: int = 1
    _scanned: int = 0
    _ends: Ends = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        self._scanned = self.at
        self.stream.seek(self.at)

    def cut(self, rows: int, size: int) -> FilePart | None:
        first, row, total = self.at, self.row, 0
        while total < rows and self.at - first < size and (len(self._ends) or self._scan()):
            enough = int(np.searchsorted(self._ends, first + size)) + 1
            count = min(rows - total, len(self._ends), enough)
            if count:
                self.at, self._ends = int(self._ends[count - 1]), self._ends[count:]
                self.row, total = self.row + count, total + count
        return FilePart(self.file, first, self.at, row, total, self.at - first) if total else None

    def _scan(self) -> bool:
        """Scans the next chunk; False at the end of the file."""
        while not len(self._ends):
            chunk = self.stream.read(min(_CHUNK, self.file.size - self._scanned))
            if not chunk:
                check_same(self.file, self._scanned, self.file.modified_ns)
                if self._scanned > self.at:  # the last record has no line end
                    self._ends = np.asarray([self._scanned], np.int64)
                    return True
                return False
            self._ends = self.scanner.feed(chunk) + self._scanned
            self._scanned += len(chunk)
            if not len(self._ends) and self._scanned - self.at > LONGEST_RECORD:
                raise endless_record(self.file, self.row)
        return True

    @property
    def bytes_done(self) -> int:
        return self.at

    def close(self) -> None:
        self.stream.close()


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Whole records of a text file, few enough to be parsed at once. `row` is the number of the first."""

    data: bytes
    ends: Ends
    row: int

    def halves(self) -> tuple[RecordChunk, RecordChunk]:
        middle = len(self.ends) // 2
        cut = int(self.ends[middle - 1])
        return (
            RecordChunk(self.data[:cut], self.ends[:middle], self.row),
            RecordChunk(self.data[cut:], self.ends[middle:] - cut, self.row + middle),
        )

    def records(self) -> Iterator[tuple[int, bytes]]:
        """The records other than empty lines, with their numbers."""
        start = 0
        for number, end in enumerate(self.ends.tolist(), self.row):
            record = self.data[start:end]
            start = end
            if record.strip(b"\r\n"):
                yield number, record


def record_chunks(stream: Any, part: FilePart, scanner: RecordEnds) -> Iterator[RecordChunk]:
    """The records of a file part, some megabytes at a time."""
    stream.seek(part.first)
    left, rest, row = part.end - part.first, b"", part.row
    while left:
        chunk = stream.read(min(_CHUNK, left))
        if not chunk:
            return  # the file has become shorter; the reader checks that after the last record
        left -= len(chunk)
        ends = scanner.feed(chunk) + len(rest)
        data = rest + chunk
        if not left and (not len(ends) or ends[-1] < len(data)):
            ends = np.append(ends, len(data))  # the last record of a file may have no line end
        if not len(ends):
            if len(data) > LONGEST_RECORD:
                raise endless_record(part.file, row)
            rest = data
            continue
        cut = int(ends[-1])
        yield RecordChunk(data[:cut], ends, row)
        rest, row = data[cut:], row + len(ends)


def endless_record(file: SourceFile, row: int) -> PermanentError:
    return PermanentError(
        DATA_ERROR,
        f"row {row} of '{file.path}' does not end within {LONGEST_RECORD >> 20} MB",
        hint="lines must end with LF or CRLF; in CSV a quote that is not closed makes the rest of the file one record",
    )

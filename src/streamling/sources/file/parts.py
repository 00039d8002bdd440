"""Parts of files, and how they become the parts of a slice: what one reader call gets is a list of file parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from streamling.connector import Json
from streamling.sources.file.listing import SourceFile


@dataclass(frozen=True, slots=True)
class Position:
    """Between two rows of a file: an offset as in a file part, and the number of the next row.

    The rows of a format yield a position whenever everything before it has been yielded.
    """

    at: int
    row: int


@dataclass(frozen=True, slots=True)
class FilePart:
    """Consecutive rows of one file, between two offsets.

    The format defines the unit of offsets: bytes in text and Avro files, rows in Parquet files. `row` is the number of
    the first row, from 1. `rows` may count empty lines; `size` is the number of bytes, exact or estimated.
    """

    file: SourceFile
    first: int
    end: int
    row: int
    rows: int
    size: int

    @property
    def end_position(self) -> Position:
        return Position(self.end, self.row + self.rows)

    def to_json(self) -> Json:
        file = self.file
        partitions: Json = [[name, value] for name, value in file.partitions]
        return [file.path, file.size, file.modified_ns, partitions, self.first, self.end, self.row, self.rows]

    @classmethod
    def from_json(cls, data: Any) -> FilePart:
        try:
            path, size, modified_ns, partitions, *numbers = data
            first, end, row, rows = (int(number) for number in numbers)
            file = SourceFile(str(path), int(size), int(modified_ns), tuple((str(n), str(v)) for n, v in partitions))
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a part of a file: {data!r}") from error
        return cls(file, first, end, row, rows, 0)


class Cutter(Protocol):
    """Cuts one file into parts, from front to back, without decoding the rows.

    A part ends between two rows. `at` and `row` are where the next one begins.
    """

    at: int
    row: int

    def cut(self, rows: int, size: int) -> FilePart | None:
        """The next part, of at most `rows` rows and about `size` bytes; None after the last row."""

    @property
    def bytes_done(self) -> int:
        """How many bytes of the file are before `at`, exact or estimated."""

    def close(self) -> None: ...


def slice_parts(parts: Sequence[FilePart], most: int, least_rows: int) -> tuple[Json, ...]:
    """File parts as at most `most` parts of a slice, in order and of about equal size."""
    rows, total = sum(p.rows for p in parts), sum(p.size for p in parts)
    count = max(1, min(most, rows // least_rows))
    groups: list[list[FilePart]] = [[]]
    size = 0
    for part in parts:
        # The next group begins if the middle of this part is beyond the share of the groups so far.
        if groups[-1] and len(groups) < count and (size + part.size / 2) * count >= len(groups) * total:
            groups.append([])
        groups[-1].append(part)
        size += part.size
    return tuple([p.to_json() for p in _join(group)] for group in groups if group)


def file_parts(part: Json) -> list[FilePart]:
    """The file parts in one part of a slice."""
    if not isinstance(part, list):
        raise ValueError(f"not a list of parts of files: {part!r}")
    return [FilePart.from_json(one) for one in part]


def parts_up_to(parts: Sequence[Json], path: str, position: Position) -> tuple[Json, ...]:
    """The parts of a slice up to a position in one of its files."""
    shortened: list[Json] = []
    for part in parts:
        group: list[Json] = []
        shortened.append(group)
        for file_part in file_parts(part):
            if file_part.file.path == path and file_part.first < position.at <= file_part.end:
                rest = replace(file_part, end=position.at, rows=position.row - file_part.row)
                group.append(rest.to_json())
                return tuple(shortened)
            group.append(file_part.to_json())
    raise ValueError(f"no part contains {position} of '{path}'")


def _join(parts: Sequence[FilePart]) -> Iterator[FilePart]:
    """Parts that follow each other in one file as one part."""
    before: FilePart | None = None
    for part in parts:
        if before is not None and before.file == part.file and before.end == part.first:
            before = replace(before, end=part.end, rows=before.rows + part.rows, size=before.size + part.size)
            continue
        if before is not None:
            yield before
        before = part
    if before is not None:
        yield before

"""A stretch of one file: what is read in one go, and how stretches become the parts of an offer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from streamling.connector import Json
from streamling.sources.file.listing import FoundFile


@dataclass(frozen=True, slots=True)
class Position:
    """Between two rows of a file: a place as in a stretch, and the number of the next row.

    The rows of a format yield one whenever everything before it is given.
    """

    at: int
    row: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of one file from one place to another.

    A place is a number that the format understands: a byte in text and Avro files, a row in Parquet files. `row` is
    the number of the first row, from 1. `rows` may count empty lines; `size` is how many bytes it is, or nearly.
    """

    file: FoundFile
    first: int
    end: int
    row: int
    rows: int
    size: int

    @property
    def behind(self) -> Position:
        return Position(self.end, self.row + self.rows)

    def to_json(self) -> Json:
        file = self.file
        partitions: Json = [[name, value] for name, value in file.partitions]
        return [file.path, file.size, file.modified_ns, partitions, self.first, self.end, self.row, self.rows]

    @classmethod
    def from_json(cls, data: Any) -> Stretch:
        try:
            path, size, modified_ns, partitions, *numbers = data
            first, end, row, rows = (int(number) for number in numbers)
            file = FoundFile(str(path), int(size), int(modified_ns), tuple((str(n), str(v)) for n, v in partitions))
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a stretch of a file: {data!r}") from error
        return cls(file, first, end, row, rows, 0)


class Cutter(Protocol):
    """Cuts one file into stretches, from front to back, knowing nothing of what the rows hold.

    A stretch ends between two rows. `at` and `row` say where the next one begins.
    """

    at: int
    row: int

    def cut(self, rows: int, size: int) -> Stretch | None:
        """The next stretch, of at most `rows` rows and about `size` bytes; None behind the last row."""

    @property
    def bytes_done(self) -> int:
        """How many bytes of the file lie behind `at`, or nearly."""

    def close(self) -> None: ...


def parts_of(stretches: Sequence[Stretch], most: int, least_rows: int) -> tuple[Json, ...]:
    """Stretches dealt out to at most `most` parts of about equal size, in order."""
    rows, total = sum(s.rows for s in stretches), sum(s.size for s in stretches)
    count = max(1, min(most, rows // least_rows))
    dealt: list[list[Stretch]] = [[]]
    passed = 0
    for stretch in stretches:
        # The next part begins where the middle of a stretch lies behind the share of the ones before.
        if dealt[-1] and len(dealt) < count and (passed + stretch.size / 2) * count >= len(dealt) * total:
            dealt.append([])
        dealt[-1].append(stretch)
        passed += stretch.size
    return tuple([s.to_json() for s in _joined(part)] for part in dealt if part)


def stretches_of(part: Json) -> list[Stretch]:
    if not isinstance(part, list):
        raise ValueError(f"not a part of files: {part!r}")
    return [Stretch.from_json(one) for one in part]


def parts_up_to(parts: Sequence[Json], path: str, position: Position) -> tuple[Json, ...]:
    """The parts of a slice up to a place in one of its files."""
    kept: list[Json] = []
    for part in parts:
        stretches: list[Json] = []
        kept.append(stretches)
        for stretch in stretches_of(part):
            if stretch.file.path == path and stretch.first < position.at <= stretch.end:
                rest = replace(stretch, end=position.at, rows=position.row - stretch.row)
                stretches.append(rest.to_json())
                return tuple(kept)
            stretches.append(stretch.to_json())
    raise ValueError(f"no part holds {position} of '{path}'")


def _joined(stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """Stretches that follow each other in one file as one."""
    before: Stretch | None = None
    for stretch in stretches:
        if before is not None and before.file == stretch.file and before.end == stretch.first:
            before = replace(before, end=stretch.end, rows=before.rows + stretch.rows, size=before.size + stretch.size)
            continue
        if before is not None:
            yield before
        before = stretch
    if before is not None:
        yield before

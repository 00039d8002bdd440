"""Rows of an epoch that a node has rejected; they are left out when it gets the epoch again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from streamling.connector import BadRow
from streamling.errors import INTERNAL, BugError

if TYPE_CHECKING:
    import pyarrow as pa


class Exclusions:
    """Row numbers among the rows of the node's input, from 0."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._numbers: list[int] = []
        """In ascending order."""

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(self._numbers)

    def add(self, bad_rows: Sequence[BadRow]) -> None:
        """Exclude rows that a writer has rejected. It numbers the rows it got, which lack the earlier exclusions."""
        numbers = set(self._numbers)
        for bad in bad_rows:
            if bad.index is None:
                raise BugError(INTERNAL, "a bad row has no index", node=self._node)
            numbers.add(self.original(bad.index))
        self._numbers = sorted(numbers)

    def original(self, index: int) -> int:
        """The number among all rows of a row that has this index among those that are not excluded."""
        for number in self._numbers:
            if number > index:
                break
            index += 1
        return index

    def originals(self, indexes: Sequence[int]) -> list[int]:
        """The same for several rows, in ascending order."""
        import numpy as np

        # The k-th excluded row comes before an index if fewer than so many rows that are not excluded precede it.
        before = np.asarray(self._numbers, np.int64) - np.arange(len(self._numbers))
        return [int(n) for n in np.asarray(indexes) + np.searchsorted(before, indexes, side="right")]

    def filter(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = 0
        numbers = iter(self._numbers)
        number = next(numbers, None)
        for batch in batches:
            start = 0
            while number is not None and number < first + batch.num_rows:
                if number - first > start:
                    yield batch.slice(start, number - first - start)
                start = number - first + 1
                number = next(numbers, None)
            first += batch.num_rows
            if start == 0:
                yield batch
            elif start < batch.num_rows:
                yield batch.slice(start)

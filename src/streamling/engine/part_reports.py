"""What workers say of the parts they have read: how many rows, and which were bad.

Reports come back beside the data, through one Spark accumulator per run. A part that is read twice, by a repeated
task for instance, reports twice under one name, so nothing is counted double.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamling.engine.bad_rows import refusal
from streamling.plugin.contract import BadRow, Counted, Json, Reached
from streamling.spec.options import OnError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext

# Bad rows beyond that many of one part are not sent along: whoever wants them reads the part again.
_SENT = 1000

PartName = tuple[str, str, int]
"""Epoch id, node, number of the part in the epoch."""


@dataclass(frozen=True, slots=True)
class PartReport:
    rows: int = 0
    refused: int = 0
    bad: tuple[BadRow, ...] = ()
    """The first of the refused rows, or all of them."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the reader has counted beside rows."""

    @property
    def complete(self) -> bool:
        return len(self.bad) == self.refused

    @property
    def bytes(self) -> int:
        return sum(len(bad.raw or b"") + len(bad.message) for bad in self.bad)


class Sorted:
    """Goes through what a reader yields: rows pass, bad rows stay."""

    def __init__(self, node: str, on_error: OnError, *, most: int | None = _SENT) -> None:
        """Of bad rows `most` are kept, all are counted."""
        self._node, self._on_error, self._most = node, on_error, most
        self._rows = self._refused = 0
        self._bad: list[BadRow] = []
        self._counts: Counter[str] = Counter()
        self.reached: Json = None
        """The last place a reader has spoken of."""

    def rows(
        self, items: Iterator[pa.RecordBatch | BadRow | Counted | Reached], enough: Callable[[], bool] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All of them, or up to the first place where it is `enough`."""
        for item in items:
            if isinstance(item, BadRow):
                self._refuse(item)
            elif isinstance(item, Counted):
                self._counts[item.what] += item.count
            elif isinstance(item, Reached):
                self.reached = item.place
                if enough is not None and enough():
                    return
            else:
                self._rows += item.num_rows
                yield item

    def _refuse(self, bad: BadRow) -> None:
        if self._on_error is OnError.FAIL:
            raise refusal(self._node, bad)
        self._refused += 1
        if self._most is None or len(self._bad) < self._most:
            self._bad.append(bad)

    @property
    def report(self) -> PartReport:
        return PartReport(self._rows, self._refused, tuple(self._bad), dict(self._counts))


NOTHING = PartReport()


def counts_of(reports: Iterable[PartReport]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for report in reports:
        found.update(report.counts)
    return dict(found)


def open_reports(context: SparkContext) -> Any:
    """An accumulator of reports by part name."""
    from streamling.engine.part_accumulator import Merged

    return context.accumulator({}, Merged())

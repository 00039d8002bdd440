"""What readers, processors and writers say of the rows they had: one record for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamling.connector.slices import Json


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that a reader, a processor or a writer rejects: it stands where the row would have stood.

    The node's `on_error` decides what becomes of it.
    """

    reason: str
    """One stable word, such as `decode_error`."""
    message: str
    source: Mapping[str, Json]
    """Where it was found, for instance `file` and `row`; the node is added to it. Empty if that is not known."""
    version: str = ""
    """Tells rows apart that stood at one place at different times, as in a file that was rewritten."""
    raw: bytes | None = None
    raw_key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    row: Json = None
    """The row as it came into the node, where there was one."""
    index: int | None = None
    """A writer's bad row: its number among the rows that the writer got, from 0."""

    @property
    def bytes(self) -> int:
        return len(self.raw or b"") + len(self.message)


@dataclass(frozen=True, slots=True)
class Counted:
    """Something a reader has passed over or seen that is no row; the source is told with `count`."""

    what: str
    count: int


@dataclass(frozen=True, slots=True)
class Reached:
    """Everything of a part before this place was given. A reader of a source that takes back yields it now and then."""

    place: Json


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the rows of one part, partition or epoch at one node."""

    rows: int = 0
    """Those a reader or processor has given, those a writer has written or staged."""
    rejected: int = 0
    """Rows that are not among `rows` because they are bad."""
    bad_rows: tuple[BadRow, ...] = ()
    """The first of the rejected rows, or all of them."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was counted beside rows."""
    bytes: int = 0
    """The size of `rows` as Arrow holds them."""
    detail: Json = None
    """A writer's own business: where it has put the rows, for instance."""

    @property
    def complete(self) -> bool:
        """Whether every rejected row is in `bad_rows`."""
        return len(self.bad_rows) == self.rejected

    @property
    def held_bytes(self) -> int:
        """What the rows and the bad rows take in memory."""
        return self.bytes + sum(bad.bytes for bad in self.bad_rows)


def combine(reports: Iterable[Report]) -> Report:
    """Several reports of one node as one; `detail` is lost."""
    known = list(reports)
    counts: Counter[str] = Counter()
    for report in known:
        counts.update(report.counts)
    return Report(
        rows=sum(report.rows for report in known),
        rejected=sum(report.rejected for report in known),
        bad_rows=tuple(bad for report in known for bad in report.bad_rows),
        counts=dict(counts),
        bytes=sum(report.bytes for report in known),
    )

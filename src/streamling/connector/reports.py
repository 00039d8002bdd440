"""What readers, processors and writers report about their rows: one record for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamling.telemetry.buckets import BucketCounts
from streamling.telemetry.event_time import EventTimes

if TYPE_CHECKING:
    from streamling.connector.slices import Json


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that a reader, a processor or a writer rejects; it takes the place of the row.

    The node's `on_error` decides what happens to it.
    """

    reason: str
    """A stable code, such as `decode_error`."""
    message: str
    source: Mapping[str, Json]
    """Where the row is, for example `file` and `row`; the engine adds the node. Empty if unknown."""
    version: str = ""
    """Distinguishes rows that were at one place at different times, as in a file that was rewritten."""
    raw: bytes | None = None
    raw_key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    row: Json = None
    """The row as the node got it, if there was one."""
    index: int | None = None
    """For writers: the index of the row among the rows that the writer got, from 0."""
    origin: Mapping[str, Json] | None = None
    """For transforms and sinks: the place of the row in its source, with the node, if the engine has found it."""
    input: str | None = None
    """For queries over several nodes: the node that the row came from."""
    cause: str = ""
    """What the target says is wrong, without values: the same for rows that are rejected in the same way."""

    @property
    def bytes(self) -> int:
        return len(self.raw or b"") + len(self.message)


@dataclass(frozen=True, slots=True)
class Counted:
    """What a reader or processor counts other than rows; the control side gets the sum with `count`."""

    what: str
    count: int


@dataclass(frozen=True, slots=True)
class Timed:
    """How long a reader or processor took for a batch, as a sample of the latency `metric` of its node."""

    metric: str
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Reached:
    """Everything before this place of a part has been yielded. Readers of sources that `takes_back` yield it."""

    place: Json


@dataclass(frozen=True, slots=True)
class Report:
    """What happened to the rows of one part, partition or epoch at one node."""

    rows: int = 0
    """Rows that a reader or processor has yielded, or a writer has written or staged."""
    rejected: int = 0
    """Rows that are not among `rows` because they are bad."""
    bad_rows: tuple[BadRow, ...] = ()
    """The first of the rejected rows, or all of them."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts of other things than rows."""
    bytes: int = 0
    """The size of `rows` as Arrow holds them."""
    detail: Json = None
    """Data of a writer for its sink: where the rows are staged, for example."""
    skipped: int = 0
    """Rows that the target has refused, and that the writer has dropped because the sink is configured to."""
    event_times: EventTimes | None = None
    """Of the rows, if the node has a column with event times. The engine measures them."""
    compute_ms: float = 0.0
    """How long executors have worked on the rows, without waiting for them. The engine measures it."""
    latencies: Mapping[str, BucketCounts] = field(default_factory=dict)
    """By metric: samples of latencies, which the engine records once the epoch is finalized."""

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
    all_reports = list(reports)
    counts: Counter[str] = Counter()
    for report in all_reports:
        counts.update(report.counts)
    return Report(
        rows=sum(report.rows for report in all_reports),
        rejected=sum(report.rejected for report in all_reports),
        bad_rows=tuple(bad for report in all_reports for bad in report.bad_rows),
        counts=dict(counts),
        bytes=sum(report.bytes for report in all_reports),
        skipped=sum(report.skipped for report in all_reports),
        event_times=sum_event_times(report.event_times for report in all_reports),
        compute_ms=sum(report.compute_ms for report in all_reports),
        latencies=sum_latencies(report.latencies for report in all_reports),
    )


def sum_event_times(several: Iterable[EventTimes | None]) -> EventTimes | None:
    known = [one for one in several if one is not None]
    return sum(known[1:], start=known[0]) if known else None


def sum_latencies(several: Iterable[Mapping[str, BucketCounts]]) -> dict[str, BucketCounts]:
    latencies: dict[str, BucketCounts] = {}
    for one in several:
        for metric, samples in one.items():
            latencies[metric] = latencies[metric] + samples if metric in latencies else samples
    return latencies

"""What readers and processors yield, taken apart into batches and a report: the same in the driver and in executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Counted, Json, Reached, Reader, Report, Source, Timed
from streamling.connector.reports import sum_latencies
from streamling.engine.protocol.bad_rows import rejection
from streamling.formats.arrow import cast_batch
from streamling.plan.sql.values import identifier
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError
from streamling.telemetry.buckets import BucketCounts, one_sample
from streamling.telemetry.event_time import EventTimeColumn, EventTimes, event_time_of

if TYPE_CHECKING:
    import pyarrow as pa

# More bad rows of one part than this are counted, but not kept in its report: reading the part again finds them.
MAX_BAD_ROWS = 1000


def read_event_time(node: NodeSpec, source: Source) -> EventTimeColumn | None:
    """The column with the event times of a source. None if it has none, or if Spark computes it: then the reader may
    give another one of the same name."""
    column = event_time_of(node, source.columns)
    if column is None or source.select is None:
        return column
    return column if (identifier(column.name), column.name) in source.select.columns else None


class BadRowFilter:
    """Splits what a reader or a processor yields: batches are passed on with the node's schema; bad rows and counts
    are collected into a report."""

    def __init__(
        self,
        node: str,
        schema: pa.Schema,
        on_error: OnError,
        *,
        max_bad_rows: int | None = MAX_BAD_ROWS,
        event_time: EventTimeColumn | None = None,
    ) -> None:
        """All bad rows are counted, at most `max_bad_rows` of them are kept; None keeps all."""
        self._node = node
        self._schema = schema
        self._on_error = on_error
        self._max_bad_rows = max_bad_rows
        self._rows = 0
        self._bytes = 0
        self._rejected = 0
        self._bad_rows: list[BadRow] = []
        self._counts: Counter[str] = Counter()
        self._latencies: dict[str, BucketCounts] = {}
        self._event_time = event_time
        self._event_times = EventTimes() if event_time is not None else None
        self.reached: Json = None
        """The last place that the reader has reached."""
        self.stopped = False
        """Whether reading ended at that place because it was enough, before the reader's end."""
        self.held_bytes = 0
        """The memory that the rows and the bad rows take."""

    def batches(
        self,
        items: Iterable[pa.RecordBatch | BadRow | Counted | Timed | Reached],
        enough: Callable[[], bool] | None = None,
        note_item: Callable[[], object] = lambda: None,
    ) -> Iterator[pa.RecordBatch]:
        """All batches, or those up to the first place where `enough` returns True. `note_item` is called for whatever
        is yielded."""
        for item in items:
            note_item()
            if isinstance(item, BadRow):
                self._reject(item)
            elif isinstance(item, Counted):
                self._counts[item.what] += item.count
            elif isinstance(item, Timed):
                self._latencies = sum_latencies([self._latencies, {item.metric: one_sample(item.milliseconds)}])
            elif isinstance(item, Reached):
                self.reached = item.place
                if enough is not None and enough():
                    self.stopped = True
                    return
            else:
                batch = cast_batch(item, self._schema, self._node)
                self._rows += batch.num_rows
                self._bytes += batch.nbytes
                self.held_bytes += batch.nbytes
                if self._event_time is not None and self._event_times is not None:
                    self._event_times += self._event_time.measure(batch)
                yield batch

    def _reject(self, bad: BadRow) -> None:
        if self._on_error is OnError.FAIL:
            raise rejection(self._node, bad)
        self._rejected += 1
        if self._max_bad_rows is None or len(self._bad_rows) < self._max_bad_rows:
            self._bad_rows.append(bad)
            self.held_bytes += bad.bytes

    @property
    def report(self) -> Report:
        counts = dict(self._counts)
        bad_rows = tuple(self._bad_rows)
        return Report(
            self._rows,
            self._rejected,
            bad_rows,
            counts,
            self._bytes,
            event_times=self._event_times,
            latencies=dict(self._latencies),
        )


def find_bad_rows(reader: Reader, parts: Iterable[Json]) -> Iterator[BadRow]:
    """Read parts again for their bad rows only."""
    return (item for part in parts for item in reader.read(part) if isinstance(item, BadRow))

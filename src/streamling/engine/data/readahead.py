"""Reading ahead: each source is read by a thread of its own while the epoch before is being flushed.

Small offers are read at once and held as Arrow batches, up to a bound in rows and bytes; an epoch takes all
of them. A large offer is held as it is: the executors will read it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from streamling.connector import Json, Offer, Report, Room, Slice, Source
from streamling.connector.reports import combine
from streamling.engine.data.capacity import FIRST_ROWS, Caps
from streamling.engine.data.intake import Intake, chunk_rows
from streamling.engine.data.reading import BadRowFilter
from streamling.engine.data.row_size import RowSize
from streamling.engine.protocol.closing import InHand, still_gathering
from streamling.errors import StreamlingError
from streamling.formats.arrow import arrow_schema
from streamling.retry import retry
from streamling.spec.pipeline.options import OnError

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# Half of what an epoch takes: rows that come one by one are read in few pieces, which leaves the cores to the epochs.
_GATHER_S = 0.05
# How soon a wait for the reading thread notices that it has ended.
_LOOK_UP_S = 0.5
# How soon it is noticed that reading may go on.
_PAUSE_S = 0.05
Result = TypeVar("Result")


class ReadAhead:
    def __init__(
        self,
        node: str,
        source: Source,
        caps: Callable[[], Caps],
        *,
        poll_s: float,
        wake: Callable[[], None],
        on_error: OnError = OnError.FAIL,
        waiting: Callable[[int], None] = lambda _: None,
        pausing: Callable[[], bool] = lambda: False,
    ) -> None:
        """`waiting` hears how many rows the source could offer at once behind an offer. Nothing is read while it is
        `pausing`."""
        self.node = node
        self.source = source
        self._capabilities = source.capabilities
        self._owned: frozenset[str] | None = frozenset() if source.capabilities.shared else None
        self._retrying: str | None = None
        self._on_error = on_error
        self._caps = caps
        self._poll_s = poll_s
        self._wake = wake
        self._waiting = waiting
        self._pausing = pausing
        self._schema = arrow_schema(source.columns)
        self._row_size = RowSize(source.columns)
        self._first = True
        """No epoch has shown yet what comes of the rows."""
        self._reader = source.reader()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._reset()

    def _reset(self) -> None:
        self._slices: list[Slice] = []
        self._batches: list[tuple[pa.RecordBatch, ...]] = []
        """Of each slice; of all rows that have none."""
        self._reports: list[Report] = []
        self._rows = self._bytes = 0
        self._marking: int | None = None
        self._taking = False
        self._large: Offer | None = None
        self._oldest: float | None = None
        self._finished = False
        self._stopped.clear()
        self._failure: BaseException | None = None

    def start(self, positions: Mapping[str, Json]) -> None:
        """Begin behind these positions, forgetting what was held."""
        self.stop()
        self._reset()
        self.source.open(positions)
        self._thread = threading.Thread(target=self._run, name=f"read {self.node}", daemon=True)
        self._thread.start()

    def stop(self, *, within: float | None = None) -> None:
        """Read no further. What is held can still be taken.

        A read that waits for another system may take long to notice: at the end of a run it is left to itself after
        `within` seconds, and what it gives is of no use to anybody.
        """
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(within)
            self._thread = self._thread if self._thread.is_alive() else None
        self._finished = True

    def discard(self) -> None:
        """Read no further and forget what is held."""
        self.stop()
        self._reset()
        self._finished = True

    @property
    def redivided(self) -> bool:
        """State keys of a shared source have come or gone. Raises what keeps the source from taking part."""
        return self._capabilities.shared and self.source.assigned() != self._owned

    def divide(self) -> None:
        """Forget what is held, and take the keys that are ours by now."""
        if self._capabilities.shared:
            self.discard()
            self._owned = self.source.assigned()
            self.source.own(self._owned)

    def owns(self, key: str) -> bool:
        return self._owned is None or key in self._owned

    def foreign(self, key: str) -> bool:
        """A key of this source that another process has."""
        return key.startswith(f"{self.node}:") and not self.owns(key)

    def in_hand(self) -> InHand:
        with self._changed:
            if self._failure is not None:
                raise self._failure
            # A slice without rows, or with bad ones only, is progress all the same, and must not wait for ever.
            rejected = sum(report.rejected for report in self._reports)
            rows = max(self._rows, len(self._slices), rejected) if self._large is None else max(self._large.rows, 1)
            waited = time.monotonic() - self._oldest if self._oldest is not None else 0.0
            full = self._large is not None or self._room() is None
            policy = self._capabilities.batch
            gathering = still_gathering(policy, rows, waited) if policy and rows else None
            return InHand(rows, waited, full and rows > 0, self._finished, gathering)

    @property
    def finished(self) -> bool:
        """True once nothing is held and nothing will come."""
        with self._changed:
            return self._finished and not self._reports and self._large is None

    def take(self, epoch: int, *, only_read: bool = False) -> Intake | None:
        """Everything held, or None. `only_read` leaves out what no reader has touched yet.

        A source that keeps its own position is told the number of the epoch between two offers; then all rows it
        has given are in hand, and none is on its way.
        """
        with self._changed:
            if not self._capabilities.replayable:
                self._mark(epoch)
            intake: Intake | None = None
            if self._large is not None:
                intake = None if only_read else self._large_intake(self._large.slices)
            elif self._reports:
                report = combine(self._reports)
                slices, batches = _joined(self._slices, self._batches)
                intake = Intake(slices, batches, report, chunk_rows(report))
            self._slices, self._batches, self._reports, self._rows, self._bytes = [], [], [], 0, 0
            self._large, self._oldest = None, None
            self._taking = False
            self._changed.notify_all()
            return intake

    def _large_intake(self, slices: tuple[Slice, ...]) -> Intake:
        """Its report is an estimate until the executors have read it."""
        rows = sum(s.rows for s in slices)
        return Intake(slices, None, Report(rows, bytes=int(rows * self._row_size.likely)))

    def _mark(self, epoch: int) -> None:
        self._marking, self._taking = epoch, True
        self._changed.notify_all()
        # The thread answers between two offers; one that has ended can make no more of them.
        while self._marking is not None and self._failure is None and self._thread and self._thread.is_alive():
            self._changed.wait(_LOOK_UP_S)
        if self._failure is not None:
            raise self._failure
        if self._marking is not None:
            self._answer_marker()

    def _answer_marker(self) -> None:
        """With the lock held."""
        if self._marking is None:
            return
        late = self.source.mark(self._marking, last=self._stopped.is_set())
        if late is not None:
            self._add(late, self.read(late))
        self._marking = None
        self._changed.notify_all()

    def _room(self) -> Room | None:
        """How much more fits; None while a large offer waits or the buffer is full."""
        caps = self._caps()
        if self._large is not None or self._held_bytes() >= caps.bytes:
            return None
        # Once rows are buffered only small offers are taken, because one large offer would move the whole epoch to the
        # executors. Rows that cannot be replayed are always buffered, whatever their number.
        most = min(caps.rows, caps.driver_rows) if self._slices else caps.rows
        if self._first and caps.first_rows is not None:
            most = min(most, caps.first_rows)
        rows = most - self._rows
        return self._sized(rows, caps) if rows > 0 else None

    def _held_bytes(self) -> float:
        """What is buffered, or what is known to come of it if that is more."""
        return max(self._bytes, self._rows * (self._row_size.known or 0.0))

    def _sized(self, rows: int, caps: Caps) -> Room:
        """A room of as many rows as fit the bytes, by the length of the rows seen so far."""
        size = self._row_size.known
        if size is None:
            # The driver reads the first rows; it stops at the byte limit if the source takes back the rest.
            size = self._row_size.likely
            rows = min(rows, caps.driver_rows or int(caps.large_bytes / size))
            if not self._capabilities.takes_back:
                rows = min(rows, FIRST_ROWS)
        else:
            rows = min(rows, int(caps.large_bytes / size))
            if rows <= caps.driver_rows:
                rows = min(rows, int((caps.bytes - self._held_bytes()) / size))
        rows = max(rows, 1)
        parts = caps.parts
        part_rows = caps.part_rows
        if caps.part_bytes is not None and rows > caps.driver_rows:
            parts = max(parts, math.ceil(rows * size / caps.part_bytes))
            part_rows = max(1, min(part_rows, int(caps.part_bytes / size)))
        return Room(rows, parts, part_rows, caps.large_bytes)

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:  # handed to the loop, which fails with it
            with self._changed:
                self._failure = error
        self._wake()

    def _step(self) -> bool:
        with self._changed:
            if not self._capabilities.replayable:
                self._answer_marker()
                while self._taking and not self._stopped.is_set():  # what comes now belongs to the next epoch
                    self._changed.wait(_LOOK_UP_S)
            if self._stopped.is_set():
                return False
            pausing, room = self._pausing(), self._room()
            if pausing or room is None:
                self._changed.wait(_PAUSE_S if pausing else None)
                return True
        offer = self._retry(lambda: self.source.offer(room))
        if offer is None:
            with self._changed:
                if self.source.ended:
                    self._finished = True
                    return False
                self._changed.wait(self._poll_s)
            return True
        self._waiting(offer.waiting)
        self._hold(offer)
        self._wake()
        if offer.rows < room.rows // 2:
            # It trickles: let some rows gather instead of taking each by itself.
            self._stopped.wait(min(self._poll_s, _GATHER_S))
        return True

    def _hold(self, offer: Offer) -> None:
        intake = self.read(offer, takes_back=self._capabilities.takes_back)
        with self._changed:
            self._add(offer, intake)

    def _add(self, offer: Offer, intake: Intake) -> None:
        """With the lock held."""
        if intake.batches is not None:
            self._slices.extend(intake.slices)
            self._batches.extend(intake.batches_by_slice)
            self._reports.append(intake.report)
            self._rows += intake.report.rows
            self._bytes += intake.report.held_bytes
            self._row_size.note(intake.report)
        else:
            self._large = offer
        if self._oldest is None:
            self._oldest = time.monotonic()

    def replay(self, slices: tuple[Slice, ...], rows_per_chunk: int | None) -> Intake:
        """The rows of a recorded epoch, as far as the source still has them, cut as they were.

        `rows_per_chunk`: 0 if executors have read them, None if that was not recorded.
        """
        left = self._retry(lambda: self.source.recall(slices))
        if rows_per_chunk == 0:
            return self._large_intake(left)
        if rows_per_chunk is None:
            return self.read(Offer(left), takes_back=False)
        return replace(self._retry(lambda: self._read(left, takes_back=False)), chunk_rows=rows_per_chunk)

    def read(self, offer: Offer, *, takes_back: bool = False) -> Intake:
        """The rows of an offer if they are few; a large one as it is. What there is no room for may be taken back."""
        if not offer.slices:
            # All bad rows are kept: nobody can read them again.
            rows = BadRowFilter(self.node, self._schema, self._on_error, kept_bad_rows=None)
            batches = tuple(rows.batches(chain(offer.bad_rows, offer.batches)))
            return Intake((), batches, rows.report, chunk_rows(rows.report))
        if offer.rows > self._caps().driver_rows:
            return self._large_intake(offer.slices)
        return self._retry(lambda: self._read(offer.slices, takes_back=takes_back))

    def _read(self, slices: tuple[Slice, ...], *, takes_back: bool) -> Intake:
        kept_slices: list[Slice] = []
        batches: list[pa.RecordBatch] = []
        counts: list[int] = []
        reports: list[Report] = []
        room = self._caps().bytes - self._bytes if takes_back else math.inf
        for slice_ in slices:
            rows = BadRowFilter(self.node, self._schema, self._on_error)
            begun = room > 0
            found = self._read_slice(slice_, rows, room) if begun else []
            room -= rows.held_bytes
            whole = begun and not rows.stopped
            kept = slice_ if whole else self.source.take_back(slice_, rows.reached)
            if kept is not None:
                batches += found
                counts.append(len(found))
                reports.append(rows.report)
                kept_slices.append(replace(kept, rows=rows.report.rows))  # it was an estimate until now
        report = combine(reports)
        return Intake(tuple(kept_slices), tuple(batches), report, chunk_rows(report), tuple(counts))

    def _read_slice(self, slice_: Slice, rows: BadRowFilter, room: float) -> list[pa.RecordBatch]:
        """Its rows, up to the first place its reader reaches where there is no room for more."""
        found: list[pa.RecordBatch] = []
        for part in slice_.parts:
            found.extend(rows.batches(self._reader.read(part), lambda: rows.held_bytes >= room))
            if rows.stopped:
                break
        return found

    def delivered(self, report: Report, collected_bytes: float = 0.0) -> None:
        """What readers had to say of an epoch that every sink has, and what the driver had to hold for each row."""
        self._first = False
        self._row_size.note(report)
        self._row_size.note_collected(collected_bytes)
        if report.counts:
            self.source.count(report.counts)

    @property
    def trouble(self) -> str | None:
        """What keeps the source from making progress at the moment. Asked from any thread."""
        return self._retrying or self.source.trouble()

    def _retry(self, action: Callable[[], Result]) -> Result:
        try:
            return retry(
                action,
                what=f"reading {self.node}",
                stopping=self._stopped.is_set,
                sleep=self._stopped.wait,
                tell=self._note_trouble,
            )
        except StreamlingError as error:
            error.node = error.node or self.node
            raise

    def _note_trouble(self, trouble: str | None) -> None:
        self._retrying = trouble


def _joined(
    slices: Sequence[Slice], batches: Sequence[tuple[pa.RecordBatch, ...]]
) -> tuple[tuple[Slice, ...], tuple[pa.RecordBatch, ...]]:
    """Consecutive slices of one state key as one, and the rows in the order of these: as a replay reads them."""
    if not slices:
        return (), tuple(batch for some in batches for batch in some)
    joined: dict[str, Slice] = {}
    rows: dict[str, list[pa.RecordBatch]] = {}
    for slice_, some in zip(slices, batches, strict=True):
        before = joined.get(slice_.key)
        if before is None:
            joined[slice_.key] = slice_
        else:
            parts = before.parts + slice_.parts
            joined[slice_.key] = replace(before, end=slice_.end, parts=parts, rows=before.rows + slice_.rows)
        rows.setdefault(slice_.key, []).extend(some)
    return tuple(joined.values()), tuple(batch for key in joined for batch in rows[key])

"""Reading ahead: a thread per source reads while the previous epoch is flushed.

Small offers are read immediately and buffered as Arrow batches, up to a limit in rows and bytes; an epoch takes all of
them. A large offer is buffered unread: the executors will read it.
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
from streamling.engine.data.offer_buffer import OfferBuffer
from streamling.engine.data.reading import BadRowFilter
from streamling.engine.data.row_size import RowSize
from streamling.engine.protocol.closing import Buffered, seconds_to_gather
from streamling.errors import StreamlingError
from streamling.formats.arrow import arrow_schema
from streamling.log_context import log_fields
from streamling.retry import retry
from streamling.spec.pipeline.options import OnError
from streamling.telemetry.event_time import EventTimeColumn

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# Half the duration of a small epoch: rows that arrive one by one are read in few offers, which leaves the cores to the
# epochs.
_GATHER_S = 0.05
# How often a wait for the reading thread checks whether the thread has ended.
_CHECK_S = 0.5
# How often a paused thread checks whether it may read again.
_PAUSE_S = 0.05
# Sources that cannot cut their rows anywhere leave some room. Less than this share of an epoch is not worth an offer,
# which would be an epoch of a few rows if the last one has just ended.
_LEAST_ROOM_SHARE = 64
Result = TypeVar("Result")


class ReadAhead:
    """Reads one source in a thread, into a buffer from which epochs take."""

    def __init__(
        self,
        node: str,
        source: Source,
        caps: Callable[[], Caps],
        *,
        poll_s: float,
        wake: Callable[[], None],
        on_error: OnError = OnError.FAIL,
        note_waiting: Callable[[int], None] = lambda _: None,
        is_paused: Callable[[], bool] = lambda: False,
        event_time: EventTimeColumn | None = None,
        name: str = "",
    ) -> None:
        """`node` is its name in state keys, `name` that in logs, if it is another one. `note_waiting` gets the number
        of rows that the source could give immediately after an offer. Nothing is read while `is_paused` returns
        True."""
        self.node = node
        self._name = name or node
        self.source = source
        self._capabilities = source.capabilities
        self._owned: frozenset[str] | None = frozenset() if source.capabilities.shared else None
        self._retry_trouble: str | None = None
        self._on_error = on_error
        self._event_time = event_time
        self._caps = caps
        self._poll_s = poll_s
        self._wake = wake
        self._note_waiting = note_waiting
        self._is_paused = is_paused
        self._schema = arrow_schema(source.columns)
        self._row_size = RowSize(source.columns)
        self._first = True
        """No epoch has shown yet how much data queries make of the rows."""
        self._awaits_first = False
        """An epoch that will show it is under way."""
        self._reader = source.reader()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._buffer = OfferBuffer()
        self._marker: int | None = None
        """The number of the epoch that the thread has to announce to the source."""
        self._taking = False
        """An epoch is being taken: the thread does not ask for the next offer before that is done."""
        self._finished = False
        self._failure: BaseException | None = None
        self.reading_since: float | None = None
        """Since when the source has been asked for rows without an answer. Any thread may read it."""

    def _reset(self) -> None:
        self._buffer = OfferBuffer()
        self._marker = None
        self._taking = False
        self._awaits_first = False
        self._finished = False
        self._stopped.clear()
        self._failure = None

    def start(self, positions: Mapping[str, Json]) -> None:
        """Drop what is buffered and read from these positions on."""
        self.stop()
        self._reset()
        self.source.open(positions)
        self._thread = threading.Thread(target=self._run, name=f"read {self._name}", daemon=True)
        self._thread.start()

    def stop(self, *, within: float | None = None) -> None:
        """Read no further. What is buffered can still be taken.

        A read that waits for another system may take long to notice: at the end of a run its thread is abandoned after
        `within` seconds, and what it still reads is not used.
        """
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(within)
            self._thread = self._thread if self._thread.is_alive() else None
        self._finished = True

    def discard(self) -> None:
        """Read no further and drop what is buffered."""
        self.stop()
        self._reset()
        self._finished = True

    @property
    def assignment_changed(self) -> bool:
        """Whether this process was assigned other state keys of a shared source. Raises the error that keeps the source
        from getting an assignment."""
        return self._capabilities.shared and self.source.assigned() != self._owned

    def take_assignment(self) -> None:
        """Drop what is buffered, and own the keys that are assigned to this process now."""
        if self._capabilities.shared:
            self.discard()
            self._owned = self.source.assigned()
            self.source.own(self._owned)

    def owns(self, key: str) -> bool:
        return self._owned is None or key in self._owned

    def is_foreign(self, key: str) -> bool:
        """Whether another process owns this key of the source."""
        return key.startswith(f"{self.node}:") and not self.owns(key)

    def buffered(self) -> Buffered:
        with self._changed:
            if self._failure is not None:
                raise self._failure
            buffer = self._buffer
            # A slice without rows, or with bad rows only, is progress too, and must not wait forever.
            rejected = sum(report.rejected for report in buffer.reports)
            rows = max(buffer.rows, len(buffer.slices), rejected) if buffer.large is None else max(buffer.large.rows, 1)
            waited = time.monotonic() - buffer.oldest if buffer.oldest is not None else 0.0
            full = buffer.large is not None or self._room() is None
            policy = self._capabilities.batch
            gathering = seconds_to_gather(policy, rows, waited) if policy and rows else None
            return Buffered(rows, waited, full and rows > 0, self._finished, gathering)

    @property
    def buffered_rows(self) -> int:
        """Rows that no epoch has taken yet; of a large offer those that executors will read. Never waits."""
        buffer = self._buffer
        return buffer.rows if buffer.large is None else buffer.large.rows

    @property
    def finished(self) -> bool:
        """True once nothing is buffered and nothing will come."""
        with self._changed:
            return self._finished and not self._buffer.reports and self._buffer.large is None

    def take(self, epoch: int, *, only_read: bool = False) -> Intake | None:
        """Everything that is buffered, or None. `only_read` leaves out a large offer, which was not read yet.

        A source that keeps its own position gets the number of the epoch between two offers; then all rows it has given
        are buffered, and none is in flight.
        """
        with self._changed:
            if not self._capabilities.replayable:
                self._mark(epoch)
            buffer = self._buffer
            if buffer.large is not None:
                intake = None if only_read else self._large_intake(buffer.large.slices)
            else:
                intake = buffer.intake()
            self._buffer = OfferBuffer()
            self._taking = False
            self._awaits_first = self._first and intake is not None
            self._changed.notify_all()
            return intake

    def _large_intake(self, slices: tuple[Slice, ...]) -> Intake:
        """Its report is an estimate until the executors have read it."""
        rows = sum(s.rows for s in slices)
        return Intake(slices, None, Report(rows, bytes=int(rows * self._row_size.likely)))

    def _mark(self, epoch: int) -> None:
        self._marker = epoch
        self._taking = True
        self._changed.notify_all()
        # The thread sends the marker between two offers; after its end there are no more offers.
        while self._marker is not None and self._failure is None and self._thread and self._thread.is_alive():
            self._changed.wait(_CHECK_S)
        if self._failure is not None:
            raise self._failure
        if self._marker is not None:
            self._send_marker()

    def _send_marker(self) -> None:
        """Call it with the lock held."""
        if self._marker is None:
            return
        late = self.source.mark(self._marker, last=self._stopped.is_set())
        if late is not None:
            self._add(late, self.read(late))
        self._marker = None
        self._changed.notify_all()

    def _room(self) -> Room | None:
        """How much more fits; None while a large offer is buffered, the buffer is full, or nobody knows how much data
        will come of more rows."""
        caps = self._caps()
        if self._awaits_first and caps.first_rows is not None:
            return None
        if self._buffer.large is not None or self._buffered_bytes() >= caps.bytes:
            return None
        # Once rows are buffered only small offers are taken, because one large offer would move the whole epoch to the
        # executors. Rows that cannot be replayed are always buffered, whatever their number.
        limit = min(caps.rows, caps.driver_rows) if self._buffer.slices else caps.rows
        if self._first and caps.first_rows is not None:
            limit = min(limit, caps.first_rows)
        rows = limit - self._buffer.rows
        if rows <= 0 or (self._buffer.slices and rows < limit // _LEAST_ROOM_SHARE):
            return None
        return self._make_room(rows, caps)

    def _buffered_bytes(self) -> float:
        """The bytes that are buffered, or those of the results expected from them if that is more."""
        return max(self._buffer.bytes, self._buffer.rows * (self._row_size.known or 0.0))

    def _make_room(self, rows: int, caps: Caps) -> Room:
        """A room of at most this many rows whose bytes fit, given the size of the rows seen so far."""
        size = self._row_size.known
        if size is None:
            # The driver reads the first rows, up to the byte limit if the source takes back the rest.
            size = self._row_size.likely
            rows = min(rows, caps.driver_rows or int(caps.large_bytes / size))
            if not self._capabilities.takes_back:
                rows = min(rows, FIRST_ROWS)
        else:
            rows = min(rows, int(caps.large_bytes / size))
            if rows <= caps.driver_rows:
                rows = min(rows, int((caps.bytes - self._buffered_bytes()) / size))
        rows = max(rows, 1)
        parts = caps.parts
        part_rows = caps.part_rows
        if caps.part_bytes is not None and rows > caps.driver_rows:
            parts = max(parts, math.ceil(rows * size / caps.part_bytes))
            part_rows = max(1, min(part_rows, int(caps.part_bytes / size)))
        return Room(rows, parts, part_rows, caps.large_bytes)

    def _run(self) -> None:
        try:
            with log_fields(node=self._name):
                while self._step():
                    pass
        except BaseException as error:  # the loop raises it
            with self._changed:
                self._failure = error
        self.reading_since = None
        self._wake()

    def _step(self) -> bool:
        with self._changed:
            if not self._capabilities.replayable:
                self._send_marker()
                while self._taking and not self._stopped.is_set():  # the next offer belongs to the next epoch
                    self._changed.wait(_CHECK_S)
                    self._send_marker()  # the next epoch may be taken before this thread runs again
            if self._stopped.is_set():
                return False
            paused, room = self._is_paused(), self._room()
            if paused or room is None:
                self._changed.wait(_PAUSE_S if paused else None)
                return True
        self.reading_since = time.monotonic()
        offer = self._retry(lambda: self.source.offer(room))
        self.reading_since = None
        if offer is None:
            with self._changed:
                if self.source.ended:
                    self._finished = True
                    return False
                self._changed.wait(self._poll_s)
            return True
        self._note_waiting(offer.waiting)
        self._buffer_offer(offer)
        self._wake()
        if offer.rows < room.rows // 2:
            # Few rows arrive: let some gather instead of reading each by itself.
            self._stopped.wait(min(self._poll_s, _GATHER_S))
        return True

    def _buffer_offer(self, offer: Offer) -> None:
        self.reading_since = time.monotonic()
        intake = self.read(offer, takes_back=self._capabilities.takes_back)
        self.reading_since = None
        with self._changed:
            self._add(offer, intake)

    def _add(self, offer: Offer, intake: Intake) -> None:
        """Call it with the lock held."""
        self._buffer.add(offer, intake)
        if intake.batches is not None:
            self._row_size.note(intake.report)

    def replay(self, slices: tuple[Slice, ...], rows_per_chunk: int | None) -> Intake:
        """The rows of a recorded epoch, as far as the source still has them, in the same chunks as before.

        `rows_per_chunk`: 0 if executors have read them, None if that was not recorded.
        """
        recalled = self._retry(lambda: self.source.recall(slices))
        if rows_per_chunk == 0:
            return self._large_intake(recalled)
        if rows_per_chunk is None:
            return self.read(Offer(recalled), takes_back=False)
        return replace(self._retry(lambda: self._read(recalled, takes_back=False)), chunk_rows=rows_per_chunk)

    def read(self, offer: Offer, *, takes_back: bool = False) -> Intake:
        """The rows of an offer; a large one is left to the executors. With `takes_back` the source gets back the slices
        for which there is no room."""
        if not offer.slices:
            # All bad rows are kept: the source cannot read them again.
            rows = BadRowFilter(self.node, self._schema, self._on_error, max_bad_rows=None, event_time=self._event_time)
            batches = tuple(rows.batches(chain(offer.bad_rows, offer.batches)))
            return Intake((), batches, rows.report, chunk_rows(rows.report))
        if offer.rows > self._caps().driver_rows:
            return self._large_intake(offer.slices)
        return self._retry(lambda: self._read(offer.slices, takes_back=takes_back))

    def _read(self, slices: tuple[Slice, ...], *, takes_back: bool) -> Intake:
        began = time.perf_counter()
        kept_slices: list[Slice] = []
        batches: list[pa.RecordBatch] = []
        counts: list[int] = []
        reports: list[Report] = []
        room = self._caps().bytes - self._buffer.bytes if takes_back else math.inf
        for slice_ in slices:
            rows = BadRowFilter(self.node, self._schema, self._on_error, event_time=self._event_time)
            begun = room > 0
            slice_batches = self._read_slice(slice_, rows, room) if begun else []
            room -= rows.held_bytes
            complete = begun and not rows.stopped
            kept = slice_ if complete else self.source.take_back(slice_, rows.reached)
            if kept is not None:
                batches += slice_batches
                counts.append(len(slice_batches))
                reports.append(rows.report)
                kept_slices.append(replace(kept, rows=rows.report.rows))  # it was an estimate until now
        self.source.check_read(kept_slices)
        report = combine(reports)
        phases = self._by_phase(kept_slices, reports)
        read_s = time.perf_counter() - began
        return Intake(tuple(kept_slices), tuple(batches), report, chunk_rows(report), tuple(counts), read_s, phases)

    def _by_phase(self, slices: Sequence[Slice], reports: Sequence[Report]) -> dict[str, Report]:
        by_phase: dict[str, list[Report]] = {}
        for slice_, report in zip(slices, reports, strict=True):
            if (phase := self.source.phase(slice_)) is not None:
                by_phase.setdefault(phase, []).append(report)
        return {phase: combine(several) for phase, several in by_phase.items()}

    def _read_slice(self, slice_: Slice, rows: BadRowFilter, room: float) -> list[pa.RecordBatch]:
        """The rows of a slice, up to the first place that its reader reports after the room is used up."""
        batches: list[pa.RecordBatch] = []
        for part in slice_.parts:
            batches.extend(rows.batches(self._reader.read(part), lambda: rows.held_bytes >= room, self._note_item))
            if rows.stopped:
                break
        return batches

    def _note_item(self) -> None:
        if self.reading_since is not None:
            self.reading_since = time.monotonic()

    def note_delivery(self, report: Report, collected_bytes: float = 0.0) -> None:
        """Learn from an epoch that every sink has: the readers' report, and the bytes that the driver held per row."""
        self._row_size.note(report)
        self._row_size.note_collected(collected_bytes)
        with self._changed:
            self._first = self._first and not report.rows
            self._awaits_first = False
            self._changed.notify_all()

    @property
    def trouble(self) -> str | None:
        """Why the source makes no progress now. Any thread may read it."""
        return self._retry_trouble or self.source.trouble()

    def _retry(self, action: Callable[[], Result]) -> Result:
        try:
            return retry(
                action,
                what=f"reading {self._name}",
                stopping=self._stopped.is_set,
                sleep=self._stopped.wait,
                on_trouble=self._note_trouble,
            )
        except StreamlingError as error:
            error.node = error.node or self.node
            raise

    def _note_trouble(self, trouble: str | None) -> None:
        self._retry_trouble = trouble

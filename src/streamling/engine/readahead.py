"""Reading ahead: each source is read by a thread of its own while the epoch before is being flushed.

Small offers are read at once and held as Arrow batches, up to a bound in rows and bytes; an epoch takes all
of them. A large offer is held as it is: the executors will read it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from streamling.engine.capacity import Caps
from streamling.engine.closing import InHand, still_gathering
from streamling.engine.part_reports import NOTHING, PartReport, Sorted, counts_of
from streamling.errors import StreamlingError
from streamling.formats.arrow import arrow_schema, conform
from streamling.plugin.abilities import Batch, HearsCounts, HearsMarkers, Recalls, Shared, TakesBack, Watched
from streamling.plugin.contract import Json, Offer, Room, Slice, Source
from streamling.retry import retry
from streamling.spec.options import OnError

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


@dataclass(frozen=True, slots=True)
class Taken:
    """What one source gives to an epoch: slices, and their rows if they are in hand.

    Rows without slices come from a source that cannot read them again.
    """

    slices: tuple[Slice, ...]
    batches: tuple[pa.RecordBatch, ...] | None
    report: PartReport = NOTHING
    """What was found while reading, if the rows are in hand."""

    @property
    def loose_rows(self) -> int:
        return 0 if self.slices else sum(batch.num_rows for batch in self.batches or ())


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
        wish: Batch | None = None,
        waiting: Callable[[int], None] = lambda _: None,
        pausing: Callable[[], bool] = lambda: False,
    ) -> None:
        """`waiting` hears how many rows the source could offer at once behind an offer. Nothing is read while it is
        `pausing`."""
        self.node, self.source = node, source
        # Asked once: looking at a protocol costs more than all else in a poll that finds nothing.
        self._marked = source if isinstance(source, HearsMarkers) else None
        self._shared = source if isinstance(source, Shared) else None
        self._taking_back = source if isinstance(source, TakesBack) else None
        self._owned: frozenset[str] | None = frozenset() if self._shared is not None else None
        self._watched = source if isinstance(source, Watched) else None
        self._counting = source if isinstance(source, HearsCounts) else None
        self._retrying: str | None = None
        self._on_error, self._wish = on_error, wish
        self._caps, self._poll_s, self._wake, self._waiting, self._pausing = caps, poll_s, wake, waiting, pausing
        self._schema = arrow_schema(source.columns)
        self._reader = source.reader()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._reset()

    def _reset(self) -> None:
        self._slices: list[Slice] = []
        self._batches: list[pa.RecordBatch] = []
        self._reports: list[PartReport] = []
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
        return self._shared is not None and self._shared.assigned() != self._owned

    def divide(self) -> None:
        """Forget what is held, and take the keys that are ours by now."""
        if self._shared is not None:
            self.discard()
            self._owned = self._shared.assigned()
            self._shared.own(self._owned)

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
            refused = sum(report.refused for report in self._reports)
            rows = max(self._rows, len(self._slices), refused) if self._large is None else max(self._large.rows, 1)
            waited = time.monotonic() - self._oldest if self._oldest is not None else 0.0
            full = self._large is not None or self._room() is None
            gathering = still_gathering(self._wish, rows, waited) if self._wish and rows else None
            return InHand(rows, waited, full and rows > 0, self._finished, gathering)

    @property
    def finished(self) -> bool:
        """True once nothing is held and nothing will come."""
        with self._changed:
            return self._finished and not self._reports and self._large is None

    def take(self, epoch: int, *, only_read: bool = False) -> Taken | None:
        """Everything held, or None. `only_read` leaves out what no reader has touched yet.

        A source that keeps its own position is told the number of the epoch between two offers; then all rows it
        has given are in hand, and none is on its way.
        """
        with self._changed:
            if self._marked is not None:
                self._mark(self._marked, epoch)
            taken: Taken | None = None
            if self._large is not None:
                taken = None if only_read else Taken(self._large.slices, None)
            elif self._reports:
                taken = Taken(_joined(self._slices), tuple(self._batches), _summed(self._reports))
            self._slices, self._batches, self._reports, self._rows, self._bytes = [], [], [], 0, 0
            self._large, self._oldest = None, None
            self._taking = False
            self._changed.notify_all()
            return taken

    def _mark(self, source: HearsMarkers, epoch: int) -> None:
        self._marking, self._taking = epoch, True
        self._changed.notify_all()
        # The thread answers between two offers; one that has ended can make no more of them.
        while self._marking is not None and self._failure is None and self._thread and self._thread.is_alive():
            self._changed.wait(_LOOK_UP_S)
        if self._failure is not None:
            raise self._failure
        if self._marking is not None:
            self._answer_marker(source)

    def _answer_marker(self, source: HearsMarkers) -> None:
        """With the lock held."""
        if self._marking is None:
            return
        late = source.mark(self._marking, last=self._stopped.is_set())
        if late is not None:
            self._add(late, self.read(late))
        self._marking = None
        self._changed.notify_all()

    def _room(self) -> Room | None:
        """How much more fits; None while a large offer waits or the buffer is full."""
        caps = self._caps()
        if self._large is not None or self._bytes >= caps.bytes:
            return None
        # Beside rows in hand only small offers fit: a large one would make the whole epoch large. Rows that nobody can
        # read again never do: they are in hand, however many.
        most = min(caps.rows, caps.driver_rows) if self._slices else caps.rows
        rows = most - self._rows
        return Room(rows, caps.parts, caps.part_rows) if rows > 0 else None

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
            if self._marked is not None:
                self._answer_marker(self._marked)
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
        taken = self.read(offer, self._taking_back)
        with self._changed:
            self._add(offer, taken)

    def _add(self, offer: Offer, taken: Taken) -> None:
        """With the lock held."""
        if taken.batches is not None:
            self._slices.extend(taken.slices)
            self._batches.extend(taken.batches)
            self._reports.append(taken.report)
            self._rows += taken.report.rows
            self._bytes += _bytes_of(taken.batches, taken.report)
        else:
            self._large = offer
        if self._oldest is None:
            self._oldest = time.monotonic()

    def read_again(self, slices: tuple[Slice, ...]) -> Taken:
        """The rows of a recorded epoch, as far as the source still has them."""
        source = self.source
        if isinstance(source, Recalls):
            return self.read(Offer(self._retry(lambda: source.recalled(slices))))
        return self.read(Offer(slices))

    def read(self, offer: Offer, taking_back: TakesBack | None = None) -> Taken:
        """The rows of an offer if they are few; a large one as it is. What there is no room for may be taken back."""
        if not offer.slices:
            # All bad rows are kept: nobody can read them again.
            sorted_ = Sorted(self.node, self._on_error, most=None)
            batches = tuple(conform(b, self._schema, self.node) for b in sorted_.rows(chain(offer.bad, offer.batches)))
            return Taken((), batches, sorted_.report)
        if offer.rows > self._caps().driver_rows:
            return Taken(offer.slices, None)
        return self._retry(lambda: self._read(offer.slices, taking_back))

    def _read(self, slices: tuple[Slice, ...], taking_back: TakesBack | None) -> Taken:
        counted, batches, reports = [], [], []
        room = self._caps().bytes - self._bytes if taking_back is not None else math.inf
        for slice_ in slices:
            sorted_ = Sorted(self.node, self._on_error)
            found = self._read_slice(slice_, sorted_, room) if room > 0 else []
            room -= _bytes_of(found, sorted_.report)
            kept: Slice | None = slice_
            if room <= 0 and taking_back is not None:
                kept = taking_back.take_back(slice_, sorted_.reached)
            if kept is not None:
                batches += found
                reports.append(sorted_.report)
                counted.append(replace(kept, rows=sorted_.report.rows))  # it was an estimate until now
        return Taken(tuple(counted), tuple(batches), _summed(reports))

    def _read_slice(self, slice_: Slice, sorted_: Sorted, room: float) -> list[pa.RecordBatch]:
        """Its rows, up to the first place its reader reaches where there is no room for more."""
        found: list[pa.RecordBatch] = []
        size = 0

        def enough() -> bool:
            return size + sorted_.report.bytes >= room

        for part in slice_.parts:
            for batch in sorted_.rows(self._reader.read(part), enough):
                found.append(conform(batch, self._schema, self.node))
                size += batch.nbytes
            if enough():
                break
        return found

    def counted(self, counts: Mapping[str, int]) -> None:
        if counts and self._counting is not None:
            self._counting.counted(counts)

    @property
    def trouble(self) -> str | None:
        """What keeps the source from getting on at the moment. Asked from any thread."""
        return self._retrying or (self._watched.trouble() if self._watched is not None else None)

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


def _bytes_of(batches: Iterable[pa.RecordBatch], report: PartReport) -> int:
    in_hand: int = sum(batch.nbytes for batch in batches)
    return in_hand + report.bytes


def _summed(reports: list[PartReport]) -> PartReport:
    return PartReport(
        sum(report.rows for report in reports),
        sum(report.refused for report in reports),
        tuple(bad for report in reports for bad in report.bad),
        counts_of(reports),
    )


def _joined(slices: list[Slice]) -> tuple[Slice, ...]:
    """Consecutive slices of one state key as one."""
    joined: dict[str, Slice] = {}
    for s in slices:
        before = joined.get(s.key)
        joined[s.key] = (
            Slice(s.node, s.key, before.start, s.end, before.parts + s.parts, before.rows + s.rows) if before else s
        )
    return tuple(joined.values())

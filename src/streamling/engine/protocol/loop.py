"""The epoch loop: the protocol that delivers every row once, from top to bottom.

    1 read ahead   each source offers slices
    2 record       their ends are stored as pending
    3 transform    Spark computes what each sink gets
    4 flush        every sink writes and commits; rows set aside are stored
    5 finalize     positions move, the record goes, in one conditional transaction
    6 commit       sources are told

A crash between two steps leaves either nothing (before 4), or a record that says exactly what to compute again.
"""

from __future__ import annotations

import gc
import logging
import secrets
import time
from collections.abc import Mapping, Sequence

from streamling.connector import Epoch, Sink, Source, Transform
from streamling.engine.data.dataflow import Dataflow
from streamling.engine.data.intake import Intake
from streamling.engine.data.results import EpochTooLarge
from streamling.engine.protocol.bad_rows import BadRows
from streamling.engine.protocol.closing import InHand, Timing, closes, patience
from streamling.engine.protocol.context import RunContext
from streamling.engine.protocol.delivery import Delivery
from streamling.engine.protocol.progress import Progress
from streamling.engine.protocol.recovery import Recovery
from streamling.engine.protocol.state.store import patiently
from streamling.engine.protocol.steps import EpochSteps, bounds
from streamling.errors import Fenced

log = logging.getLogger(__name__)

# Sources that hang in a system that does not answer must not use up the time of the last epoch.
_LET_GO_S = 4.0


class EpochLoop:
    """Runs epoch after epoch: waits until one closes, takes it through its steps, recovers from what goes wrong."""

    def __init__(
        self,
        context: RunContext,
        dataflow: Dataflow,
        delivery: Delivery,
        bad_rows: BadRows,
        listeners: Sequence[Source | Transform | Sink],
        progress: Progress,
    ) -> None:
        self._context = context
        self._steps = EpochSteps(context, dataflow, delivery, bad_rows, listeners, progress)
        self._recovery = Recovery(context, self._steps)
        self._last_epoch = 0.0

    @property
    def epochs(self) -> int:
        """Those that were finalized."""
        return self._steps.epochs

    @property
    def rows(self) -> int:
        """Those that were read for finalized epochs."""
        return self._steps.rows

    def run(self) -> None:
        """Until all input is delivered or a stop is asked for. The first error ends it."""
        gc.freeze()  # what the start has made stays; collections look at what epochs make
        self._recovery.resume(self._context.sources)
        while self._run_next():
            pass  # when it returns, nothing keeps the rows of the epoch any more

    def _run_next(self) -> bool:
        """The next epoch from its first step to its last; False when the run is over."""
        following = self._next()  # 1
        if following is None:
            return False
        epoch, intakes = following
        try:
            self._steps.run(epoch, intakes, self._max_bytes(epoch))
        except Fenced as fenced:
            self._recovery.give_way(epoch, fenced)
        except EpochTooLarge as error:
            self._recovery.cut_smaller(epoch, error)
        return True

    def _max_bytes(self, epoch: Epoch) -> int | None:
        """Rows that cannot be read again, or an epoch that cannot be made smaller, must get through as they are."""
        divisible = not epoch.loose_rows and epoch.rows > 1 and bounds(epoch) != self._recovery.cut
        return self._context.capacity.most_bytes if divisible else None

    def _next(self) -> tuple[Epoch, dict[str, Intake]] | None:
        """The next epoch and what the sources give to it; waits until it closes. None when the run is over."""
        while True:
            self._context.stop.heard.clear()  # before looking: what happens while we look ends the wait
            if self._context.stop.requested or any(o.limit_reached for o in self._context.outlets):
                return self._last_rows()
            if self._recovery.redivided():
                self._recovery.resume([source for source in self._context.sources if source.redivided])
            hands = [source.in_hand() for source in self._context.sources]
            hand = _together(hands)
            wishes = [(batch, o.share) for o in self._context.outlets if (batch := o.sink.capabilities.batch)]
            timing = Timing(
                since_last_epoch=time.monotonic() - self._last_epoch,
                checkpoint_interval=self._context.settings.checkpoint_interval_sec,
                batch_interval=self._context.settings.record_batch_interval_ms / 1000,
            )
            if closes(hand, wishes, timing):
                return self._take(only_read=False)
            if all(source.finished for source in self._context.sources):
                return None
            self._context.stop.heard.wait(patience(hand, wishes, timing))

    def _take(self, *, only_read: bool) -> tuple[Epoch, dict[str, Intake]]:
        self._last_epoch = time.monotonic()
        number = patiently(self._context.journal.next_number)
        offered = {source.node: source.take(number, only_read=only_read) for source in self._context.sources}
        intakes = {node: intake for node, intake in offered.items() if intake is not None}
        return self._mint(number, intakes), intakes

    def _last_rows(self) -> tuple[Epoch, dict[str, Intake]] | None:
        """After a stop: rows already read, once, if the policy wants them written; then nothing."""
        self.stop_reading()
        if not self._context.stop.drains:
            return None
        epoch, intakes = self._take(only_read=True)
        return (epoch, intakes) if intakes else None

    def stop_reading(self) -> None:
        """For good: what is in hand can still be taken."""
        deadline = time.monotonic() + _LET_GO_S
        for source in self._context.sources:
            source.stop(within=max(0.0, deadline - time.monotonic()))

    def _mint(self, number: int, intakes: Mapping[str, Intake]) -> Epoch:
        return Epoch(
            id=self._context.new_epoch_id(),
            number=number,
            application=self._context.settings.application_id,
            generation=self._context.generation,
            now_us=time.time_ns() // 1000,
            seed=secrets.randbits(62),
            slices=tuple(s for intake in intakes.values() for s in intake.slices),
            loose_rows=sum(intake.loose_rows for intake in intakes.values()),
            bytes=max((intake.report.bytes for intake in intakes.values()), default=0),
            chunk_rows={node: intake.chunk_rows for node, intake in intakes.items()},
        )


def _together(hands: Sequence[InHand]) -> InHand:
    """All sources as one: an epoch takes from all of them."""
    filled = [hand for hand in hands if hand.rows]
    return InHand(
        rows=sum(hand.rows for hand in hands),
        waited=max((hand.waited for hand in filled), default=0.0),
        full=any(hand.full for hand in hands),
        last=bool(hands) and all(hand.last for hand in hands),
        gathering=max((hand.gathering for hand in filled if hand.gathering is not None), default=None),
    )

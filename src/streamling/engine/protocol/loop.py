"""The epoch loop: the protocol that delivers every row once, from top to bottom.

    1 read ahead   each source offers slices
    2 record       the slices are stored as pending
    3 transform    Spark computes what each sink gets
    4 flush        every sink writes and commits; bad rows are stored
    5 finalize     positions move and the record is removed, in one conditional transaction
    6 commit       sources are notified

A crash between two steps leaves either nothing (before 4), or a record that says exactly what to replay.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping, Sequence

from streamling.connector import Epoch
from streamling.engine.data.intake import Intake
from streamling.engine.data.readahead import ReadAhead
from streamling.engine.data.results import EpochTooLarge
from streamling.engine.process.memory import keep_memory, rare_collections
from streamling.engine.protocol.bounds import bounds
from streamling.engine.protocol.closing import Buffered, Timing, closes, wait_seconds
from streamling.engine.protocol.context import RunContext
from streamling.engine.protocol.recovery import Recovery
from streamling.engine.protocol.state.store import ask_state
from streamling.engine.protocol.steps import EpochSteps
from streamling.errors import Fenced

log = logging.getLogger(__name__)

# Sources that wait for a system that does not answer must not use up the time of the last epoch.
_STOP_READING_S = 4.0


class EpochLoop:
    """Runs epoch after epoch: waits until one closes, runs its steps, recovers from a takeover or a too large epoch."""

    def __init__(self, context: RunContext, steps: EpochSteps) -> None:
        self._context = context
        self._steps = steps
        self._recovery = Recovery(context, steps)
        self._last_epoch = 0.0
        """When the last epoch began."""
        self.idle = False
        """Whether it waits for rows, and none are buffered. Any thread may read it."""

    @property
    def epochs(self) -> int:
        """The number of finalized epochs."""
        return self._steps.epochs

    @property
    def rows(self) -> int:
        """The number of rows read for finalized epochs."""
        return self._steps.rows

    def run(self) -> None:
        """Run until all input is delivered or a stop is requested. The first error ends it."""
        keep_memory()
        with rare_collections():  # the steps collect after some epochs
            self._resume(self._context.sources)
            while self._run_next():
                pass  # nothing refers to the rows of the epoch any more

    def _resume(self, sources: Sequence[ReadAhead]) -> None:
        with self._context.activity.step("recovering the positions of the sources"):
            self._recovery.resume(sources)

    def _run_next(self) -> bool:
        """Run the next epoch from its first step to its last; False when the run is over."""
        began = time.monotonic()
        next_epoch = self._next()  # 1
        if next_epoch is None:
            return False
        epoch, intakes = next_epoch
        try:
            with self._context.activity.step(f"delivering epoch {epoch.number}"):
                self._steps.run(epoch, intakes, self._max_bytes(epoch), waited_s=time.monotonic() - began)
        except Fenced as fenced:
            with self._context.activity.step("recovering after a takeover by another process"):
                self._recovery.handle_takeover(epoch, fenced)
        except EpochTooLarge as error:
            with self._context.activity.step(f"cutting epoch {epoch.number}"):
                self._recovery.cut_smaller(epoch, error)
        return True

    def _max_bytes(self, epoch: Epoch) -> int | None:
        """The memory limit; None for an epoch that cannot be cut, or that has rows which cannot be replayed."""
        divisible = not epoch.loose_rows and epoch.rows > 1 and bounds(epoch) != self._recovery.last_cut
        return self._context.capacity.max_bytes if divisible else None

    def _next(self) -> tuple[Epoch, dict[str, Intake]] | None:
        """The next epoch and what the sources give to it; waits until it closes. None when the run is over."""
        while True:
            self._context.stop.wakeup.clear()  # before the checks: what happens during them ends the wait below
            if self._context.stop.requested or any(o.limit_reached for o in self._context.outlets):
                return self._last_rows()
            if self._recovery.assignment_changed():
                self._resume([source for source in self._context.sources if source.assignment_changed])
            buffered = _combine([source.buffered() for source in self._context.sources])
            policies = [(policy, o.share) for o in self._context.outlets if (policy := o.sink.capabilities.batch)]
            policies += [(policy, 1.0) for policy in self._context.transform_policies]
            timing = Timing(
                since_last_epoch=time.monotonic() - self._last_epoch,
                checkpoint_interval=self._context.settings.checkpoint_interval_sec,
                batch_interval=self._context.settings.record_batch_interval_ms / 1000,
            )
            if closes(buffered, policies, timing):
                return self._take(only_read=False)
            if all(source.finished for source in self._context.sources):
                return None
            self.idle = not buffered.rows
            self._context.stop.wakeup.wait(wait_seconds(buffered, policies, timing))
            self.idle = False

    def _take(self, *, only_read: bool) -> tuple[Epoch, dict[str, Intake]]:
        self._last_epoch = time.monotonic()
        with self._context.activity.step("reading the number of the epoch from the state backend") as note_trouble:
            number = ask_state(self._context.journal.next_number, note_trouble)
        with self._context.activity.step("beginning an epoch"):
            by_node = {source.node: source.take(number, only_read=only_read) for source in self._context.sources}
            intakes = {node: intake for node, intake in by_node.items() if intake is not None}
            return self._make_epoch(number, intakes), intakes

    def _last_rows(self) -> tuple[Epoch, dict[str, Intake]] | None:
        """After a stop: the rows already read, if the drain policy wants them written; None in the next call."""
        self.stop_reading()
        if not self._context.stop.drains:
            return None
        epoch, intakes = self._take(only_read=True)
        return (epoch, intakes) if intakes else None

    def stop_reading(self) -> None:
        """Read no further in this run. What is buffered can still be taken."""
        deadline = time.monotonic() + _STOP_READING_S
        for source in self._context.sources:
            source.stop(within=max(0.0, deadline - time.monotonic()))

    def _make_epoch(self, number: int, intakes: Mapping[str, Intake]) -> Epoch:
        slices = tuple(s for intake in intakes.values() for s in intake.slices)
        lookups, journal = self._context.lookups, self._context.journal
        loose_rows = sum(intake.loose_rows for intake in intakes.values())
        return Epoch(
            id=self._context.new_epoch_id(),
            number=number,
            application=self._context.settings.application_id,
            generation=self._context.generation,
            now_us=self._context.now_us(slices),
            seed=secrets.randbits(62),
            slices=slices,
            loose_rows=loose_rows,
            previous=ask_state(self._context.journal.last_loose) if loose_rows and self._context.same_rows else 0,
            bytes=max((intake.report.bytes for intake in intakes.values()), default=0),
            chunk_rows={node: intake.chunk_rows for node, intake in intakes.items()},
            lookups=lookups.begin_epoch(lambda: ask_state(journal.lookup_versions)) if lookups is not None else {},
        )


def _combine(sources: Sequence[Buffered]) -> Buffered:
    """All sources as one: an epoch takes from all of them."""
    filled = [source for source in sources if source.rows]
    return Buffered(
        rows=sum(source.rows for source in sources),
        waited=max((source.waited for source in filled), default=0.0),
        full=any(source.full for source in sources),
        last=bool(sources) and all(source.last for source in sources),
        gathering=max((source.gathering for source in filled if source.gathering is not None), default=None),
    )

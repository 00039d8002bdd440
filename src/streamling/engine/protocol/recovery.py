"""Recovery: epochs that were interrupted or abandoned.

On start and on takeover every exactly-once sink is asked whether it has the recorded epoch. An epoch that some sinks
have is replayed for the others; the rows of one that no sink has are read again, in smaller epochs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller

from streamling.connector import Applied, Epoch, Guarantee, Json, Sink, Slice
from streamling.engine.data.intake import Intake
from streamling.engine.data.readahead import ReadAhead
from streamling.engine.data.results import EpochTooLarge
from streamling.engine.protocol.activity import OPENING
from streamling.engine.protocol.bounds import Bounds, bounds
from streamling.engine.protocol.context import RunContext
from streamling.engine.protocol.delivery import Outlet
from streamling.engine.protocol.pending import Pending
from streamling.engine.protocol.state.store import ask_state
from streamling.engine.protocol.steps import EpochSteps
from streamling.errors import STATE_MOVED, Fenced, PermanentError
from streamling.plan.replay import LETTERS_PREFIX

log = logging.getLogger(__name__)

# Fenced this often in a row while no position moves: the target is ahead of the state, and will stay so.
_FENCED_WITHOUT_PROGRESS = 3
# An epoch whose replays were interrupted this often is read again in smaller ones.
_MAX_REPLAYS = 10


class Recovery:
    """Brings sources and sinks back to the same position."""

    def __init__(self, context: RunContext, steps: EpochSteps) -> None:
        self._context = context
        self._steps = steps
        self._fenced_at: tuple[int, Mapping[str, Json], list[Pending]] | None = None
        """As of the last time this process was fenced: epochs finalized, positions, records of other processes."""
        self._fenced_without_progress = 0
        self.last_cut: Bounds = ()
        """The bounds of the last epoch that was too large. One with the same bounds again cannot be made smaller."""

    def resume(self, sources: Sequence[ReadAhead]) -> None:
        """Recover the epochs that an earlier owner of the keys has left, then read from the stored positions on."""
        while True:
            for source in sources:
                source.take_assignment()
            try:
                for pending in self._find_pending():
                    self._recover(pending)
                break
            except Fenced as fenced:
                self._steps.give_up()
                self._check_progress(fenced)
                self._wait_for_other_owner()
        positions = ask_state(self._context.journal.positions)
        for source in sources:
            with self._context.activity.step(OPENING, source.node):
                source.start(positions)
        if not all(key.startswith(LETTERS_PREFIX) for key in positions):
            log.info("resuming from the stored positions")

    def _find_pending(self) -> list[Pending]:
        return ask_state(
            lambda: self._context.journal.pending(
                self._context.settings.application_id, self._context.generation, self._owns
            )
        )

    def _owns(self, slice_: Slice) -> bool:
        return any(source.node == slice_.node and source.owns(slice_.key) for source in self._context.sources)

    def _recover(self, pending: Pending) -> None:
        """Ask every sink before anything is replayed; a replay has the same rows.

        If no sink has anything, the rows are read again in smaller epochs: whatever ended the process must not be
        repeated forever. Before that every sink makes sure that the old epoch cannot be committed late.
        """
        epoch = pending.epoch
        answers = self._ask(lambda sink: sink.applied(epoch.slices))
        if Applied.UNKNOWN in answers.values() and self._is_partly_applied(epoch):
            for part in pending.split():
                self._recover(part)
            return
        if all(answer is Applied.NO for answer in answers.values()) and not self._is_repeated(pending):
            answers |= self._ask(lambda sink: sink.abandon(epoch))
        if all(answer is Applied.NO for answer in answers.values()) and not self._is_repeated(pending):
            log.info("epoch %d was interrupted before any sink had written it; reading its rows again", epoch.number)
            ask_state(lambda: self._context.journal.drop(pending))
            self._context.capacity.shrink(epoch, crashed=True)
            return
        missing = [o for o in self._context.outlets if answers.get(o.node.ref) is not Applied.YES]
        self._replay(pending, missing)

    def _is_repeated(self, pending: Pending) -> bool:
        """Whether an epoch that no sink has is replayed as it was all the same, because requests were sent for it that
        another system must recognise. Not forever: it may be the epoch itself that ends the process."""
        return self._context.same_rows and bounds(pending.epoch) != self.last_cut and pending.replays < _MAX_REPLAYS

    def _is_partly_applied(self, epoch: Epoch) -> bool:
        """Whether a sink has some slices of the epoch and lacks others: several owners have written them."""
        answers = [self._ask(methodcaller("applied", (s,))) for s in epoch.slices]
        return any(len({answer.get(o.node.ref) for answer in answers}) > 1 for o in self._context.outlets)

    def _ask(self, question: Callable[[Sink], Applied]) -> dict[str, Applied]:
        """The answer of every exactly-once sink, however long it takes: its target may be down as at any other time, or
        locked by the very owner in question. At-least-once sinks are not asked: they may get rows twice anyway, and
        must not keep an epoch that was too large from being cut."""
        exact = [o for o in self._context.outlets if o.sink.capabilities.guarantee is Guarantee.EXACTLY_ONCE]
        return {outlet.node.ref: self._ask_one(outlet, question) for outlet in exact}

    def _ask_one(self, outlet: Outlet, question: Callable[[Sink], Applied]) -> Applied:
        with self._context.activity.step("asking for the epochs it has", outlet.node.id):
            return self._context.retry(partial(question, outlet.sink), f"sink '{outlet.name}'")

    def _replay(self, pending: Pending, outlets: Sequence[Outlet]) -> None:
        """Deliver a recorded epoch to the sinks that lack it, with the same rows, under a new id."""
        new_id = self._context.new_epoch_id()
        pending = ask_state(lambda: self._context.journal.rename(pending, new_id))
        epoch = pending.epoch
        names = ", ".join(o.name for o in outlets) or "no sink, all have it"
        log.info("epoch %d was interrupted; replaying it for: %s", epoch.number, names)
        if pending.plan != self._context.fingerprint and outlets:
            log.warning(
                "the pipeline has changed since epoch %d; its rows are computed with the current pipeline", epoch.number
            )
        self._steps.replay(pending, partial(self._read_again, epoch), outlets, self._recount(pending, outlets))

    def _read_again(self, epoch: Epoch) -> dict[str, Intake]:
        slices = {source: tuple(s for s in epoch.slices if s.node == source.node) for source in self._context.sources}
        return {
            source.node: source.replay(source_slices, epoch.chunk_rows.get(source.node))
            for source, source_slices in slices.items()
            if source_slices
        }

    def _recount(self, pending: Pending, outlets: Sequence[Outlet]) -> list[Outlet]:
        """The other sinks, which have the epoch: the process that delivered it to them has not counted it, because it
        has not finalized it. Rows of another plan are not those that they have."""
        others = [outlet for outlet in self._context.outlets if outlet not in outlets]
        for outlet in others:
            if outlet.flushed_bounds != bounds(pending.epoch):
                outlet.flushed = None  # of an epoch that another process has finalized, or has a part of
        same_plan = pending.plan == self._context.fingerprint
        return [outlet for outlet in others if same_plan and self._steps.can_recount(outlet, outlets)]

    def handle_takeover(self, epoch: Epoch, fenced: Fenced) -> None:
        """Another process owns the slices now: drop the epoch, wait for that process, resume from stored positions."""
        for outlet in self._context.outlets:
            outlet.sink.abort(epoch)
        self._steps.give_up()
        self._check_progress(fenced)
        self._wait_for_other_owner()
        if self._context.stop.requested:  # leave the rest to the other owner: what is buffered follows the lost rows
            for source in self._context.sources:
                source.discard()
        else:
            self.resume(self._context.sources)

    def cut_smaller(self, epoch: Epoch, error: EpochTooLarge) -> None:
        """Abandon the epoch, unless a sink has it already, and read its rows again in smaller ones."""
        for outlet in self._context.outlets:
            outlet.sink.abort(epoch)
        self._steps.give_up()
        log.info("epoch %d is too large: %s; its rows are read again in smaller epochs", epoch.number, error)
        self.last_cut = bounds(epoch)
        self._context.capacity.shrink(epoch, crashed=False)
        # Buffered rows of a source that cannot replay them stay; none of them is in this epoch.
        replayable = [source for source in self._context.sources if source.source.capabilities.replayable]
        for source in replayable:
            source.discard()
        self.resume(replayable)

    def _check_progress(self, fenced: Fenced) -> None:
        """Raises PermanentError if this process is fenced repeatedly while no other process moves a position."""
        log.warning("an epoch was abandoned: %s", fenced)
        positions = ask_state(self._context.journal.positions)
        owned = {
            key: value for key, value in positions.items() if not any(s.is_foreign(key) for s in self._context.sources)
        }
        situation = (self._steps.epochs, owned, self._foreign_records())
        self._fenced_without_progress = self._fenced_without_progress + 1 if situation == self._fenced_at else 0
        self._fenced_at = situation
        if self._fenced_without_progress >= _FENCED_WITHOUT_PROGRESS:
            raise PermanentError(
                STATE_MOVED,
                f"{fenced.message}; but no other process moves the stored positions: sink and state disagree. Either "
                "the target or the state has lost its last commits, or is an older copy, or the sink was not in the "
                "pipeline for a while",
                node=fenced.node,
                hint=_disagreement_hint(fenced.node),
            )

    def _wait_for_other_owner(self) -> None:
        """While another owner works, its records change; records that do not change have no live owner."""
        takeover_s = self._context.settings.epoch.takeover_ms / 1000
        deadline = time.monotonic() + takeover_s
        records = self._foreign_records()
        while records and time.monotonic() < deadline and not self._context.stop.requested:
            if self.assignment_changed():
                return
            self._context.stop.wakeup.wait(0.2)
            self._context.stop.wakeup.clear()
            latest = self._foreign_records()
            if latest != records:
                records = latest
                deadline = time.monotonic() + takeover_s

    def assignment_changed(self) -> bool:
        return any(source.assignment_changed for source in self._context.sources)

    def _foreign_records(self) -> list[Pending]:
        """Records that this process has not made."""
        return [pending for pending in self._find_pending() if pending.epoch.id not in self._context.epoch_ids]


def _disagreement_hint(sink: str | None) -> str:
    to = f" --to {sink}" if sink else " --to SINK"
    return (
        f"after lost commits, or with an older copy: `streamling state rewind{to}` continues from the positions in the "
        "target, and shows first what is repeated; if the sink was not in the pipeline: rename it, and it continues "
        "from the stored positions"
    )

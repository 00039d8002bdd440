"""Recovery: what an interrupted epoch has left, and epochs that are given up.

On start and on takeover every exactly-once sink is asked whether it has the recorded epoch. What some sinks have and
others lack is replayed for those; what no sink has is read again, in smaller epochs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller

from streamling.connector import Applied, Epoch, Guarantee, Json, Sink, Slice
from streamling.engine.data.readahead import ReadAhead
from streamling.engine.data.results import EpochTooLarge
from streamling.engine.protocol.context import RunContext
from streamling.engine.protocol.delivery import Outlet
from streamling.engine.protocol.pending import Pending
from streamling.engine.protocol.state.store import patiently
from streamling.engine.protocol.steps import Bounds, EpochSteps, bounds
from streamling.errors import STATE_MOVED, Fenced, PermanentError

log = logging.getLogger(__name__)

# A record of another owner that has not changed for this long belongs to a dead or suspended process.
_TAKEOVER_S = 10.0
# Fenced that often in a row while no position moves: the target is ahead of the state, for good.
_FENCED_IN_VAIN = 3


class Recovery:
    """Brings sources and sinks back to one position."""

    def __init__(self, context: RunContext, steps: EpochSteps) -> None:
        self._context = context
        self._steps = steps
        self._fenced_at: tuple[int, Mapping[str, Json], list[Pending]] | None = None
        """When it was last fenced: epochs finalized, positions, records of other processes."""
        self._fenced_in_vain = 0
        self.cut: Bounds = ()
        """Of the last epoch that was too large. One that comes again as it was cannot be made smaller."""

    def resume(self, sources: Sequence[ReadAhead]) -> None:
        """Settle what an earlier owner left of their keys, then read on from the stored positions."""
        while True:
            for source in sources:
                source.divide()
            try:
                for pending in self._unfinished():
                    self._settle(pending)
                break
            except Fenced as fenced:
                self._check_progress(fenced)
                self._wait_for_other_owner()
        positions = patiently(self._context.journal.positions)
        for source in sources:
            source.start(positions)
        if positions:
            log.info("reading on from the stored positions")

    def _unfinished(self) -> list[Pending]:
        return patiently(
            lambda: self._context.journal.pending(
                self._context.settings.application_id, self._context.generation, self._mine
            )
        )

    def _mine(self, slice_: Slice) -> bool:
        return any(source.node == slice_.node and source.owns(slice_.key) for source in self._context.sources)

    def _settle(self, pending: Pending) -> None:
        """Ask every sink before anything is repeated; what is repeated is repeated as it was.

        Where no sink has anything the rows are cut anew, in smaller epochs: whatever ended the process is not
        tried in the same way for ever. Before that every sink makes sure the old epoch cannot come late.
        """
        epoch = pending.epoch
        answers = self._ask(lambda sink: sink.applied(epoch.slices))
        if Applied.UNKNOWN in answers.values() and self._disagree(epoch):
            for part in pending.apart():
                self._settle(part)
            return
        if all(answer is Applied.NO for answer in answers.values()):
            answers |= self._ask(lambda sink: sink.abandon(epoch))
        if all(answer is Applied.NO for answer in answers.values()):
            log.info("epoch %d was interrupted before any sink had written it; reading its rows again", epoch.number)
            patiently(lambda: self._context.journal.drop(pending))
            self._context.capacity.shrink(epoch, crashed=True)
            return
        missing = [o for o in self._context.outlets if answers.get(o.node.ref) is not Applied.YES]
        self._replay(pending, missing)

    def _disagree(self, epoch: Epoch) -> bool:
        """Whether a sink has some slices of the epoch and lacks others: several owners have been at them."""
        answers = [self._ask(methodcaller("applied", (s,))) for s in epoch.slices]
        return any(len({answer.get(o.node.ref) for answer in answers}) > 1 for o in self._context.outlets)

    def _ask(self, question: Callable[[Sink], Applied]) -> dict[str, Applied]:
        """What every exactly-once sink says, however long it takes: its target may be away as at any other time, or
        locked by the very owner it is asked about. The others are not asked: they may have rows twice anyway, and must
        not keep an epoch that was too large from being cut."""
        return {
            outlet.node.ref: self._context.retry(partial(question, outlet.sink), f"sink '{outlet.name}'")
            for outlet in self._context.outlets
            if outlet.sink.capabilities.guarantee is Guarantee.EXACTLY_ONCE
        }

    def _replay(self, pending: Pending, outlets: Sequence[Outlet]) -> None:
        """Deliver a recorded epoch to the sinks that lack it, with the same rows, under an id of its own."""
        new_id = self._context.new_epoch_id()
        pending = patiently(lambda: self._context.journal.rename(pending, new_id))
        epoch = pending.epoch
        names = ", ".join(o.name for o in outlets) or "no sink, all have it"
        log.info("epoch %d was interrupted; replaying it for: %s", epoch.number, names)
        if pending.plan != self._context.fingerprint and outlets:
            log.warning("the pipeline has changed since epoch %d; its rows are computed as it is now", epoch.number)
        slices = {source: tuple(s for s in epoch.slices if s.node == source.node) for source in self._context.sources}
        # Also when no sink lacks anything: the bad rows may not have been stored yet.
        computed = bool(outlets) or self._steps.keeps_letters
        intakes = {
            source.node: source.replay(mine, epoch.chunk_rows.get(source.node))
            for source, mine in slices.items()
            if mine and computed
        }
        self._steps.replay(pending, intakes, outlets)

    def give_way(self, epoch: Epoch, fenced: Fenced) -> None:
        """Another process has taken over: forget the epoch, look where things stand now, go on from there."""
        for outlet in self._context.outlets:
            outlet.sink.abort(epoch)
        self._check_progress(fenced)
        self._wait_for_other_owner()
        if self._context.stop.requested:  # leave the rest to the other owner; what we hold comes after what we lost
            for source in self._context.sources:
                source.discard()
        else:
            self.resume(self._context.sources)

    def cut_smaller(self, epoch: Epoch, error: EpochTooLarge) -> None:
        """Give the epoch up, unless a sink has it already, and read its rows again in smaller ones."""
        for outlet in self._context.outlets:
            outlet.sink.abort(epoch)
        log.info("epoch %d is too large: %s; its rows are read again in smaller epochs", epoch.number, error)
        self.cut = bounds(epoch)
        self._context.capacity.shrink(epoch, crashed=False)
        # What a source holds that cannot give it a second time stays; nothing of it is in this epoch.
        replayable = [source for source in self._context.sources if source.source.capabilities.replayable]
        for source in replayable:
            source.discard()
        self.resume(replayable)

    def _check_progress(self, fenced: Fenced) -> None:
        """Being fenced again and again while no position moves means that nobody else is there to move them."""
        log.warning("an epoch is abandoned: %s", fenced)
        positions = patiently(self._context.journal.positions)
        owned = {
            key: value for key, value in positions.items() if not any(s.foreign(key) for s in self._context.sources)
        }
        seen = (self._steps.epochs, owned, self._others())
        self._fenced_in_vain = self._fenced_in_vain + 1 if seen == self._fenced_at else 0
        self._fenced_at = seen
        if self._fenced_in_vain >= _FENCED_IN_VAIN:
            raise PermanentError(
                STATE_MOVED,
                f"{fenced.message}; but no other process moves the stored positions: sink and state disagree. Either "
                "the state is older than what the sink holds, or the sink was out of the pipeline for a while",
                node=fenced.node,
                hint="an older state: restore the newer one, or `streamling state reset` and an empty target; "
                "a sink that was away: give it a new name, and it goes on from the stored positions",
            )

    def _wait_for_other_owner(self) -> None:
        """While another owner works, its record changes; one that stays as it is belongs to nobody."""
        deadline = time.monotonic() + _TAKEOVER_S
        seen = self._others()
        while seen and time.monotonic() < deadline and not self._context.stop.requested and not self.redivided():
            self._context.stop.heard.wait(0.2)
            self._context.stop.heard.clear()
            now = self._others()
            if now != seen:
                seen, deadline = now, time.monotonic() + _TAKEOVER_S

    def redivided(self) -> bool:
        return any(source.redivided for source in self._context.sources)

    def _others(self) -> list[Pending]:
        """Records that this process has not made."""
        return [pending for pending in self._unfinished() if pending.epoch.id not in self._context.epoch_ids]

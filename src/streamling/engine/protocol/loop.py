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
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller

from streamling.connector import Applied, Epoch, Guarantee, Json, Sink, Slice, Source, Transform
from streamling.engine.data.capacity import Capacity
from streamling.engine.data.dataflow import Dataflow
from streamling.engine.data.intake import Intake
from streamling.engine.data.readahead import ReadAhead
from streamling.engine.data.results import EpochTooLarge
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.bad_rows import BadRows, Rejects, Stage
from streamling.engine.protocol.closing import InHand, Timing, closes, patience
from streamling.engine.protocol.delivery import Delivery, Outlet
from streamling.engine.protocol.pending import Journal, Pending
from streamling.engine.protocol.progress import Progress
from streamling.engine.protocol.state.store import patiently
from streamling.errors import STATE_MOVED, Fenced, PermanentError
from streamling.plan.pipeline import Plan
from streamling.retry import retry
from streamling.spec.settings import Settings
from streamling.testing.crash import crash_point

log = logging.getLogger(__name__)

# Spark's side of a DataFrame is freed when Python's collector finds its proxy, and nothing else would run it often.
_COLLECT_EVERY = 50
_COLLECT_BYTES = 32 << 20
# A record of another owner that has not changed for this long belongs to a dead or suspended process.
_TAKEOVER_S = 10.0
# Fenced that often in a row with nobody moving anything: the target is ahead of the state, for good.
_FENCED_IN_VAIN = 3
# Sources that hang in a system that does not answer must not use up the time of the last epoch.
_LET_GO_S = 4.0


class EpochLoop:
    """One run of a plan over opened sources and sinks."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        generation: str,
        journal: Journal,
        dataflow: Dataflow,
        delivery: Delivery,
        bad_rows: BadRows,
        capacity: Capacity,
        sources: Sequence[ReadAhead],
        outlets: Sequence[Outlet],
        listeners: Sequence[Source | Transform | Sink],
        stop: StopRequest,
        progress: Progress,
    ) -> None:
        self._fingerprint = plan.fingerprint
        self._settings = settings
        self._generation = generation
        self._journal = journal
        self._dataflow = dataflow
        self._delivery = delivery
        self._capacity = capacity
        self._sources = sources
        self._outlets = outlets
        self._stop = stop
        self._progress = progress
        self._bad_rows = bad_rows
        self._listeners = listeners
        self._uncollected_bytes = 0
        self._cut: Bounds = ()
        """Of the last epoch that was too large. One that comes again as it was cannot be made smaller."""
        self._last_epoch = 0.0
        self._fenced_at: tuple[Mapping[str, Json], list[Pending]] | None = None
        self._fenced_in_vain = 0
        self._own: deque[str] = deque(maxlen=16)  # only the latest of our records can still be there
        self.epochs = 0
        self.rows = 0

    def run(self) -> None:
        """Until all input is delivered or a stop is asked for. The first error ends it."""
        gc.freeze()  # what the start has made stays; collections look at what epochs make
        self._resume(self._sources)
        while self._run_next():
            pass  # when it returns, nothing keeps the rows of the epoch any more

    def _run_next(self) -> bool:
        """The next epoch from its first step to its last; False when the run is over."""
        following = self._next()  # 1
        if following is None:
            return False
        epoch, intakes = following
        try:
            self._run_epoch(epoch, intakes)
        except Fenced as fenced:
            self._give_way(epoch, fenced)
        except EpochTooLarge as error:
            self._cut_smaller(epoch, error)
        return True

    def _run_epoch(self, epoch: Epoch, taken: Mapping[str, Intake]) -> None:
        began = time.monotonic()
        record = patiently(lambda: self._journal.record(epoch, self._fingerprint))  # 2
        crash_point("after-record")
        # Rows that cannot be read again, or are one already, must get through as they are.
        divisible = not epoch.loose_rows and epoch.rows > 1 and _bounds(epoch) != self._cut
        most_bytes = self._capacity.most_bytes if divisible else None
        rows = self._deliver(record.epoch, taken, self._outlets, most_bytes)
        self._finish(record, rows, began)

    def _deliver(
        self, epoch: Epoch, taken: Mapping[str, Intake], outlets: Sequence[Outlet], most_bytes: int | None
    ) -> int:
        """Returns the rows that were read. Beyond `most_bytes` in this process it raises EpochTooLarge."""
        wanted = [outlet.node for outlet in outlets]
        results = self._dataflow.compute(epoch, taken, wanted=wanted, most_bytes=most_bytes)  # 3
        try:
            self._delivery.flush(results, outlets)  # 4
            rejects = self._dataflow.rejects(results, taken)
            counted, collected_bytes = dict(results.counted), results.collected_bytes
            self._uncollected_bytes += collected_bytes
        finally:
            results.release()
        self._set_aside(epoch, rejects, taken, outlets)
        rows = sum(rejects[node].report.rows for node in taken)
        for source in self._sources:
            if source.node in taken:
                source.delivered(rejects[source.node].report, collected_bytes / max(rows, 1))
        self._dataflow.count(rejects)
        given = counted | {node: reject.report.rows for node, reject in rejects.items()}
        self._progress.epoch_passed(given)
        return rows

    def _set_aside(
        self,
        epoch: Epoch,
        rejects: Mapping[str, Rejects],
        taken: Mapping[str, Intake],
        outlets: Sequence[Outlet],
    ) -> None:
        """Bad rows are durable, or counted, before the epoch is finalized."""
        for node, rejected in rejects.items():
            self._keep(epoch, node, Stage.DECODE if node in taken else Stage.TRANSFORM, rejected)
        for outlet in outlets:
            self._bad_rows.note(outlet.node.id, len(outlet.bad_rows), outlet.bad_rows)
            outlet.bad_rows = ()

    def _keep(self, epoch: Epoch, node: str, stage: Stage, rejected: Rejects) -> None:
        retry(
            lambda: self._bad_rows.set_aside(epoch, node, stage, rejected),
            what=f"bad rows of '{node}'",
            stopping=lambda: self._stop.requested,
            sleep=self._stop.pause,
        )

    def _finish(self, record: Pending, rows: int, began: float) -> None:
        epoch = record.epoch
        crash_point("before-finalize")
        patiently(lambda: self._journal.finalize(record))  # 5
        crash_point("after-finalize")
        crash_point("before-group-commit")
        for source in self._sources:  # 6
            mine = [s for s in epoch.slices if s.node == source.node]
            if mine:
                self._tell(source, mine)
        for listener in self._listeners:
            listener.finalized(epoch.number)
        self._account(epoch, rows, time.monotonic() - began)

    def _tell(self, source: ReadAhead, slices: Sequence[Slice]) -> None:
        try:
            source.source.committed(slices)
        except Exception as error:  # the rows are delivered and recorded; what the source does with it is extra
            log.warning("source %s could not take note of what is delivered: %s", source.node, error)

    # Taking rows

    def _next(self) -> tuple[Epoch, dict[str, Intake]] | None:
        """The next epoch and what the sources give to it; waits until it closes. None when the run is over."""
        while True:
            self._stop.heard.clear()  # before looking: what happens while we look ends the wait
            if self._stop.requested or any(o.limit_reached for o in self._outlets):
                return self._last_rows()
            if self._redivided():
                self._resume([source for source in self._sources if source.redivided])
            hands = [source.in_hand() for source in self._sources]
            hand = _together(hands)
            wishes = [(batch, o.share) for o in self._outlets if (batch := o.sink.capabilities.batch)]
            timing = Timing(
                since_last_epoch=time.monotonic() - self._last_epoch,
                checkpoint_interval=self._settings.checkpoint_interval_sec,
                batch_interval=self._settings.record_batch_interval_ms / 1000,
            )
            if closes(hand, wishes, timing):
                return self._take(only_read=False)
            if all(source.finished for source in self._sources):
                return None
            self._stop.heard.wait(patience(hand, wishes, timing))

    def _take(self, *, only_read: bool) -> tuple[Epoch, dict[str, Intake]]:
        self._last_epoch = time.monotonic()
        number = patiently(self._journal.next_number)
        given = {source.node: source.take(number, only_read=only_read) for source in self._sources}
        taken = {node: t for node, t in given.items() if t is not None}
        return self._mint(number, taken), taken

    def _last_rows(self) -> tuple[Epoch, dict[str, Intake]] | None:
        """After a stop: rows already read, once, if the policy wants them written; then nothing."""
        self.stop_reading()
        if not self._stop.drains:
            return None
        epoch, taken = self._take(only_read=True)
        return (epoch, taken) if taken else None

    def stop_reading(self) -> None:
        """For good: what is in hand can still be taken."""
        deadline = time.monotonic() + _LET_GO_S
        for source in self._sources:
            source.stop(within=max(0.0, deadline - time.monotonic()))

    def _mint(self, number: int, taken: Mapping[str, Intake]) -> Epoch:
        return Epoch(
            id=self._new_id(),
            number=number,
            application=self._settings.application_id,
            generation=self._generation,
            now_us=time.time_ns() // 1000,
            seed=secrets.randbits(62),
            slices=tuple(s for t in taken.values() for s in t.slices),
            loose_rows=sum(intake.loose_rows for intake in taken.values()),
            bytes=max((intake.report.bytes for intake in taken.values()), default=0),
            chunk_rows={node: intake.chunk_rows for node, intake in taken.items()},
        )

    # Recovery

    def _resume(self, sources: Sequence[ReadAhead]) -> None:
        """Settle what an earlier owner left of their keys, then read on from the stored positions."""
        while True:
            for source in sources:
                source.divide()
            try:
                for pending in self._unfinished():
                    self._settle(pending)
                break
            except Fenced as fenced:
                self._note(fenced)
                self._wait_for_other_owner()
        positions = patiently(self._journal.positions)
        for source in sources:
            source.start(positions)
        if positions:
            log.info("reading on from the stored positions")

    def _unfinished(self) -> list[Pending]:
        return patiently(lambda: self._journal.pending(self._settings.application_id, self._generation, self._mine))

    def _mine(self, slice_: Slice) -> bool:
        return any(source.node == slice_.node and source.owns(slice_.key) for source in self._sources)

    def _settle(self, pending: Pending) -> None:
        """Ask every sink before anything is repeated; what is repeated is repeated as it was.

        Where no sink has anything the rows are cut anew, in smaller epochs: whatever ended the process is not
        tried in the same way for ever. Before that every sink makes sure the old epoch cannot come late.
        """
        epoch = pending.epoch
        answers = self._asked(lambda sink: sink.applied(epoch.slices))
        if Applied.UNKNOWN in answers.values() and self._divided(epoch):
            for part in pending.apart():
                self._settle(part)
            return
        if all(answer is Applied.NO for answer in answers.values()):
            answers |= self._asked(lambda sink: sink.abandon(epoch))
        if all(answer is Applied.NO for answer in answers.values()):
            log.info("epoch %d was interrupted before any sink had written it; reading its rows again", epoch.number)
            patiently(lambda: self._journal.drop(pending))
            self._capacity.shrink(epoch, crashed=True)
            return
        missing = [o for o in self._outlets if answers.get(o.node.ref) is not Applied.YES]
        self._repeat(pending, missing)

    def _divided(self, epoch: Epoch) -> bool:
        """Whether a sink has some slices of the epoch and lacks others: several owners have been at them."""
        answers = [self._asked(methodcaller("applied", (s,))) for s in epoch.slices]
        return any(len({answer.get(o.node.ref) for answer in answers}) > 1 for o in self._outlets)

    def _asked(self, question: Callable[[Sink], Applied]) -> dict[str, Applied]:
        """What every exactly-once sink says, however long it takes: its target may be away as at any other time, or
        locked by the very owner it is asked about. The others are not asked: they may have rows twice anyway, and must
        not keep an epoch that was too large from being cut."""
        return {
            outlet.node.ref: retry(
                partial(question, outlet.sink),
                what=f"sink '{outlet.name}'",
                stopping=lambda: self._stop.requested,
                sleep=self._stop.pause,
            )
            for outlet in self._outlets
            if outlet.sink.capabilities.guarantee is Guarantee.EXACTLY_ONCE
        }

    def _repeat(self, pending: Pending, outlets: Sequence[Outlet]) -> None:
        """Deliver a recorded epoch to the sinks that lack it, with the same rows, under an id of its own."""
        new_id = self._new_id()
        pending = patiently(lambda: self._journal.rename(pending, new_id))
        epoch = pending.epoch
        names = ", ".join(o.name for o in outlets) or "no sink, all have it"
        log.info("epoch %d was interrupted; replaying it for: %s", epoch.number, names)
        began, rows = time.monotonic(), 0
        if pending.plan != self._fingerprint and outlets:
            log.warning("the pipeline has changed since epoch %d; its rows are computed as it is now", epoch.number)
        slices = {source: tuple(s for s in epoch.slices if s.node == source.node) for source in self._sources}
        # Also when no sink lacks anything: the bad rows may not have been stored yet.
        if outlets or self._bad_rows.keeps_letters:
            taken = {
                source.node: source.replay(mine, epoch.chunk_rows.get(source.node))
                for source, mine in slices.items()
                if mine
            }
            rows = self._deliver(epoch, taken, outlets, None)
        self._finish(pending, rows, began)

    def _give_way(self, epoch: Epoch, fenced: Fenced) -> None:
        """Another process has taken over: forget the epoch, look where things stand now, go on from there."""
        for outlet in self._outlets:
            outlet.sink.abort(epoch)
        self._note(fenced)
        self._wait_for_other_owner()
        if self._stop.requested:  # leave the rest to the other owner; what we hold comes after what we lost
            for source in self._sources:
                source.discard()
        else:
            self._resume(self._sources)

    def _cut_smaller(self, epoch: Epoch, error: EpochTooLarge) -> None:
        """Give the epoch up, unless a sink has it already, and read its rows again in smaller ones."""
        for outlet in self._outlets:
            outlet.sink.abort(epoch)
        log.info("epoch %d is too large: %s; its rows are read again in smaller epochs", epoch.number, error)
        self._cut = _bounds(epoch)
        self._capacity.shrink(epoch, crashed=False)
        # What a source holds that cannot give it a second time stays; nothing of it is in this epoch.
        replayable = [source for source in self._sources if source.source.capabilities.replayable]
        for source in replayable:
            source.discard()
        self._resume(replayable)

    def _note(self, fenced: Fenced) -> None:
        """Being fenced again and again while no position moves means that nobody else is there to move them."""
        log.warning("an epoch is abandoned: %s", fenced)
        positions = patiently(self._journal.positions)
        owned = {key: value for key, value in positions.items() if not any(s.foreign(key) for s in self._sources)}
        seen = (owned, self._others())
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
        while seen and time.monotonic() < deadline and not self._stop.requested and not self._redivided():
            self._stop.heard.wait(0.2)
            self._stop.heard.clear()
            now = self._others()
            if now != seen:
                seen, deadline = now, time.monotonic() + _TAKEOVER_S

    def _redivided(self) -> bool:
        return any(source.redivided for source in self._sources)

    def _others(self) -> list[Pending]:
        """Records that this process has not made."""
        return [pending for pending in self._unfinished() if pending.epoch.id not in self._own]

    def _new_id(self) -> str:
        self._own.append(secrets.token_hex(16))
        return self._own[-1]

    # Bookkeeping

    def _account(self, epoch: Epoch, rows: int, seconds: float) -> None:
        self.epochs += 1
        self.rows += rows
        self._fenced_at, self._fenced_in_vain = None, 0
        self._capacity.after_epoch(epoch.rows, epoch.bytes)
        self._progress.epoch(rows, seconds * 1000)
        log.info("Epoch finalized: number=%d rows=%d ms=%.0f", epoch.number, rows, seconds * 1000)
        self._uncollected_bytes += epoch.bytes
        if self.epochs % _COLLECT_EVERY == 0 or self._uncollected_bytes >= _COLLECT_BYTES:
            self._uncollected_bytes = 0
            gc.collect()


Bounds = tuple[tuple[str, str], ...]


def _bounds(epoch: Epoch) -> Bounds:
    return tuple((s.key, json.dumps([s.start, s.end], sort_keys=True)) for s in epoch.slices)


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

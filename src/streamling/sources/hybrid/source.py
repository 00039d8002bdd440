"""The control side of a hybrid source: one source after the other, and the record of the phase.

The record is one more state key. When a phase ends, a slice without rows moves it, after the slices of the phase: so a
phase is completed in the state when every sink has its rows, and not before. Only then the unbounded phase begins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from streamling.connector import (
    Decoder,
    Extent,
    Json,
    KeyValues,
    Locator,
    Offer,
    Projection,
    Room,
    Runtime,
    Slice,
    Source,
    SourceCapabilities,
)
from streamling.errors import SOURCE_FAILED, PermanentError
from streamling.plan.types import Schema
from streamling.retry import retry
from streamling.sources.clickhouse.source import ClickHouseSource
from streamling.sources.hybrid.phases import Phase, PhaseRecord, latest_begun
from streamling.sources.hybrid.reader import HybridLocator, HybridReader
from streamling.sources.kafka.source import KafkaSource

log = logging.getLogger(__name__)

# How often a process that waits for the end of the bounded phases looks at the state.
_LOOK_S = 1.0
_STATE_BUDGET_S = 60.0


class HybridSource(Source):
    """`unbounded` is None in job mode. `snapshot` reads the offsets up to which the topic is in the tables.

    If the unbounded phase has a consumer group (`grouped`), the process with the first partition of the topic reads the
    bounded phases, and the others wait.
    """

    def __init__(
        self,
        *,
        node: str,
        name: str,
        bounded: Sequence[Phase],
        unbounded: Phase | None,
        snapshot: Callable[[], Mapping[str, int]],
        grouped: bool,
    ) -> None:
        self._node = node
        self._name = name
        self._bounded = tuple(bounded)
        self._unbounded = unbounded
        self._phases = self._bounded if unbounded is None else (*self._bounded, unbounded)
        self._snapshot = snapshot
        self._grouped = grouped
        self._key = f"hybrid_source_{node}_v1"
        self.capabilities = SourceCapabilities(
            shared=unbounded is not None and unbounded.source.capabilities.shared,
            takes_back=all(phase.source.capabilities.takes_back for phase in self._phases),
            phased=True,
        )
        self._state: KeyValues | None = None
        self._changed: Callable[[], None] = lambda: None
        self._select: Projection | None = None
        """That of the unbounded phase."""
        self._in_unbounded = False
        """Every sink has the rows of all bounded phases."""
        self._leads = not self.capabilities.shared
        """Whether this process reads the bounded phases."""
        self._next_look = 0.0
        self._positions: Mapping[str, Json] = {}
        self._record: PhaseRecord | None = None
        """None before the first offer."""
        self._stored: Json = None
        """The record after the last offer."""
        self._current: Phase | None = None
        """The phase that is open."""

    # Before the first offer

    def prepare(self, columns: Schema, read: Collection[str]) -> None:
        if self._unbounded is None:
            self.columns = Schema(tuple(f for f in columns if f.name in read))
        else:
            source = self._unbounded.source
            source.prepare(columns, read)
            self.columns = source.columns
            self._select = source.select
        for phase in self._bounded:
            phase.source.prepare(columns, self.columns.names)
        self._enter_unbounded(False)

    def attach(self, runtime: Runtime) -> None:
        self._state = runtime.state
        for phase in self._phases:
            phase.source.attach(runtime)
        self._enter_unbounded(self._is_in_unbounded(retry(runtime.state.items, what="state", budget_s=_STATE_BUDGET_S)))

    def join(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        if self._unbounded is not None:
            self._unbounded.source.join(changed)

    def assigned(self) -> frozenset[str]:
        """In the bounded phases their keys, for one process; then those of the unbounded phase."""
        if self._unbounded is None:
            return frozenset()
        keys = self._unbounded.source.assigned()
        if self._in_unbounded:
            return keys
        leads = not self._grouped or f"{self._unbounded.key}0" in keys
        return frozenset((self._key, *(phase.key for phase in self._bounded))) if leads else frozenset()

    def own(self, keys: frozenset[str]) -> None:
        self._leads = self._key in keys
        if self._unbounded is not None:
            owns = self._unbounded.owns
            self._unbounded.source.own(frozenset(key for key in keys if owns(key)))

    def open(self, positions: Mapping[str, Json]) -> None:
        self._positions = positions
        self._record = None
        self._stored = positions.get(self._key)
        self._current = None
        self._enter_unbounded(self._is_in_unbounded(positions))

    def _is_in_unbounded(self, positions: Mapping[str, Json]) -> bool:
        """A job that has read the bounded phases has not read the offsets: the tables may have grown since."""
        record = self._read_record(positions)
        if self._unbounded is None or record is None or not record.is_complete:
            return False
        return record.offsets is not None or self._unbounded.is_begun(positions)

    def _read_record(self, positions: Mapping[str, Json]) -> PhaseRecord | None:
        stored = positions.get(self._key)
        if stored is None:
            return None
        try:
            return PhaseRecord.from_json(stored, len(self._bounded))
        except ValueError as error:
            text = f"the stored position of {self._key} is {error}"
            raise PermanentError(SOURCE_FAILED, text, node=self._name) from error

    def _enter_unbounded(self, entered: bool) -> None:
        self._in_unbounded = entered
        select = self._select
        # Other phases have other filters. An epoch never has rows of both.
        other = select is not None and select.condition is not None and not entered
        self.select = replace(select, condition="true") if select is not None and other else select

    # What comes next

    @property
    def bounded(self) -> bool:
        return self._unbounded is None

    @property
    def drains(self) -> bool:
        return True

    @property
    def ended(self) -> bool:
        record = self._record
        return self.bounded and record is not None and record.is_complete and record.to_json() == self._stored

    def offer(self, room: Room) -> Offer | None:
        if self._in_unbounded:
            return self._offer_unbounded(room)
        if not self._leads:
            self._look_for_end()
            return None
        if self._record is None:
            self._record = self._begin()
        while (record := self._record) is not None and not record.is_complete:
            phase = self._bounded[record.current]
            self._open_phase(phase, record)
            offer = phase.source.offer(room)
            if offer is not None:
                return self._with_record(phase.offer(offer))
            if not phase.source.ended:
                break
            log.info("source %s: bounded phase %d is read to its end", self._name, record.current)
            self._record = record.advance()
        return self._with_record(Offer()) if self._is_record_new else None

    def _offer_unbounded(self, room: Room) -> Offer | None:
        phase = self._unbounded
        if phase is None:
            return None
        if self._current is not phase:
            record = self._read_record(self._positions)
            if isinstance(phase.source, KafkaSource) and record is not None:
                phase.source.start_at({int(number): offset for number, offset in (record.offsets or {}).items()})
            phase.source.open(self._positions)
            self._current = phase
        offer = phase.source.offer(room)
        return None if offer is None else phase.offer(offer)

    @property
    def _is_record_new(self) -> bool:
        return self._record is not None and self._record.to_json() != self._stored

    def _with_record(self, offer: Offer) -> Offer:
        """The offer, and before it the record of the phase if it has changed."""
        if self._record is None or not self._is_record_new:
            return offer
        start, self._stored = self._stored, self._record.to_json()
        return replace(offer, slices=(Slice(self._node, self._key, start, self._stored, (), 0), *offer.slices))

    def _open_phase(self, phase: Phase, record: PhaseRecord) -> None:
        if self._current is phase:
            return
        if isinstance(phase.source, ClickHouseSource):
            phase.source.until = record.end(phase.number)
        phase.source.open(self._positions)
        self._current = phase

    def _look_for_end(self) -> None:
        """Whether another process has read the bounded phases to their end."""
        if self._state is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_S
        if self._is_in_unbounded(self._state.items()):
            self._enter_unbounded(True)
            self._changed()

    # Where the phases begin

    def _begin(self) -> PhaseRecord | None:
        """The record to continue with; None if it cannot be known yet."""
        record, phases = self._read_record(self._positions), len(self._bounded)
        if self._unbounded is None:
            if record is not None and record.is_complete:
                log.info("source %s: the job was finished by an earlier run: nothing is read", self._name)
            return record or PhaseRecord.begin(phases, latest_begun(self._bounded, self._positions))
        if record is not None and record.offsets is not None:
            return record
        if isinstance(self._unbounded.source, KafkaSource) and not self._unbounded.source.record_start():
            return None
        # The order matters: rows that come into a table after this line are in the topic after these offsets.
        offsets = dict(self._snapshot())
        log.info("source %s: the topic will be read from these offsets on: %s", self._name, offsets or "none known")
        if record is None and self._is_beyond_bounded(offsets):
            return replace(PhaseRecord.begin(phases, phases), offsets=offsets)
        if record is None:
            record = PhaseRecord.begin(phases, latest_begun(self._bounded, self._positions))
        elif record.is_complete:  # a job has read the tables; they may have grown since
            record = PhaseRecord.begin(phases)
        return replace(record, offsets=offsets, ends=tuple(_last_key(phase) for phase in self._bounded))

    def _is_beyond_bounded(self, offsets: Mapping[str, int]) -> bool:
        """Whether all partitions with an offset have been read before, although no record says so."""
        if self._unbounded is None:
            return False
        keys = [f"{self._unbounded.key}{number}" for number in offsets]
        return self._unbounded.is_begun(self._positions) and all(key in self._positions for key in keys)

    # Slices of the phases

    def _phase_of(self, key: str) -> Phase | None:
        """None for the record, and in job mode for slices of the unbounded phase."""
        return next((phase for phase in self._phases if phase.owns(key)), None)

    def _by_phase(self, slices: Sequence[Slice]) -> list[tuple[Phase | None, list[Slice]]]:
        return [(phase, list(group)) for phase, group in groupby(slices, key=lambda s: self._phase_of(s.key))]

    def take_back(self, slice_: Slice, place: Json) -> Slice | None:
        phase = self._phase_of(slice_.key)
        if phase is None:
            return slice_
        kept = phase.source.take_back(phase.unwrap(slice_), place)
        return None if kept is None else phase.wrap(kept)

    def check_read(self, slices: Sequence[Slice]) -> None:
        for phase, group in self._by_phase(slices):
            if phase is not None:
                phase.source.check_read([phase.unwrap(s) for s in group])

    def recall(self, slices: Sequence[Slice]) -> tuple[Slice, ...]:
        recalled: list[Slice] = []
        for phase, group in self._by_phase(slices):
            if phase is None:
                recalled += group
            else:
                recalled += (phase.wrap(s) for s in phase.source.recall([phase.unwrap(s) for s in group]))
        return tuple(recalled)

    def committed(self, slices: Sequence[Slice]) -> None:
        for phase, group in self._by_phase(slices):
            if phase is not None:
                phase.source.committed([phase.unwrap(s) for s in group])
        for slice_ in slices:
            if slice_.key == self._key:
                self._positions = {**self._positions, self._key: slice_.end}
                self._enter_unbounded(self._is_in_unbounded(self._positions))

    def phase(self, slice_: Slice) -> str | None:
        phase = self._phase_of(slice_.key)
        if phase is None:
            return None
        return f"bounded_{phase.number}" if phase in self._bounded else "unbounded"

    # The rest of the contract

    def reader(self) -> HybridReader:
        return HybridReader(self._name, tuple(phase.source.reader() for phase in self._phases))

    def decoder(self) -> Decoder | None:
        """Rows of tables have no payload that could be decoded again."""
        return None if self._unbounded is None else self._unbounded.source.decoder()

    def locator(self) -> Locator | None:
        phases = (self._unbounded,) if self._in_unbounded and self._unbounded else self._bounded
        locators = {phase.number: locator for phase in phases if (locator := phase.source.locator()) is not None}
        return HybridLocator(locators) if len(locators) == len(phases) else None

    def extent(self) -> Extent | None:
        phase = self._current
        extent = None if phase is None else phase.source.extent()
        if extent is not None and extent.done >= extent.total and not self.bounded and phase is not self._unbounded:
            return None  # the next phase has not begun, and nothing is known of it
        return extent

    def trouble(self) -> str | None:
        phase = self._current or self._unbounded
        return None if phase is None else phase.source.trouble()

    def count(self, counts: Mapping[str, int]) -> None:
        # An epoch that is replayed is counted before anything is open.
        phase = self._unbounded if self._in_unbounded else self._current
        if phase is not None:
            phase.source.count(counts)

    def close(self) -> None:
        for phase in self._phases:
            phase.source.close()


def _last_key(phase: Phase) -> str | None:
    return phase.source.last_key() if isinstance(phase.source, ClickHouseSource) else None

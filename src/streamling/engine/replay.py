"""Replays of dead letters: one run for each node that rejected rows, over the part of the plan behind it.

No source is opened, no position of a source is read or moved: the state key of a replay is its own. So it may run next
to the pipeline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streamling.connector import Projection, Reader, Sink, Slice, Source
from streamling.engine.execution import Execution, Summary
from streamling.engine.preparation import (
    PreparedPipeline,
    build_lookups,
    build_sinks,
    build_tables,
    build_transforms,
    current_time,
    prepare_source,
    runnable_plan,
)
from streamling.engine.process.engine import Engine
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.progress import Progress
from streamling.engine.protocol.state import StateStore
from streamling.errors import NOT_REPLAYABLE, UserError
from streamling.letters.letter import Letter, LetterStatus
from streamling.letters.replay import EntryStore, LetterReplay, NodeStore, letters_of
from streamling.letters.selection import DeadLetters
from streamling.letters.source import EmptySource, LetterSource, PayloadReader, RowReader
from streamling.letters.store import LetterStore, store_for
from streamling.plan.pipeline import Plan
from streamling.plan.replay import replay_plan
from streamling.plan.sql.epoch import EPOCH_NOW
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import OnError
from streamling.spec.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of replays. `new`: rows that became letters of a node after the one they entered."""

    replayed: int
    failed: tuple[str, ...]
    left: int
    """Letters without a result, because the run was stopped or failed."""
    new: int

    @property
    def complete(self) -> bool:
        """Every letter was replayed, and none of its rows was rejected."""
        return not (self.failed or self.left or self.new)


class Replays:
    """The replays of a command, one node after the other on one engine."""

    def __init__(self, file: Path, settings: Settings, found: DeadLetters, letters: Sequence[Letter]) -> None:
        self._file = file
        # Letters wait for nothing, and a limit of the pipeline does not concern them.
        self._settings = settings.model_copy(update={"num_records_before_stop": None, "record_batch_interval_ms": 0})
        self._found = found
        self._letters = letters
        self._runs: list[NodeReplay] = []
        self.bounded = True
        self.unreplayable = False

    @property
    def stop(self) -> StopRequest | None:
        return self._runs[-1].stop if self._runs else None

    @property
    def delivered(self) -> bool:
        return bool(self._runs) and self._runs[-1].delivered

    def run(self, engine: Engine, *, on_failure: Callable[[BaseException], object] = lambda error: None) -> Summary:
        plan, side_outputs = runnable_plan(self._file, self._settings)
        groups = _by_entry(plan, self._letters)
        replays = [
            NodeReplay(self._file, self._settings, (plan, side_outputs), self._found, entry, letters)
            for entry, letters in groups.items()
        ]
        for replay in replays:
            self._runs.append(replay)
            replay.run(engine, on_failure=on_failure)
            if replay.stop is not None and replay.stop.requested:
                break
        return self.summary()

    def summary(self) -> Summary:
        summaries = [run.summary() for run in self._runs]
        return Summary(
            epochs=sum(summary.epochs for summary in summaries),
            rows=sum(summary.rows for summary in summaries),
            written={name: rows for summary in summaries for name, rows in summary.written.items()},
            seconds=sum(summary.seconds for summary in summaries),
        )

    def abandon(self) -> None:
        if self._runs:
            self._runs[-1].abandon()

    def outcome(self) -> Outcome:
        failed = {id_ for run in self._runs for id_ in run.failed}
        waiting = (self._found.letter(letter.id) for letter in self._letters if letter.id not in failed)
        return Outcome(
            sum(run.replayed for run in self._runs),
            tuple(sorted(failed)),
            sum(1 for letter in waiting if letter is not None and letter.status == LetterStatus.OPEN.value),
            sum(run.new for run in self._runs),
        )


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where letters enter the plan: a node, and its input if it has several."""

    node: str
    input: str | None


def _by_entry(plan: Plan, letters: Sequence[Letter]) -> dict[_Entry, list[Letter]]:
    """The letters by their nodes, in the order of the plan. Raises UserError for letters that fit no node."""
    nodes = {node.ref: node for node in plan.nodes if node.id == node.ref}
    groups: dict[_Entry, list[Letter]] = {}
    for letter in letters:
        node = nodes.get(letter.node)
        if node is None or node.spec.role.value != letter.node_type:
            message = (
                f"letter {letter.id} is of the {letter.node_type} '{letter.node}', which the pipeline does not have"
            )
            raise UserError(NOT_REPLAYABLE, message, node=letter.node, hint="restore the node, or discard the letter")
        several = len(node.inputs) > 1
        if several and letter.input not in node.inputs:
            text = "does not say which" if letter.input is None else f"comes from '{letter.input}', which is none"
            message = f"letter {letter.id} {text} of the nodes that '{node.spec.name}' reads"
            raise node.spec.error(NOT_REPLAYABLE, message, hint="discard the letter")
        groups.setdefault(_Entry(node.ref, letter.input if several else None), []).append(letter)
    order = {node.ref: number for number, node in enumerate(plan.nodes)}
    return dict(sorted(groups.items(), key=lambda group: order[group[0].node]))


class NodeReplay(Execution):
    """The replay of the letters of one node."""

    instance_suffix = "/replay"

    def __init__(
        self,
        file: Path,
        settings: Settings,
        whole: tuple[Plan, Mapping[str, Sink]],
        found: DeadLetters,
        entry: _Entry,
        letters: Sequence[Letter],
    ) -> None:
        """`whole`: the plan of the pipeline, and its side outputs."""
        super().__init__(file, settings, Progress())
        self._whole, self._side_outputs = whole
        self._original = self._whole.node(entry.node)
        self._reduced = replay_plan(self._whole, self._original, entry.input)
        self._replay = LetterReplay(found, letters, self._reduced.node.id)

    @property
    def replayed(self) -> int:
        return len(self._replay.replayed)

    @property
    def failed(self) -> list[str]:
        return sorted(self._replay.failed)

    @property
    def new(self) -> int:
        return sum(node.rejected for node in self._progress.snapshot().nodes)

    def _claim(self, store: StateStore, prepared: PreparedPipeline) -> None:
        """The letters name their application; the file may be a corrected copy."""

    def _prepare(self) -> PreparedPipeline:
        plan, settings = self._reduced.plan, self._settings
        sinks = build_sinks(plan, settings, self._side_outputs)
        for sink in sinks.values():
            sink.capabilities = replace(sink.capabilities, batch=None, record_limit=None)
        sources: dict[str, Source] = {node.ref: EmptySource(node.schema) for node in self._reduced.empty}
        entry = self._make_source()
        return PreparedPipeline(
            plan,
            sources={self._reduced.entry.ref: entry, **sources},
            transforms=build_transforms(plan, settings),
            tables=build_tables(plan, settings),
            sinks=sinks,
            letters=self._make_stores(),
            lookups=build_lookups(plan, settings),
            now_us=_stored_now if self._uses_now(entry.select) else current_time,
        )

    def _uses_now(self, select: Projection | None) -> bool:
        parameters = [node.query.parameters for node in self._reduced.plan.nodes if node.query is not None]
        parameters += [select.parameters] if select is not None else []
        return any(EPOCH_NOW in names for names in parameters)

    def _make_source(self) -> LetterSource:
        columns, select = self._reduced.columns, None
        reader: Reader = RowReader(columns)
        if self._original.spec.role is Role.SOURCE:
            source = prepare_source(self._whole, self._original, self._settings)
            decoder = source.decoder()
            if decoder is None:
                message = "it cannot decode the payloads of its dead letters again"
                raise self._original.spec.error(NOT_REPLAYABLE, message, hint="export the letters, or discard them")
            columns, select, reader = source.columns, source.select, PayloadReader(decoder)
        same_now = self._uses_now(select)
        return LetterSource(self._reduced.entry.ref, columns, select, reader, self._replay.waiting, same_now=same_now)

    def _make_stores(self) -> dict[str, LetterStore]:
        reduced = self._reduced
        skipped = (reduced.entry.id, reduced.node.id, *(node.id for node in reduced.empty))
        stores: dict[str, LetterStore] = {
            node.id: store_for(node.spec, self._settings)
            for node in reduced.plan.nodes
            if node.id not in skipped and node.spec.options.on_error is OnError.DEAD_LETTER
        }
        # A transform tells what it rejects after the source of letters, a sink before it.
        last = reduced.node if reduced.node.spec.role is Role.TRANSFORM else reduced.entry
        replay = self._replay
        stores[reduced.entry.id] = EntryStore(reduced.entry.id, replay, finishes=last is reduced.entry)
        if reduced.node is not reduced.entry:
            stores[reduced.node.id] = NodeStore(reduced.node.id, replay, reduced.columns, finishes=last is reduced.node)
        return stores


def _stored_now(slices: Sequence[Slice]) -> int:
    """The `now()` of the epoch in which the letters were stored."""
    return letters_of(slices)[0].now_us

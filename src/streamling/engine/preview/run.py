"""One run of a preview: the nodes that can run, each with a sink, until there is nothing more to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamling.connector import Source, Transform
from streamling.engine.execution import Execution, nodes_by_name
from streamling.engine.preparation import (
    PreparedPipeline,
    build_lookups,
    build_tables,
    build_transforms,
    prepare_source,
)
from streamling.engine.preview.effects import MOST_ROWS, Allowance, PreviewTransform
from streamling.engine.preview.result import End, PreviewOptions
from streamling.engine.preview.rows import FirstRows, PreviewSink, SampledRows, add_preview_sinks
from streamling.engine.preview.tables import TableRows, dynamic_table_rows, lookup_rows
from streamling.engine.protocol.activity import OPENING
from streamling.engine.protocol.progress import Progress
from streamling.errors import NO_PROGRESS, SOURCE_FAILED, StreamlingError, TransientError
from streamling.plan.dynamic_tables import table_columns
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.plan.preview import PreviewPlan
from streamling.spec.pipeline import PipelineText, Role
from streamling.spec.settings import Settings
from streamling.telemetry.inspection import Samples

if TYPE_CHECKING:
    from streamling.engine.data.capacity import Capacity
    from streamling.engine.data.lookups.tables import LookupTables
    from streamling.engine.data.readahead import ReadAhead
    from streamling.engine.protocol.context import RunContext

DEFAULT_SECONDS = 10.0
OPEN_BUDGET_S = 5.0
"""A table that is there answers within this time; a user waits for the preview."""

# Rows of an epoch after the first, which has only the rows to show. Nodes that filter need more than that, and those
# that let one row in a million pass need many more: epochs that take little time become larger.
_EPOCH_ROWS = 1000
_MOST_EPOCH_ROWS = 64_000
_SHORT_EPOCH_S = 0.25
# The same if a node may call other systems or cost money: a handler, for instance.
_CAREFUL_EPOCH_ROWS = 100
_CHECK_S = 0.05
# More rows may arrive at any moment. Unless the user sets a time, sources that have read everything get this long, and
# longer if they had no row at all.
_QUIET_S = 1.0
_EMPTY_S = 3.0
# A system that is there answers within this time, with TLS and a login. Nodes that wait for it no longer hide the rest.
_NO_ANSWER_S = 5.0
# An epoch ends within this time after a request to stop, unless code of the user does not.
_STOP_S = 10.0
# A node is opened within this time, even if its code loads a model.
_OPENING_S = 30.0
# How much longer the first rows may take: Spark compiles what computes them.
_WARM_UP_S = 30.0


class EpochSize:
    """How many rows an epoch may have. Doubles after two short epochs."""

    def __init__(self, rows: int, most: int) -> None:
        self.rows = rows
        self._most = most
        self._epochs = 0
        self._since = 0.0

    def grows(self, now: float, epochs: int) -> bool:
        """Whether it has just become larger. `epochs`: how many have ended."""
        ended = epochs - self._epochs
        if ended < 2:
            return False
        is_short = (now - self._since) / ended < _SHORT_EPOCH_S
        self._epochs, self._since = epochs, now
        if is_short and self.rows < self._most:
            self.rows = min(2 * self.rows, self._most)
            return True
        return False


class _Lasting:
    """How long a condition has been true without a break."""

    def __init__(self) -> None:
        self._since: float | None = None

    def seconds(self, now: float, is_true: bool) -> float:
        if not is_true:
            self._since = None
            return 0.0
        self._since = now if self._since is None else self._since
        return now - self._since


def no_end(node: PlannedNode) -> TransientError:
    message = f"{node.spec.described()}: its code does not end"
    return TransientError(NO_PROGRESS, message, node=node.spec.name, where=node.spec.where)


class PreviewRun(Execution):
    """One run of the nodes that can run."""

    open_budget_s = OPEN_BUDGET_S
    warns_of_lost_positions = False

    def __init__(
        self,
        pipeline: Path | PipelineText,
        settings: Settings,
        planned: PreviewPlan,
        options: PreviewOptions,
        allowances: dict[str, Allowance],
    ) -> None:
        """`allowances`: by transform, what is left of earlier runs."""
        super().__init__(pipeline, settings, Progress())
        self.planned = planned
        self._options = options
        self._allowances = allowances
        self._sinks: dict[str, PreviewSink] = {}
        self._sources: Mapping[str, Source] = {}
        self._transforms: Mapping[str, PreviewTransform] = {}
        self._lookups: LookupTables | None = None
        self._capacity: Capacity | None = None
        self._size: EpochSize | None = None
        self.tables: dict[str, TableRows] = {}
        """By id: the rows of lookups and dynamic tables."""
        self.reading_since: float | None = None
        """On the monotonic clock, since when rows can arrive: the time of a preview counts from then on."""
        self._opened = threading.Event()
        """Set when all nodes but the sources are open, or could not be opened."""
        self._watching = threading.Event()
        self.ended = threading.Event()
        """Set when the run has ended, or when nothing waits for its end any more."""
        self.stuck: PlannedNode | None = None
        """The node whose code does not end."""
        self._stopping = threading.Lock()
        self._stopped_as: End | None = None
        self.troubles: Mapping[str, StreamlingError] = {}
        """By node: what kept it from giving any row until the end."""

    @property
    def sinks(self) -> Sequence[PreviewSink]:
        return tuple(self._sinks.values())

    @property
    def interrupted(self) -> bool:
        """Whether the user ended it."""
        return self.stop is not None and self.stop.requested and self._stopped_as is None

    @property
    def end(self) -> End:
        return self._stopped_as or (End.INTERRUPTED if self.interrupted else End.INPUT)

    @property
    def rejected(self) -> dict[str, int]:
        nodes = zip(
            self._progress.plan.nodes if self._progress.plan else (), self._progress.snapshot().nodes, strict=False
        )
        return {node.id: progress.rejected for node, progress in nodes if progress.rejected}

    def find(self, name: str | None) -> PlannedNode | None:
        """The node that an error names."""
        nodes = self.planned.plan.nodes
        return next((node for node in nodes if name in (node.spec.name, node.ref, node.id)), None)

    # What differs from a run of the pipeline

    def _prepare(self) -> PreparedPipeline:
        settings = self._settings
        nodes = tuple(
            replace(node, spec=replace(node.spec, options=node.spec.options.for_preview()))
            for node in self.planned.plan.nodes
        )
        shown = self._shown_streams()
        plan, self._sinks = add_preview_sinks(Plan(nodes), shown, self._make_sink(shown))
        self._sources = {node.ref: prepare_source(plan, node, settings) for node in plan.sources}
        self._transforms = {ref: self._wrap(ref, made) for ref, made in build_transforms(plan, settings).items()}
        return PreparedPipeline(
            plan,
            sources=self._sources,
            transforms=self._transforms,
            sinks=self._sinks,
            tables={ref: table.for_preview() for ref, table in build_tables(plan, settings).items()},
            letters={},
            lookups=build_lookups(plan, settings),
        )

    def _shown_streams(self) -> list[PlannedNode]:
        """The streams whose rows are shown, or fill a table that is shown."""
        tables = (table for table in self.planned.plan.dynamic_tables if self._options.shows(table.ref))
        filling = {ref for table in tables for ref in table.inputs}
        return [node for node in self.planned.streams if self._options.shows(node.ref) or node.ref in filling]

    def _wrap(self, ref: str, transform: Transform) -> PreviewTransform:
        allowance = None
        if not transform.capabilities.deterministic:
            allowance = self._allowances.setdefault(ref, Allowance(max(MOST_ROWS, self._options.rows)))
        return PreviewTransform(transform, allowance)

    def _make_sink(self, shown: Sequence[PlannedNode]) -> Callable[[PlannedNode], PreviewSink]:
        live = self._options.live
        if live is None:
            return lambda node: FirstRows(node, self._options.rows, self._stop_if_complete)
        live.start(shown)
        block = self._settings.live_data_inspect
        names = [node.spec.name for node in shown]
        samples = Samples(names, block.records_per_topology_node, block.refresh_in_secs)

        def pause() -> None:
            while self.stop is not None and not self.stop.requested and not any(map(samples.wanted, names)):
                self.stop.pause(_CHECK_S)

        return lambda node: SampledRows(node, samples, live.emit, pause)

    def _open_nodes(self, *arguments: Any) -> LookupTables | None:
        threading.Thread(target=self._watch_opening, name="preview opening", daemon=True).start()
        try:
            self._lookups = super()._open_nodes(*arguments)
        finally:
            self._opened.set()
        if self.stuck is not None:  # nothing waits for this run any more
            raise no_end(self.stuck)
        return self._lookups

    def _make_capacity(self, session: Any, prepared: PreparedPipeline, workers: Any) -> Capacity:
        capacity = super()._make_capacity(session, prepared, workers)
        careful = any(transform.allowance is not None for transform in self._transforms.values())
        rows = max(_CAREFUL_EPOCH_ROWS if careful else _EPOCH_ROWS, self._options.rows)
        capacity.limit_rows(rows, first=self._options.rows)
        self._capacity, self._size = capacity, EpochSize(rows, rows if careful else max(rows, _MOST_EPOCH_ROWS))
        return capacity

    def _make_context(self, *arguments: Any) -> RunContext:
        return replace(super()._make_context(*arguments), transform_policies=(), acknowledges=False)

    def _start_progress(
        self, prepared: PreparedPipeline, sources: Sequence[ReadAhead], lookups: LookupTables | None
    ) -> None:
        super()._start_progress(prepared, sources, lookups)
        threading.Thread(target=self._watch, name="preview", daemon=True).start()

    def _run_loop(self, engine: Any, prepared: PreparedPipeline, *arguments: Any) -> None:
        try:
            super()._run_loop(engine, prepared, *arguments)
        finally:
            self._watching.set()
        self.tables = dict(self._table_rows(prepared))

    def _table_rows(self, prepared: PreparedPipeline) -> Iterator[tuple[str, TableRows]]:
        """At the end: queries have added their values."""
        limit = self._options.rows
        if self._options.live is not None:
            return
        for node in prepared.plan.lookups if self._lookups is not None else ():
            if self._lookups is not None and self._options.shows(node.ref):
                yield node.id, lookup_rows(self._lookups.all[node.ref].current.table, node.schema, limit)
        for node in prepared.plan.dynamic_tables:
            if self._options.shows(node.ref):
                yield node.id, dynamic_table_rows(prepared.tables[node.ref], table_columns(node.spec), limit)

    def _locate(self, error: StreamlingError) -> None:
        self._nodes = nodes_by_name(self.planned.plan)  # without the sinks, which have the same names
        super()._locate(error)

    # When it ends

    def _stop_if_complete(self) -> None:
        """Called by a sink that has enough rows: the next epoch would begin before the watch looks again."""
        if all(sink.complete for sink in self._sinks.values()):
            self._stop(End.ROWS)

    def _stop(self, end: End) -> None:
        with self._stopping:
            if self.stop is None or self.stop.requested:
                return
            self.troubles = self._find_troubles() if end in (End.TIME, End.TROUBLE) else {}
            self._stopped_as = end
            self.stop.request(drains=False)

    def _watch(self) -> None:
        """Stop the run as soon as there is nothing more to wait for."""
        self.reading_since = time.monotonic()
        deadline = self.reading_since + (self._options.seconds or DEFAULT_SECONDS)
        quiet, stuck = _Lasting(), _Lasting()
        while not self._watching.wait(_CHECK_S):
            self._read_more()
            end = self._find_end(time.monotonic(), deadline, quiet, stuck)
            if end is not None:
                self._stop(end)
            if self._stopped_as is not None:
                self._watch_stop()
                return

    def _read_more(self) -> None:
        if self._loop is None or self._capacity is None or self._size is None:
            return
        if self._size.grows(time.monotonic(), self._loop.epochs):
            self._capacity.limit_rows(self._size.rows, first=self._options.rows)

    def _watch_stop(self) -> None:
        """A node may run code that does not end: the others are shown without it."""
        if self._watching.wait(_STOP_S):
            return
        self.stuck = self._busy_transform or self._find_opening(0.0)
        self.ended.set()

    def _watch_opening(self) -> None:
        """The same while transforms are opened."""
        last, since = self._busy_transform, time.monotonic()
        while not self._opened.wait(_CHECK_S):
            busy = self._busy_transform
            if busy is None or busy is not last:
                last, since = busy, time.monotonic()
            elif time.monotonic() - since > _OPENING_S:
                self.stuck = busy
                self.ended.set()
                return

    @property
    def _busy_transform(self) -> PlannedNode | None:
        busy = next((ref for ref, transform in self._transforms.items() if transform.is_busy), None)
        return self.planned.plan.node(busy) if busy is not None else None

    def _find_opening(self, longer_than_s: float) -> PlannedNode | None:
        """The source that is being opened, which every other node waits for."""
        steps = (step for step in self._progress.activity.open_steps() if step.what == OPENING)
        late = (step for step in steps if time.monotonic() - step.since > longer_than_s)
        return next((self.find(step.node) for step in late), None)

    def _find_end(self, now: float, deadline: float, quiet: _Lasting, stuck: _Lasting) -> End | None:
        starved = self._starved()
        if all(sink.complete or sink.node.ref in starved for sink in self._sinks.values()):
            return End.ROWS if all(sink.complete for sink in self._sinks.values()) else End.LIMIT
        waiting = self._waiting()
        # A source without rows does not keep others from giving some; a transform that waits stops its whole epoch.
        is_idle = self._loop is not None and self._loop.idle
        held_up = any(node.spec.name in waiting for node in self.planned.plan.transforms)
        if now >= deadline + (_WARM_UP_S if self._is_warming_up() and not held_up else 0.0):
            # On a busy machine the default time is over before the rest has been quiet for long enough.
            if self._options.seconds is not None or not self._has_read_everything(waiting):
                return End.TIME
            return End.TROUBLE if waiting else End.CAUGHT_UP if is_idle else End.TIME
        if stuck.seconds(now, held_up) > _NO_ANSWER_S or self._find_opening(_OPENING_S) is not None:
            return End.TROUBLE
        idle = is_idle and self._has_read_everything(waiting)
        patience = _QUIET_S if any(sink.count for sink in self._sinks.values()) else _EMPTY_S
        if quiet.seconds(now, idle) > (_NO_ANSWER_S if waiting else patience) and self._options.seconds is None:
            return End.TROUBLE if waiting else End.CAUGHT_UP
        return None

    def _starved(self) -> set[str]:
        """The nodes that get no more rows, because an allowance is spent."""
        starved: set[str] = set()
        for node in self.planned.streams:
            allowance = self._allowances.get(node.ref)
            if (allowance is not None and allowance.spent) or (node.inputs and starved.issuperset(node.inputs)):
                starved.add(node.ref)
        return starved

    def _waiting(self) -> dict[str, str]:
        """By name: the nodes that wait for another system, and what for."""
        waiting = {node.name: node.trouble for node in self._progress.snapshot().nodes if node.trouble}
        for ref, source in self._sources.items():
            if source.capabilities.shared and not source.assigned():
                waiting.setdefault(self.planned.plan.node(ref).spec.name, "the system that it reads has not answered")
        return waiting

    def _has_read_everything(self, waiting: Mapping[str, str]) -> bool:
        """Whether every source has read all rows that it knows of; one that waits knows of none."""
        for ref, source in self._sources.items():
            extent = source.extent()
            is_waiting = self.planned.plan.node(ref).spec.name in waiting
            if not is_waiting and (extent is None or extent.done < extent.total):
                return False
        return True

    def _is_warming_up(self) -> bool:
        """Whether Spark still computes the first rows, which takes seconds on a busy machine."""
        loop = self._loop
        if loop is None or loop.epochs or loop.idle:
            return False
        return not any(transform.is_busy for transform in self._transforms.values())

    def _find_troubles(self) -> dict[str, StreamlingError]:
        empty = {sink.node.spec.name: sink.node.spec for sink in self._sinks.values() if not sink.count}
        return {
            name: TransientError(
                SOURCE_FAILED,
                f"{empty[name].described()}: no rows yet: {trouble}",
                node=name,
                where=empty[name].where,
            )
            for name, trouble in self._waiting().items()
            if name in empty
        }

    @property
    def waiting_transform(self) -> PlannedNode | None:
        """A transform that has kept its epoch from ending."""
        waiting = (self.find(name) for name in self.troubles)
        return next((node for node in waiting if node is not None and node.spec.role is not Role.SOURCE), None)

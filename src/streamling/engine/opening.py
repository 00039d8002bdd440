"""Opens the nodes of a prepared pipeline, in the order in which they need each other, before the first row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from streamling.connector import Runtime, SinkContext, TransformContext
from streamling.engine.preparation import PreparedPipeline
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.progress import Progress
from streamling.engine.protocol.state import StateStore
from streamling.letters.store import LetterStore
from streamling.retry import retry
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from streamling.engine.data.lookups.tables import LookupTables
    from streamling.engine.protocol.delivery import Outlet

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Opening:
    """`budget_s`: how long targets and tables may take to answer: they may still be starting."""

    prepared: PreparedPipeline
    settings: Settings
    generation: str
    budget_s: float
    progress: Progress

    def attach(self, store: StateStore, metrics: Metrics, stop: StopRequest) -> None:
        """Give the nodes what they may use while they run, and let sources join their groups."""
        for id_, node in self.prepared.connectors_by_id.items():
            node.attach(
                Runtime(
                    self.settings.application_id,
                    store,
                    metrics,
                    self.generation,
                    lambda: stop.ends_retries,
                    stop.pause_retries,
                    partial(self.progress.activity.advance, id_),
                    self.progress.meter(id_).set_labels,
                )
            )
        # Early: a consumer group takes seconds to assign partitions, about as long as the session takes to start.
        for source in self.prepared.sources.values():
            source.join(stop.wake)

    def outlets(self) -> list[Outlet]:
        """The sinks, opened."""
        from streamling.engine.protocol.delivery import Outlet, record_limit

        sinks, application = self.prepared.sinks, self.settings.application_id
        outlets = [
            Outlet(node, sinks[node.ref], record_limit(sinks[node.ref], self.settings))
            for node in self.prepared.plan.sinks
        ]
        for outlet in outlets:
            node = outlet.node
            context = SinkContext(node.ref, application, self.generation, node.schema, node.primary_key, node.width)
            self._retry(partial(outlet.sink.open, context), f"sink '{outlet.name}'", node.id)
        return outlets

    def transforms(self) -> None:
        plan = self.prepared.plan
        for ref, transform in self.prepared.transforms.items():
            node = plan.node(ref)
            context = TransformContext(
                ref,
                self.settings.application_id,
                self.generation,
                plan.node(node.inputs[0]).schema,
                node.schema,
                node.primary_key,
                node.width,
            )
            with self.progress.activity.step("opening", node.id):
                transform.open(context)

    def tables(self) -> None:
        for node in self.prepared.plan.dynamic_tables:
            self._retry(self.prepared.tables[node.ref].open, f"dynamic table '{node.spec.name}'", node.id)

    def letters(self, stores: Mapping[str, LetterStore]) -> None:
        for node, letters in stores.items():
            self._retry(letters.open, f"the dead letters of '{node}'", node)

    def lookups(self, *, recording: bool) -> LookupTables | None:
        """Read the lookups; their rows are stored if epochs are recorded, for replays."""
        if not self.prepared.lookups:
            return None
        from streamling.engine.data.lookups.store import SnapshotStore, snapshot_directory
        from streamling.engine.data.lookups.tables import LookupTables

        directory = snapshot_directory(self.settings) if recording else None
        store = SnapshotStore(directory) if directory is not None else None
        lookups = LookupTables(self.prepared.plan.lookups, self.prepared.lookups, store)
        with self.progress.activity.step("reading the lookups"):
            lookups.open(self.budget_s)
        return lookups

    def _retry(self, open_: Callable[[], Result], what: str, node: str) -> Result:
        with self.progress.activity.step(f"opening {what}", node) as note_trouble:
            return retry(open_, what=f"opening {what}", budget_s=self.budget_s, on_trouble=note_trouble)

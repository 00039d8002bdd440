"""Side outputs: plugins that watch the rows of every source.

Delivery: at least once. A side output gets rows like a sink that reads the source: the epoch waits for it, and an
epoch that is replayed after a crash delivers its rows again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamling.connector import Epoch, Report, Runtime, Sink, SinkCapabilities, SinkContext, Task
from streamling.errors import KIND_NOT_AVAILABLE, PLUGIN_REFUSED, StreamlingError, UserError
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.plan.types import Schema
from streamling.plugin.application import Application
from streamling.plugin.context import Recorder
from streamling.plugin.failures import message_of
from streamling.plugin.nodes.instance import LAST_CALL_S, Instance
from streamling.plugin.registration import PluginKind, Registration, find, registrations
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.plugin_options import PluginOptions
from streamling.spec.settings import Settings
from streamling.telemetry.labels import node_labels
from streamling.telemetry.metrics import Metrics

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SideOutputs:
    """A plan with side outputs as sinks, and these sinks by node."""

    plan: Plan
    sinks: Mapping[str, SideOutput]


def check_side_outputs(settings: Settings) -> None:
    """Raises UserError if the settings name a side output that no plugin provides: it would silently get no rows."""
    for id_ in settings.plugin.side_output_ids:
        _find_side_output(id_)


def _find_side_output(id_: str) -> Registration:
    registration = find(id_, PluginKind.SIDE_OUTPUT)
    if registration is None:
        known = ", ".join(r.id for r in registrations() if r.kind is PluginKind.SIDE_OUTPUT) or "none"
        raise UserError(KIND_NOT_AVAILABLE, f"side output '{id_}' is not available; known side outputs: {known}")
    return registration


def add_side_outputs(plan: Plan, settings: Settings) -> SideOutputs:
    """Add a sink to the plan for every source and every side output of the settings."""
    nodes: list[PlannedNode] = []
    sinks: dict[str, SideOutput] = {}
    application = Application.of(settings)
    for source in plan.sources:
        for registration in map(_find_side_output, settings.plugin.side_output_ids):
            options = settings.plugin.side_output_options.get(registration.id, {})
            spec = replace(
                source.spec,
                role=Role.SINK,
                name=f"{source.spec.name} > {registration.id}",
                ref=f"{source.ref} > {registration.id}",
                type=registration.id,
                options=PluginOptions.model_construct(type=registration.id),
            )
            view = f"node_{len(plan.nodes) + len(nodes)}"
            nodes.append(PlannedNode(spec, (source.ref,), source.columns, source.primary_key, view))
            sinks[spec.ref] = SideOutput(source.spec, registration, application.options_for(registration.id, options))
    return SideOutputs(replace(plan, nodes=(*plan.nodes, *nodes)), sinks)


@dataclass(frozen=True, slots=True)
class _Receiver:
    """What `open` makes: the instance of the plugin, and the columns of the rows it gets."""

    instance: Instance
    columns: Schema


class SideOutput(Sink):
    """One side output of one source."""

    capabilities = SinkCapabilities(observer=True)

    def __init__(self, source: NodeSpec, registration: Registration, options: dict[str, str]) -> None:
        self._source = source
        self._registration = registration
        self._options = options
        self._metrics = Metrics()
        self._receiver: _Receiver | None = None

    def attach(self, runtime: Runtime) -> None:
        self._metrics = runtime.metrics

    def open(self, context: SinkContext) -> None:
        from streamling.formats.exchange import exchange_schema

        described = f"side output '{self._registration.id}' of {self._source.described()}"
        recorder = Recorder(self._metrics, node_labels(self._source))
        schema = exchange_schema(context.schema)
        try:
            plugin = self._registration.target(self._source.ref, schema, self._options, recorder)
        except Exception as error:
            message = f"{described} does not start: {message_of(error)}"
            raise UserError(PLUGIN_REFUSED, message, node=self._source.name, cause=error) from error
        instance = Instance(plugin, node=self._source.name, described=described)
        self._receiver = _Receiver(instance, context.schema)

    def writer(self) -> SideOutput:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        from streamling.formats.exchange import to_plugin

        receiver = self._receiver
        if receiver is None:
            raise AssertionError("not opened")
        rows = 0
        for batch in batches:
            if batch.num_rows:
                receiver.instance.call("process_batch", to_plugin(batch, receiver.columns, self._source.name))
                rows += batch.num_rows
        return Report(rows)

    def close(self) -> None:
        if self._receiver is None:
            return
        try:
            self._receiver.instance.end("shutdown").result(LAST_CALL_S)
        except (StreamlingError, TimeoutError) as error:
            log.warning("side output '%s' did not close: %s", self._registration.id, str(error) or "no answer")
        self._receiver = None

"""The instances of one node: made and called together; there is one unless the plugin is partitioned."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamling.connector import Runtime
from streamling.errors import StreamlingError
from streamling.plan.types import Schema
from streamling.plugin.application import no_state
from streamling.plugin.context import PluginContext, Recorder
from streamling.plugin.nodes.instance import LAST_CALL_S, Instance
from streamling.spec.pipeline import NodeSpec
from streamling.telemetry.labels import node_labels, plugin_node_labels
from streamling.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from streamling.plugin.nodes.kinds import PluginNode

log = logging.getLogger(__name__)


class InstanceGroup:
    """`width` instances of the plugin of a node."""

    def __init__(
        self, node: NodeSpec, options: PluginNode, runtime: Runtime | None, width: int, rows: Schema | None
    ) -> None:
        self._node = node
        self._options = options
        self._rows = rows
        self._width = width
        self.recorder = self._recorder_for(runtime)
        self._store = no_state if runtime is None else lambda: runtime.state
        self._application = options.application.id if runtime is None else runtime.application
        self.instances: list[Instance] = []
        try:
            for index in range(width):
                self.instances.append(self._instance(index))
        except StreamlingError:
            self.terminate()
            raise

    def initialize(self) -> None:
        """Let every instance open its connections, and set the labels of the plugin."""
        self.call("initialize")
        own: dict[str, object] = {}
        if self._options.registration.partitioned:
            description = self._options.ask_plugin(self._node, self._rows).description
            own = dict(description.labels) if description is not None else {}
        elif self.instances[0].has("labels"):
            own = dict(self.instances[0].call("labels") or {})
        set_labels(self.recorder, self._node, own)

    def call(self, method: str, *arguments: object) -> list[Any]:
        """The same call on every instance, in parallel; the first error is raised once all are done."""
        return gather_results([instance.submit(method, *arguments) for instance in self.instances])

    def terminate(self) -> None:
        """Close all, in parallel; an error of one is logged as a warning and does not keep the others from closing."""
        until = time.monotonic() + LAST_CALL_S
        for last in [instance.end() for instance in self.instances]:
            try:
                last.result(max(0.0, until - time.monotonic()))
            except (StreamlingError, TimeoutError) as error:
                log.warning("%s did not close: %s", self._node.described(), str(error) or "it does not answer")

    def _recorder_for(self, runtime: Runtime | None) -> Recorder:
        labels = node_labels(self._node)
        return Recorder(runtime.metrics, labels, runtime.set_labels) if runtime else Recorder(Metrics(), labels)

    def _instance(self, index: int) -> Instance:
        from streamling.formats.exchange import exchange_schema

        registration = self._options.registration
        context = PluginContext(
            self._node.ref,
            application_id=self._application,
            input_schema=exchange_schema(self._rows) if self._rows is not None else None,
            partition_index=index,
            partition_count=self._width,
            partitioned=registration.partitioned,
            store=self._store,
            metrics=self.recorder,
        )
        try:
            plugin = registration.target(context, self._options.effective_options())
        except Exception as error:
            raise self._options.refusal(self._node, error) from error
        return Instance(plugin, node=self._node.name, described=self._node.described())


def set_labels(recorder: Recorder, node: NodeSpec, own: Mapping[str, object]) -> None:
    """Record metrics with the labels of the node and those of its plugin."""
    labels, warnings = plugin_node_labels(node, own)
    recorder.use_labels(labels)
    for warning in warnings:
        log.warning("%s", warning)


def gather_results(futures: Sequence[Any]) -> list[Any]:
    """The results of all calls; raises the first error once all calls are done."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise errors[0]
    return [future.result() for future in futures]

"""A stateless transform of a plugin: an instance in every process that has rows for it.

The instance of a process is made when the first rows come, and kept. It gets no markers and has no state; its counts
are sent along with its rows. In an executor it ends with the process, without `terminate`.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.connector import (
    BadRow,
    Counted,
    Epoch,
    KeyValues,
    Placement,
    Processor,
    Runtime,
    Transform,
    TransformCapabilities,
    TransformContext,
)
from streamling.errors import STATE_UNREADABLE, StreamlingError, UserError
from streamling.plan.types import Schema
from streamling.plugin.context import PluginContext, Recorder
from streamling.plugin.loading import find_again
from streamling.plugin.nodes.group import set_labels
from streamling.plugin.nodes.instance import LAST_CALL_S, Instance
from streamling.plugin.registration import PluginKind, PluginOrigin
from streamling.spec.pipeline import NodeSpec
from streamling.telemetry.labels import node_labels
from streamling.telemetry.metrics import MetricKind, Metrics, Recording

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.plugin.nodes.kinds import PluginNode


class StatelessTransform(Transform):
    """The control side: options in, processors out."""

    def __init__(self, node: NodeSpec, options: PluginNode) -> None:
        self._node = node
        self._options = options
        self.capabilities = TransformCapabilities(Placement.ANY, deterministic=options.registration.deterministic)
        self._processor: StatelessProcessor | None = None
        self._recorder = Recorder(Metrics(), {})

    def open(self, context: TransformContext) -> None:
        registration = self._options.registration
        self._processor = StatelessProcessor(
            context.node,
            self._node.name,
            self._node.described(),
            context.application,
            registration.id,
            registration.origin,
            tuple(sorted(self._options.effective_options().items())),
            context.input_schema,
            context.schema,
            self._options.batch_limits[0],
        )
        plugin = self._processor.instance().instance  # so that errors of `initialize` come before the first row
        if plugin.has("labels"):
            set_labels(self._recorder, self._node, dict(plugin.call("labels") or {}))

    def processor(self) -> Processor:
        if self._processor is None:
            raise AssertionError("not opened")
        return self._processor

    def attach(self, runtime: Runtime) -> None:
        self._recorder = Recorder(runtime.metrics, node_labels(self._node), runtime.set_labels)

    def count(self, counts: Mapping[str, int]) -> None:
        for series, count in counts.items():
            name, tags = json.loads(series)
            self._recorder.record_count(name, count, tags)

    def close(self) -> None:
        if self._processor is not None:
            self._processor.end()


@dataclass(frozen=True, slots=True)
class StatelessProcessor:
    node: str
    name: str
    described: str
    application: str
    plugin: str
    origin: PluginOrigin
    options: tuple[tuple[str, str], ...]
    input_schema: Schema
    schema: Schema
    batch_rows: int | None

    def process(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BadRow | Counted]:
        from streamling.formats.arrow import rebatch
        from streamling.formats.exchange import to_plugin
        from streamling.plugin.nodes.batches import accept_batches, process

        own = self.instance()
        for batch in rebatch(batches, self.batch_rows):
            bad: list[BadRow] = []
            with own.lock:  # tasks of one executor have processes of their own; in the driver there may be threads
                results = process([own.instance], [to_plugin(batch, self.input_schema, self.name)], bad)
                counts = own.counts.take()
            yield from bad
            yield from (Counted(series, count) for series, count in counts.items())
            for result in results:
                yield from accept_batches(result, self.schema, self.name, self.described, "process_batch")

    def instance(self) -> ProcessInstance:
        """The instance of this process, made with the first call."""
        with _lock:
            instance = _instances.get(self)
            if instance is None:
                instance = _instances[self] = self._make_instance()
            return instance

    def _make_instance(self) -> ProcessInstance:
        from streamling.formats.exchange import exchange_schema

        counts = ProcessCounts()
        target = find_again(self.plugin, PluginKind.TRANSFORM, self.origin).target
        context = PluginContext(
            self.node,
            application_id=self.application,
            input_schema=exchange_schema(self.input_schema),
            store=_no_state,
            metrics=Recorder(counts, {}),
        )
        instance = Instance(target(context, dict(self.options)), node=self.name, described=self.described)
        instance.call("initialize")
        return ProcessInstance(instance, counts, threading.Lock())

    def end(self) -> None:
        """Close the instance of this process, if there is one."""
        with _lock:
            own = _instances.pop(self, None)
        if own is not None:
            try:
                own.instance.end().result(LAST_CALL_S)
            except (StreamlingError, TimeoutError):
                return  # the run ends anyway


class ProcessCounts(Recording):
    """Counts go back to the driver with the rows they belong to. Gauges and latencies of processors are not collected.

    A series is the name and the tags of a count, as JSON.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()

    def take(self) -> Counter[str]:
        counts, self._counts = self._counts, Counter()
        return counts

    def _record(self, kind: MetricKind, name: str, value: float, labels: dict[str, str]) -> None:
        if kind is MetricKind.COUNT:
            self._counts[json.dumps([name, labels], sort_keys=True)] += int(value)


@dataclass(frozen=True, slots=True)
class ProcessInstance:
    instance: Instance
    counts: ProcessCounts
    lock: threading.Lock


def _no_state() -> KeyValues:
    hint = "a plugin that needs state must not be `stateless`"
    raise UserError(STATE_UNREADABLE, "a stateless plugin has no state", hint=hint)


_instances: dict[StatelessProcessor, ProcessInstance] = {}
_lock = threading.Lock()

"""A source of a plugin in its run: rows in hand, and a position that the plugin keeps itself.

Delivery: at least once. The plugin notes its position at a marker and stores it when the epoch is durable everywhere;
after a crash it begins where it last stored.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from streamling.connector import BadRow, Json, Offer, Reader, Room, Runtime, Source, SourceCapabilities
from streamling.errors import INTERNAL, BugError
from streamling.plan.types import Schema
from streamling.plugin.nodes.group import InstanceGroup
from streamling.plugin.nodes.instance import Instance
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.plugin.nodes.kinds import PluginNode

# An offer should not keep who asks: a quick plugin answers in that time, a slow one is asked again later.
_PATIENCE_S = 0.05
# Behind the last marker nothing is asked again: what is not noted then comes again after a restart. The
# wait for the last epoch is longer unless the shutdown budget is below four seconds.
_LAST_PATIENCE_S = 1.5


class _Stream:
    """One instance: generates, is marked between two batches, and ends.

    A marker must not come behind rows that belong to no epoch yet: the plugin would count them to this one, and a
    crash would lose them. So a batch that is being generated is waited for, and goes into the epoch. If it takes too
    long, the marker waits instead: if the batch turns out to be empty, it is passed on; if not, a later marker takes
    its place, and nothing is generated until that has come.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._lock = threading.Lock()  # finalizers come from another thread
        self._generating: Future[Any] | None = None
        self._hooks: list[Future[Any]] = []
        self._late_marker: int | None = None
        self._late_finalizer: int | None = None
        self._waits_for_marker = False
        self._marked = -1
        self.ended = False

    def start(self) -> None:
        """Ask for a batch, if none is on its way and one may be."""
        self._check_hooks()
        with self._lock:
            if self.ended or self._waits_for_marker or self._generating is not None:
                return
            if self._instance.has("is_running") and not self._instance.call("is_running"):
                self.ended = True
                return
            self._generating = self._instance.submit("generate_batch")

    def next(self, patience: float) -> Any:
        """What `generate_batch` gave; None if there is nothing now, or not yet."""
        if self._generating is None:
            return None
        try:
            batch = self._generating.result(patience)
        except TimeoutError:
            return None
        with self._lock:
            self._generating = None
            self._settle_marker(empty=not getattr(batch, "num_rows", 0))
        return batch

    def mark(self, epoch: int, patience: float) -> Any:
        """Returns the batch that was on its way, if it came in time."""
        batch = self.next(patience)
        with self._lock:
            if self._generating is not None:
                # It takes the place of an earlier one that is late too, whose finalizer would speak of nothing.
                self._late_marker = epoch
                self._late_finalizer = None
                return None
            self._waits_for_marker = False
            self._late_marker = None
            self._late_finalizer = None
            self._pass_marker(epoch)
        return batch

    def finalized(self, epoch: int) -> None:
        """At once, or behind the batch that is being generated: the caller does not wait for that."""
        with self._lock:
            self._finalized(epoch)

    def _finalized(self, epoch: int) -> None:
        if epoch > self._marked:
            self._late_finalizer = epoch
            return
        hook = self._instance.submit("process_checkpoint_finalizer", epoch)
        if self._generating is None:
            hook.result()
        else:
            self._hooks.append(hook)

    def _settle_marker(self, *, empty: bool) -> None:
        if self._late_marker is None:
            return
        epoch, self._late_marker = self._late_marker, None
        if not empty:
            self._waits_for_marker = True
            return
        self._pass_marker(epoch)
        if self._late_finalizer is not None and self._late_finalizer <= epoch:
            late, self._late_finalizer = self._late_finalizer, None
            self._finalized(late)

    def _pass_marker(self, epoch: int) -> None:
        self._instance.call("process_checkpoint_marker", epoch)
        self._marked = epoch

    def _check_hooks(self) -> None:
        """An error of a hook that nobody waited for ends the run all the same."""
        with self._lock:
            done = [hook for hook in self._hooks if hook.done()]
            self._hooks = [hook for hook in self._hooks if not hook.done()]
        for hook in done:
            hook.result()


class PluginSource(Source):
    capabilities = SourceCapabilities(replayable=False)

    def __init__(self, node: NodeSpec, options: PluginNode) -> None:
        self._node = node
        self._options = options
        planned = options.ask_plugin(node, None)
        if planned.columns is None:
            raise BugError(INTERNAL, "the plugin has no columns", node=node.name)
        self.columns: Schema = planned.columns
        self._bounded = planned.bounded
        self._width = options.width(node, None, (), 1)
        self._runtime: Runtime | None = None
        self._group: InstanceGroup | None = None
        self._streams: list[_Stream] = []

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def open(self, positions: Mapping[str, Json]) -> None:
        """Instances are made anew each time: after fencing the plugin has to start from what is stored."""
        self.close()
        self._group = InstanceGroup(self._node, self._options, self._runtime, self._width, None)
        self._group.initialize()
        self._streams = [_Stream(instance) for instance in self._group.instances]

    def offer(self, room: Room) -> Offer | None:
        batches: list[pa.RecordBatch] = []
        bad: list[BadRow] = []
        until = time.monotonic() + _PATIENCE_S
        while sum(batch.num_rows for batch in batches) + len(bad) < room.rows:
            for stream in self._streams:
                stream.start()
            found = self._accepted(_in_time(_PATIENCE_S, self._streams, _Stream.next), bad)
            batches += found
            if not found or time.monotonic() > until:
                break
        return _offer(batches, bad)

    def mark(self, epoch: int, *, last: bool = False) -> Offer | None:
        bad: list[BadRow] = []
        patience = _LAST_PATIENCE_S if last else _PATIENCE_S
        late = self._accepted(_in_time(patience, self._streams, lambda stream, left: stream.mark(epoch, left)), bad)
        return _offer(late, bad)

    def finalized(self, epoch: int) -> None:
        for stream in self._streams:
            stream.finalized(epoch)

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def ended(self) -> bool:
        return bool(self._streams) and all(stream.ended for stream in self._streams)

    def reader(self) -> Reader:
        return _Unreadable()

    def close(self) -> None:
        if self._group is not None:
            self._group.terminate()
            self._group = None

    def _accepted(self, given: Sequence[object], bad: list[BadRow]) -> list[pa.RecordBatch]:
        """The batches with rows; bad rows are added to `bad`."""
        from streamling.plugin.nodes.batches import accept_batches

        name, described = self._node.name, self._node.described()
        items = [item for one in given for item in accept_batches(one, self.columns, name, described, "generate_batch")]
        bad += [item for item in items if isinstance(item, BadRow)]
        return [item for item in items if not isinstance(item, BadRow)]


def _offer(batches: Sequence[pa.RecordBatch], bad: Sequence[BadRow]) -> Offer | None:
    return Offer(batches=tuple(batches), bad_rows=tuple(bad)) if batches or bad else None


def _in_time(patience: float, streams: Sequence[_Stream], ask: Callable[[_Stream, float], Any]) -> list[Any]:
    """What all streams answer within one time: they are at it side by side."""
    until = time.monotonic() + patience
    return [ask(stream, max(0.0, until - time.monotonic())) for stream in streams]


class _Unreadable:
    """Rows in hand are not read a second time."""

    def read(self, part: Json) -> Iterator[pa.RecordBatch]:
        raise BugError(INTERNAL, f"a plugin source has nothing to read at {part!r}")

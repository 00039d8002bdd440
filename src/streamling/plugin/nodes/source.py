"""The source of a plugin: it offers rows instead of slices, and the plugin keeps its own position.

Delivery: at least once. The plugin notes its position at a marker and stores it when the epoch is durable in every
sink; after a crash it starts from the stored position.
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

# An offer must not block: a fast plugin answers in that time, a slow one is asked again later.
_WAIT_S = 0.05
# After the last marker nothing is asked again: rows whose position is not noted by then come again after a restart. The
# engine waits longer than this for the last epoch, unless the shutdown budget is below four seconds.
_LAST_WAIT_S = 1.5


class _Stream:
    """One instance: generates batches, gets markers between two batches, and ends.

    A marker must not come after rows that belong to no epoch yet: the plugin would count them as part of this one, and
    a crash would lose them. So a marker waits for a batch that is being generated, and the batch goes into the epoch.
    If that takes too long, the marker is late: if the batch turns out to be empty, the late marker is passed on; if
    not, the next marker replaces it, and nothing is generated until that one has come.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._lock = threading.Lock()  # finalizers come from another thread
        self._generating: Future[Any] | None = None
        self._generating_since = 0.0
        self._finalizers: list[Future[Any]] = []
        self._late_marker: int | None = None
        self._late_finalizer: int | None = None
        self._waits_for_marker = False
        self._marked = -1
        self.ended = False

    def start(self) -> None:
        """Start to generate a batch, unless one is being generated or a marker must come first."""
        self._check_finalizers()
        with self._lock:
            if self.ended or self._waits_for_marker or self._generating is not None:
                return
            if self._instance.has("is_running") and not self._instance.call("is_running"):
                self.ended = True
                return
            self._generating_since = time.monotonic()
            self._generating = self._instance.submit("generate_batch")

    @property
    def generating_since(self) -> float | None:
        """Since when `generate_batch` has not returned. Any thread may read it."""
        generating = self._generating
        return None if generating is None or generating.done() else self._generating_since

    def next(self, wait_seconds: float) -> Any:
        """The result of `generate_batch`; None if there is none yet."""
        if self._generating is None:
            return None
        try:
            batch = self._generating.result(wait_seconds)
        except TimeoutError:
            return None
        with self._lock:
            self._generating = None
            self._pass_late_marker(empty=not getattr(batch, "num_rows", 0))
        return batch

    def mark(self, epoch: int, wait_seconds: float) -> Any:
        """Returns the batch that was being generated, if it came in time."""
        batch = self.next(wait_seconds)
        with self._lock:
            if self._generating is not None:
                # It replaces an earlier late marker, whose finalizer would have no position to store.
                self._late_marker = epoch
                self._late_finalizer = None
                return None
            self._waits_for_marker = False
            self._late_marker = None
            self._late_finalizer = None
            self._pass_marker(epoch)
        return batch

    def finalized(self, epoch: int) -> None:
        """At once, or after the batch that is being generated: the caller does not wait for it."""
        with self._lock:
            self._finalized(epoch)

    def _finalized(self, epoch: int) -> None:
        if epoch > self._marked:
            self._late_finalizer = epoch
            return
        finalizer = self._instance.submit("process_checkpoint_finalizer", epoch)
        if self._generating is None:
            finalizer.result()
        else:
            self._finalizers.append(finalizer)

    def _pass_late_marker(self, *, empty: bool) -> None:
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

    def _check_finalizers(self) -> None:
        """Raise the error of a finalizer that was not waited for: it ends the run as well."""
        with self._lock:
            done = [finalizer for finalizer in self._finalizers if finalizer.done()]
            self._finalizers = [finalizer for finalizer in self._finalizers if not finalizer.done()]
        for finalizer in done:
            finalizer.result()


class PluginSource(Source):
    capabilities = SourceCapabilities(replayable=False)

    def __init__(self, node: NodeSpec, options: PluginNode) -> None:
        self._node = node
        self._options = options
        answer = options.ask_plugin(node, None)
        if answer.columns is None:
            raise BugError(INTERNAL, "the plugin has no columns", node=node.name)
        self.columns: Schema = answer.columns
        self._bounded = answer.bounded
        self._width = options.width(node, None, (), 1)
        self._runtime: Runtime | None = None
        self._group: InstanceGroup | None = None
        self._streams: list[_Stream] = []

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def open(self, positions: Mapping[str, Json]) -> None:
        """Makes new instances each time: after fencing, the plugin has to start from its stored position."""
        self.close()
        self._group = InstanceGroup(self._node, self._options, self._runtime, self._width, None)
        self._group.initialize()
        self._streams = [_Stream(instance) for instance in self._group.instances]

    def offer(self, room: Room) -> Offer | None:
        batches: list[pa.RecordBatch] = []
        bad: list[BadRow] = []
        until = time.monotonic() + _WAIT_S
        while sum(batch.num_rows for batch in batches) + len(bad) < room.rows:
            for stream in self._streams:
                stream.start()
            generated = self._accept(_ask_streams(_WAIT_S, self._streams, _Stream.next), bad)
            batches += generated
            if not generated or time.monotonic() > until:
                break
        return _offer(batches, bad)

    def mark(self, epoch: int, *, last: bool = False) -> Offer | None:
        bad: list[BadRow] = []
        seconds = _LAST_WAIT_S if last else _WAIT_S
        results = _ask_streams(seconds, self._streams, lambda stream, left: stream.mark(epoch, left))
        return _offer(self._accept(results, bad), bad)

    def finalized(self, epoch: int) -> None:
        for stream in self._streams:
            stream.finalized(epoch)

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def ended(self) -> bool:
        return bool(self._streams) and all(stream.ended for stream in self._streams)

    def reading_since(self) -> float | None:
        since = [stream.generating_since for stream in self._streams]
        return min((began for began in since if began is not None), default=None)

    def reader(self) -> Reader:
        return _NothingToRead()

    def close(self) -> None:
        if self._group is not None:
            self._group.terminate()
            self._group = None

    def _accept(self, results: Sequence[object], bad: list[BadRow]) -> list[pa.RecordBatch]:
        """The batches with rows; bad rows are added to `bad`."""
        from streamling.plugin.nodes.batches import accept_batches

        name, described = self._node.name, self._node.described()
        items = [
            item
            for result in results
            for item in accept_batches(result, self.columns, name, described, "generate_batch")
        ]
        bad += [item for item in items if isinstance(item, BadRow)]
        return [item for item in items if not isinstance(item, BadRow)]


def _offer(batches: Sequence[pa.RecordBatch], bad: Sequence[BadRow]) -> Offer | None:
    return Offer(batches=tuple(batches), bad_rows=tuple(bad)) if batches or bad else None


def _ask_streams(seconds: float, streams: Sequence[_Stream], ask: Callable[[_Stream, float], Any]) -> list[Any]:
    """The answers of all streams within this time: they work in parallel."""
    until = time.monotonic() + seconds
    return [ask(stream, max(0.0, until - time.monotonic())) for stream in streams]


class _NothingToRead:
    """The reader of a source that offers rows instead of slices."""

    def read(self, part: Json) -> Iterator[pa.RecordBatch]:
        raise BugError(INTERNAL, f"a plugin source has nothing to read at {part!r}")

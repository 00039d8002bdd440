"""Live inspection: the newest rows of every source and transform, as JSON, for the admin API.

Sampling is rare by design. Each node has a number of credits; a stored row costs one, which comes back when the row is
older than the refresh time. The engine asks `wanted` in every epoch and takes rows only where credits are left, so
inspection costs a comparison per node and epoch.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from streamling.spec.settings import Settings

# Rows are shown to people: longer ones are cut. All samples of a run together need little memory, so that of many nodes
# shorter rows are stored. In characters.
_LONGEST_ROW, _SHORTEST_ROW = 64 << 10, 1 << 10
_ALL_ROWS = 64 << 20
# Many programs take these for the end of a line, and so for the end of an event. The other ones are escaped in JSON.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A row of a node; `row` is a JSON object as text, because numbers may have more digits than a Python float."""

    node: str
    row: str

    def event(self) -> str:
        """The sample as a JSON object of the admin API."""
        row = self.row if self.row.isascii() else self.row.translate(_LINE_ENDS)
        return f'{{"topology_node_key":{json.dumps(self.node)},"data":{row}}}'


class Subscription:
    """The samples that one client has not got yet. If there are too many, it has `fallen_behind` and gets no more."""

    def __init__(self, samples: Samples, nodes: Container[str] | None, notify: Callable[[], object]) -> None:
        self._samples = samples
        self._nodes = nodes
        self._notify = notify
        self._waiting: deque[Sample] = deque()
        self.fallen_behind = False

    def take(self) -> list[Sample]:
        """The samples since the last call, oldest first."""
        taken: list[Sample] = []
        while self._waiting:  # `offer` may append meanwhile
            taken.append(self._waiting.popleft())
        return taken

    def offer(self, samples: Iterable[Sample], room: int) -> None:
        """Called by the thread that adds rows; never waits."""
        wanted = [sample for sample in samples if self._nodes is None or sample.node in self._nodes]
        if not wanted or self.fallen_behind:
            return
        if len(self._waiting) + len(wanted) > room:
            self.fallen_behind = True
            self._waiting.clear()
        else:
            self._waiting.extend(wanted)
        self._notify()

    def close(self) -> None:
        self._samples.unsubscribe(self)


def samples_for(settings: Settings) -> Samples | None:
    """The samples of a run; None if its settings do not ask for any."""
    if not settings.live_data_inspect_enabled:
        return None
    block = settings.live_data_inspect
    return Samples(per_node=block.records_per_topology_node, refresh_s=block.refresh_in_secs)


class _NodeSamples:
    """The newest rows of one node with the times when they were stored, and the time of the next credit."""

    def __init__(self, per_node: int) -> None:
        self.rows: deque[tuple[float, Sample]] = deque(maxlen=per_node)
        self.next_credit = 0.0
        """Until this time there is no credit."""


class Samples:
    """The newest rows of the nodes of a run. Any thread may call any method.

    nodes       names of sources and transforms; they may also become known later, with `set_nodes`
    per_node    rows that are kept per node, and the credits of a node
    refresh_s   the age in seconds at which the credit of a row comes back
    """

    def __init__(
        self,
        nodes: Sequence[str] = (),
        per_node: int = 15,
        refresh_s: float = 30.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_node = per_node
        self._refresh_s = refresh_s
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[str, _NodeSamples] = {}
        self._subscriptions: tuple[Subscription, ...] = ()
        self.set_nodes(nodes)

    def set_nodes(self, nodes: Sequence[str]) -> None:
        """The nodes whose rows may be sampled, in the order of the plan. Rows stored before are dropped."""
        with self._lock:
            self._nodes = {name: _NodeSamples(self._per_node) for name in nodes} if self._per_node else {}

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    @property
    def longest_row(self) -> int:
        """The characters of a row that are stored; longer rows should be cut before they are added."""
        rows = max(1, len(self._nodes) * self._per_node)
        return max(_SHORTEST_ROW, min(_LONGEST_ROW, _ALL_ROWS // rows))

    def wanted(self, node: str) -> int:
        """How many rows of a node would be stored now; 0 if its credits are used up."""
        known = self._nodes.get(node)
        if known is None:
            return 0
        now = self._clock()
        if now < known.next_credit:
            return 0
        with self._lock:
            return self._credits(known, now)

    def add(self, node: str, rows: Sequence[str]) -> list[Sample]:
        """Store rows, JSON objects as text, the newest last: as many of the newest as there are credits for. Returns
        what was stored; long rows are shortened."""
        known = self._nodes.get(node)
        if known is None or not rows:
            return []
        with self._lock:
            now = self._clock()
            credits = self._credits(known, now)
            newest = rows[max(0, len(rows) - credits) :] if credits else ()
            added = [Sample(node, self._bounded(row)) for row in newest]
            known.rows.extend((now, sample) for sample in added)
            if len(added) == credits:
                known.next_credit = known.rows[0][0] + self._refresh_s
            room = max(1, len(self._nodes) * self._per_node)
            for subscription in self._subscriptions if added else ():
                subscription.offer(added, room)
            return added

    def stored(self, nodes: Container[str] | None = None) -> list[Sample]:
        """The stored rows of these nodes, or of all, node by node, the newest first."""
        with self._lock:
            return self._stored(nodes)

    def subscribe(
        self, nodes: Container[str] | None = None, notify: Callable[[], object] = lambda: None
    ) -> tuple[list[Sample], Subscription]:
        """The stored rows, and a subscription to those that are added from now on; close it after use.

        `notify` is called after every addition by the thread that adds: it must not wait or raise.
        """
        subscription = Subscription(self, nodes, notify)
        with self._lock:  # for both, so that no row is in neither or in both
            self._subscriptions = (*self._subscriptions, subscription)
            return self._stored(nodes), subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)

    def _stored(self, nodes: Container[str] | None) -> list[Sample]:
        chosen = [known for name, known in self._nodes.items() if nodes is None or name in nodes]
        return [sample for known in chosen for _, sample in reversed(known.rows)]

    def _credits(self, known: _NodeSamples, now: float) -> int:
        young = sum(1 for stored, _ in known.rows if now < stored + self._refresh_s)
        return self._per_node - young

    def _bounded(self, row: str) -> str:
        """Whatever is added, memory is limited."""
        if len(row) <= 2 * self.longest_row:
            return row
        return json.dumps({"_truncated": f"{row[:_SHORTEST_ROW]}... ({len(row):,} characters)"}, ensure_ascii=False)

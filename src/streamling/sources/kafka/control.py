"""What goes on beside reading, in a thread of its own: whose the partitions are, what the group is told, how far
behind the process is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamling.clients.kafka import Broker
from streamling.errors import SOURCE_FAILED, StreamlingError, TransientError
from streamling.retry import retry
from streamling.sources.kafka.membership import Membership
from streamling.spec.settings.blocks import KafkaConnection
from streamling.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# How long the group's events are waited for at a time, and thereby how often the group is told of offsets.
_TICK_S = 0.25
# How soon a partition is noticed that was added to the topic, by a process that is alone.
_LOOK_S = 30.0
# A partition is given away when no epoch has anything of it. An epoch that takes longer than this loses it, is fenced
# and comes again with its next owner.
_GIVE_AWAY_S = 30.0
# From here on it is worth a word that the group has assigned nothing.
_UNASSIGNED_S = 60.0
LAG = "kafka_consumer.messages_lag"


@dataclass(frozen=True, slots=True)
class Watching:
    """`group` None: the process is alone, all partitions are its own. Times in seconds."""

    name: str
    topic: str
    group: str | None
    labels: Mapping[str, str]
    report_every: float
    stalled_after: float
    state: str
    """Who sees the stored offsets: `process`, `host`, or `all`."""


class _Every:
    """Due once in so many seconds, for the first time when these have passed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        if time.monotonic() - self._last <= self._seconds:
            return False
        self.restart()
        return True


class Control:
    """`changed` is called when partitions have come or gone, or when something is wrong for good."""

    def __init__(self, watching: Watching, connection: KafkaConnection) -> None:
        self._watching, self._connection = watching, connection
        self._changed: Callable[[], None] = lambda: None
        self._metrics = Metrics()
        self._lock = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._assigned: frozenset[int] = frozenset()
        self._owned: frozenset[int] = frozenset()
        self._known: frozenset[int] = frozenset()
        self._durable: dict[int, int] = {}
        self._to_tell: dict[int, int] = {}
        self._reported: frozenset[int] = frozenset()
        self._moved: float | None = None
        self._warned = 0.0
        self._trouble: str | None = None
        self._company = False
        self.broker: Broker | None = None
        """There as soon as partitions are."""

    # What the source asks and says

    def start(self, changed: Callable[[], None], metrics: Metrics) -> None:
        self._changed, self._metrics = changed, metrics
        self._thread = threading.Thread(target=self._run, name=f"kafka {self._watching.name}", daemon=True)
        self._thread.start()

    def assigned(self) -> frozenset[int]:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return self._assigned

    def own(self, partitions: frozenset[int]) -> None:
        """Nothing of other partitions is under way any longer."""
        with self._lock:
            self._owned = partitions
            self._durable = {number: at for number, at in self._durable.items() if number in partitions}
            self._lock.notify_all()

    def is_new(self, partition: int) -> bool:
        """Whether a partition has appeared while this process runs."""
        return partition not in self._known

    def durable(self, offsets: Mapping[int, int], *, tell: bool = True) -> None:
        """Everything before these offsets is delivered."""
        with self._lock:
            self._durable.update(offsets)
            if tell:
                self._to_tell.update(offsets)

    def moved(self) -> None:
        """Rows were found."""
        self._moved, self._trouble = time.monotonic(), None

    @property
    def trouble(self) -> str | None:
        return self._trouble

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    # The thread

    def _run(self) -> None:
        membership: Membership | None = None
        try:
            broker = self._first_look()
            if broker is None:
                return
            if self._watching.group is not None:
                membership = self._join(self._watching.group)
            self._turns(broker, membership)
        except Exception as error:  # raised by `assigned`, in the thread that asks
            if isinstance(error, StreamlingError):
                error.node = error.node or self._watching.name
            with self._lock:
                self._failure = error
            self._changed()
        finally:
            if membership is not None:
                self._tell(membership)
                membership.close()

    def _first_look(self) -> Broker | None:
        """Find the topic, however long it takes. None if the run ends before."""
        what, closing = f"source {self._watching.name}: finding the topic", self._closing
        try:
            return retry(self._look, what=what, stopping=closing.is_set, sleep=closing.wait, on_trouble=self._hear)
        except TransientError:
            if not closing.is_set():
                raise
            return None

    def _look(self) -> Broker | None:
        if self._closing.is_set():  # while it was waited
            return None
        broker = Broker(self._connection, self._watching.topic, SOURCE_FAILED)
        self._known = frozenset(broker.partitions())
        self.broker = broker
        if self._watching.group is None:
            self._gain(self._known)
        return broker

    def _hear(self, trouble: str | None) -> None:
        self._trouble = trouble

    def _join(self, group: str) -> Membership:
        return Membership(self._connection, self._watching.topic, group, gained=self._gain, lost=self._lose)

    def _turns(self, broker: Broker, membership: Membership | None) -> None:
        watching = self._watching
        look, report = _Every(_LOOK_S), _Every(watching.report_every)
        watch, unassigned = _Every(min(watching.stalled_after, 5.0)), _Every(_UNASSIGNED_S)
        while not self._closing.is_set():
            if membership is not None:
                membership.poll(_TICK_S)
                self._tell(membership)
            else:
                self._closing.wait(_TICK_S)
            try:
                if membership is None and look.due():
                    self._gain(frozenset(broker.partitions()))
                if membership is not None:
                    self._look_at_group(broker, unassigned)
                if report.due():
                    self._report(broker)
                if watch.due():
                    self._watch(broker)
            except TransientError as error:  # reading says so too, and louder
                log.debug("source %s: %s", watching.name, error.message)

    def _look_at_group(self, broker: Broker, unassigned: _Every) -> None:
        if self.assigned():
            unassigned.restart()
        elif unassigned.due():
            self._say_unassigned(broker)
        if self._company:
            self._company = False
            self._look_at_company(broker)

    # Partitions

    def _gain(self, partitions: frozenset[int]) -> None:
        with self._lock:
            if partitions <= self._assigned:
                return
            self._assigned |= partitions
        if self._watching.group is not None:
            self._company = True
            log.info("source %s: got partitions %s", self._watching.name, _listed(partitions))
        self._changed()

    def _lose(self, partitions: frozenset[int], late: bool) -> None:
        log.info("source %s: gives up partitions %s", self._watching.name, _listed(partitions))
        with self._lock:
            self._assigned -= partitions
        self._changed()
        deadline = time.monotonic() + _GIVE_AWAY_S
        with self._lock:
            while not late and self._owned & partitions and not self._closing.is_set():
                if (left := deadline - time.monotonic()) <= 0:
                    log.warning("source %s: an epoch goes on with partitions given up", self._watching.name)
                    break
                self._lock.wait(left)

    def _say_unassigned(self, broker: Broker) -> None:
        members = len(broker.members(self._watching.group or ""))
        log.warning(
            "source %s: the group '%s' has assigned no partition for %.0f s; it has %d members and the topic %d "
            "partitions",
            self._watching.name,
            self._watching.group,
            _UNASSIGNED_S,
            members,
            len(self._known),
        )

    def _look_at_company(self, broker: Broker) -> None:
        """Offsets that only this process or this host can see are of no use to the others."""
        if self._watching.state == "all":
            return
        hosts = broker.members(self._watching.group or "")
        apart = {"process": len(hosts) > 1, "host": len(set(hosts)) > 1}
        if apart[self._watching.state]:
            log.warning(
                "source %s: the group '%s' has %d members, and the state backend is seen by this %s only: when "
                "partitions move, rows come again or are left out. Use a state backend that all of them share",
                self._watching.name,
                self._watching.group,
                len(hosts),
                self._watching.state,
            )

    def _tell(self, membership: Membership) -> None:
        with self._lock:
            offsets, self._to_tell = self._to_tell, {}
        if offsets:
            membership.commit(offsets)

    # How far behind

    def _report(self, broker: Broker) -> None:
        with self._lock:
            durable = dict(self._durable)
        labels = dict(self._watching.labels)
        for number in self._reported - durable.keys():
            self._metrics.forget(LAG, labels | {"partition": str(number)})
        for number, end in broker.end(durable).items():
            self._metrics.gauge(LAG, max(0, end - durable[number]), labels | {"partition": str(number)})
        self._reported = frozenset(durable)

    def _watch(self, broker: Broker) -> None:
        """Rows were seen, none for a long time, and there are more, or nobody knows."""
        now = time.monotonic()
        with self._lock:
            durable = dict(self._durable)
        if self._moved is None or now - self._moved <= self._watching.stalled_after or not durable:
            return
        try:
            behind: int | None = sum(max(0, end - durable[n]) for n, end in broker.end(durable).items())
        except TransientError:
            behind = None
        if behind == 0:
            self._trouble = None
            return
        left = "nobody knows how many are left" if behind is None else f"{behind} are left"
        first = self._trouble is None
        self._trouble = f"no rows for {now - self._moved:.0f} s; {left}"
        if first or now - self._warned > self._watching.stalled_after:
            self._warned = now
            log.warning("source %s is stalled: %s", self._watching.name, self._trouble)


def _listed(partitions: frozenset[int]) -> str:
    return ", ".join(str(number) for number in sorted(partitions)) or "none"

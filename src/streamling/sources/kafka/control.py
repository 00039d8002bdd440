"""A thread per topic, beside the readers: assigned partitions, offsets committed to the consumer group, lag."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from streamling.clients.kafka import Broker
from streamling.errors import SOURCE_FAILED, StreamlingError, TransientError
from streamling.log_context import log_fields
from streamling.retry import retry
from streamling.sources.kafka.group_members import GroupMembers, MemberLabel
from streamling.sources.kafka.group_watch import GroupWatch
from streamling.sources.kafka.membership import Membership
from streamling.spec.settings.blocks import KafkaSourceSettings
from streamling.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# How long one poll waits for events of the group; offsets are committed after each poll.
_TICK_S = 0.25
# How often a process without a group looks for partitions that were added to the topic, and one with a group for
# members of other applications. Both are also noticed when the group assigns partitions.
_LOOK_S = 30.0
# How often the id of the topic is compared: rows that are read of a topic that was created again are read once more.
_TOPIC_S = 10.0
# A revoked partition is released when no epoch has rows of it. An epoch that takes longer than this is fenced, and the
# next owner reads its rows again.
_RELEASE_S = 30.0
# How often a process without partitions finds out what it waits for, and how often it warns of that.
_WATCH_S = 5.0
_UNASSIGNED_S = 60.0
# How often a source without new rows is compared with its topic.
_STALL_CHECK_S = 5.0
LAG = "kafka_consumer.messages_lag"


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """`group` None: the process reads all partitions, without a consumer group. Times in seconds."""

    name: str
    topic: str
    group: str | None
    labels: Mapping[str, str]
    report_every: float
    stalled_after: float
    asked_every: float = 0.0
    """How often a run that waits for rows asks for them."""


class _Every:
    """Due once in so many seconds, for the first time after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def restart(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        if time.monotonic() - self._last <= self._seconds:
            return False
        self.restart()
        return True


class Control:
    """`changed` is called when the assignment changes, and when the thread has failed permanently."""

    def __init__(self, options: ControlOptions, connection: KafkaSourceSettings) -> None:
        self._options = options
        self._connection = connection
        self._changed: Callable[[], None] = lambda: None
        self._metrics = Metrics()
        self._lock = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._assigned: frozenset[int] = frozenset()
        self._owned: frozenset[int] = frozenset()
        self._durable: dict[int, int] = {}
        self._to_commit: dict[int, int] = {}
        self._with_lag: frozenset[int] = frozenset()
        """Partitions that have a lag gauge."""
        self._last_rows: float | None = None
        self._unread_since: float | None = None
        """Since when the broker has messages and the run, which waits for them, has got none."""
        self._is_asked = False
        self._last_answer = 0.0
        self._read_to: Mapping[int, int] = {}
        """By partition: the offset up to which the run has rows, delivered or not."""
        self._last_warning = 0.0
        self._trouble: str | None = None
        self._waiting_for: str | None = None
        """Why no partition is assigned."""
        self._members: GroupMembers | None = None
        self._is_group_new = False
        """Partitions were assigned or revoked since the members of the group were last compared."""
        self.application = ""
        self.generation = ""
        """Identity of the state. Both are set before the start."""
        self.broker: Broker | None = None
        """Set before any partition is assigned, and so is the id of the topic."""
        self.topic_id: str | None = None
        """The id of the topic, if the broker reports one."""

    # Called by the source

    def start(self, changed: Callable[[], None], metrics: Metrics) -> None:
        self._changed = changed
        self._metrics = metrics
        run = log_fields(node=self._options.name)(self._run)
        self._thread = threading.Thread(target=run, name=f"kafka {self._options.name}", daemon=True)
        self._thread.start()

    def assigned(self) -> frozenset[int]:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return self._assigned

    def own(self, partitions: frozenset[int]) -> None:
        """No epoch has rows of other partitions any longer."""
        with self._lock:
            self._owned = partitions
            self._durable = {number: at for number, at in self._durable.items() if number in partitions}
            self._lock.notify_all()

    def set_durable(self, offsets: Mapping[int, int], *, commit: bool = True) -> None:
        """Everything before these offsets is delivered. `commit`: also commit them to the group."""
        with self._lock:
            self._durable.update(offsets)
            if commit:
                self._to_commit.update(offsets)

    def refresh_topic_id(self) -> None:
        if self.broker is not None:
            self.topic_id = self.broker.topic_id() or self.topic_id

    def note_request(self) -> None:
        """The run asks for rows. While an epoch is under way it may not, for however long: then nothing is stalled."""
        self._is_asked = True

    def note_answer(self, read_to: Mapping[int, int], *, has_rows: bool) -> None:
        """The run has an answer. Not called for a request that has failed: the run still waits for rows."""
        self._is_asked = False
        self._last_answer = time.monotonic()
        self._read_to = read_to
        if has_rows:
            self._last_rows = self._last_answer
            self._unread_since = self._trouble = None

    def _is_waited_for(self) -> bool:
        """Whether the run waits for rows: while it does, it asks again and again."""
        longest_pause = max(self._options.stalled_after / 2, 2 * self._options.asked_every)
        return self._is_asked or time.monotonic() - self._last_answer <= longest_pause

    @property
    def trouble(self) -> str | None:
        return self._waiting_for or self._trouble

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
            broker = self._find_topic()
            if broker is None:
                return
            if self._options.group is not None:
                membership = self._join(broker, self._options.group)
            self._loop(broker, membership)
        except Exception as error:  # raised by `assigned`, in the thread that calls it
            if isinstance(error, StreamlingError):
                error.node = error.node or self._options.name
            with self._lock:
                self._failure = error
            self._changed()
        finally:
            if membership is not None:
                self._commit(membership)
                membership.close()

    def _find_topic(self) -> Broker | None:
        """Looks up the topic, with retries without limit. None if the run ends before."""
        what, closing = f"source {self._options.name}: finding the topic", self._closing
        try:
            return retry(
                self._look, what=what, stopping=closing.is_set, sleep=closing.wait, on_trouble=self._set_trouble
            )
        except TransientError:
            if not closing.is_set():
                raise
            return None

    def _look(self) -> Broker | None:
        if self._closing.is_set():  # during the pause between two attempts
            return None
        broker = Broker(self._connection, self._options.topic, SOURCE_FAILED)
        partitions = frozenset(broker.partitions())
        self.topic_id = broker.topic_id()
        self.broker = broker
        if self._options.group is None:
            self._gain(partitions)
        return broker

    def _set_trouble(self, trouble: str | None) -> None:
        self._trouble = trouble

    def _join(self, broker: Broker, group: str) -> Membership:
        label = MemberLabel(self.application, self._options.topic, self.generation)
        self._members = GroupMembers(broker, self._options.name, group, label)
        session_s = self._connection.session_timeout_ms / 1000
        self._members.wait_until_free(session_s, self._closing, self._set_trouble)
        client_id = label.to_client_id(self._connection.client_id)
        return Membership(
            self._connection, self._options.topic, group, client_id, on_gain=self._gain_of_group, on_loss=self._lose
        )

    def _loop(self, broker: Broker, membership: Membership | None) -> None:
        options = self._options
        look, topic, report = _Every(_LOOK_S), _Every(_TOPIC_S), _Every(options.report_every)
        stall_check = _Every(min(options.stalled_after, _STALL_CHECK_S))
        watch = self._watch(broker, membership)
        while not self._closing.is_set():
            if membership is not None:
                membership.poll(_TICK_S)
                self._commit(membership)
            else:
                self._closing.wait(_TICK_S)
            try:
                if membership is None and look.due():
                    self._gain(frozenset(broker.partitions()))
                if topic.due():
                    self.refresh_topic_id()
                if watch is not None:
                    watch()
                if self._members is not None and (self._is_group_new or look.due()):
                    self._members.check()
                    self._is_group_new = False
                if report.due():
                    self._report_lag(broker)
                if stall_check.due():
                    self._check_stall(broker)
            except TransientError as error:  # the readers report it too, at a higher level
                log.debug("source %s: %s", options.name, error.message)

    def _watch(self, broker: Broker, membership: Membership | None) -> Callable[[], None] | None:
        """To be called after each poll; None without a group."""
        if membership is None or self._members is None:
            return None
        watch = GroupWatch(broker, self._members, membership, self._options.name, self._options.group or "")
        due, warn = _Every(_WATCH_S), _Every(_UNASSIGNED_S)

        def look() -> None:
            if self.assigned():
                self._waiting_for = None
                for one in (due, warn, watch):
                    one.restart()
            elif due.due():
                self._waiting_for = watch.look()
                if self._waiting_for is None:
                    warn.restart()
                elif warn.due():
                    log.warning("source %s: %s", self._options.name, self._waiting_for)

        return look

    # Partitions

    def _gain(self, partitions: frozenset[int]) -> None:
        with self._lock:
            if partitions <= self._assigned:
                return
            self._assigned |= partitions
        self._changed()

    def _gain_of_group(self, partitions: frozenset[int]) -> None:
        """Compares the members before a row is read: two applications may have joined at the same time."""
        self._is_group_new = True
        if self._members is not None:
            with suppress(TransientError):  # checked again until the broker answers
                self._members.check()
                self._is_group_new = False
        log.info("source %s: assigned partitions %s", self._options.name, _format_numbers(partitions))
        self._gain(partitions)

    def _lose(self, partitions: frozenset[int], late: bool) -> None:
        log.info("source %s: revoked partitions %s", self._options.name, _format_numbers(partitions))
        with self._lock:
            self._assigned -= partitions
        self._is_group_new = True
        self._changed()
        deadline = time.monotonic() + _RELEASE_S
        with self._lock:
            while not late and self._owned & partitions and not self._closing.is_set():
                if (left := deadline - time.monotonic()) <= 0:
                    log.warning(
                        "source %s: an epoch still has rows of the revoked partitions after %.0f s; it will be fenced",
                        self._options.name,
                        _RELEASE_S,
                    )
                    break
                self._lock.wait(left)

    def _commit(self, membership: Membership) -> None:
        with self._lock:
            offsets, self._to_commit = self._to_commit, {}
        membership.commit(offsets)

    # Lag

    def _report_lag(self, broker: Broker) -> None:
        with self._lock:
            durable = dict(self._durable)
        labels = dict(self._options.labels)
        for number in self._with_lag - durable.keys():
            self._metrics.forget(LAG, labels | {"partition": str(number)})
        for number, end in broker.end(durable).items():
            self._metrics.gauge(LAG, max(0, end - durable[number]), labels | {"partition": str(number)})
        self._with_lag = frozenset(durable)

    def _check_stall(self, broker: Broker) -> None:
        """Warns if the run waits for rows and gets none, although the broker has more, or does not answer."""
        now = time.monotonic()
        is_quiet = self._last_rows is not None and now - self._last_rows > min(
            self._options.stalled_after, _STALL_CHECK_S
        )
        unread = self._unread(broker) if is_quiet and self._is_waited_for() else 0
        if unread == 0:
            self._unread_since = self._trouble = None
            return
        self._unread_since = self._unread_since or now
        if now - self._unread_since <= self._options.stalled_after:
            return
        text = "lag unknown (the broker does not answer)" if unread is None else f"lag {unread}"
        is_first = self._trouble is None
        self._trouble = f"no rows for {now - self._unread_since:.0f} s; {text}"
        if is_first or now - self._last_warning > self._options.stalled_after:
            self._last_warning = now
            log.warning("source %s is stalled: %s", self._options.name, self._trouble)

    def _unread(self, broker: Broker) -> int | None:
        """The messages that the run has not got yet; None if the broker does not answer."""
        with self._lock:
            read_to = {number: max(at, self._read_to.get(number, at)) for number, at in self._durable.items()}
        if not read_to:
            return 0
        try:
            return sum(max(0, end - read_to[number]) for number, end in broker.end(read_to).items())
        except TransientError:
            return None


def _format_numbers(partitions: frozenset[int]) -> str:
    return ", ".join(str(number) for number in sorted(partitions)) or "none"

"""The broker as the control side and the readers see it: settings, errors, partitions and offsets."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from streamling.clients.open_files import file_limit, is_out_of_files
from streamling.clients.tls import HOW_TO_TRUST, trusted_certificates
from streamling.errors import OPEN_FILES, Condition, PermanentError, StreamlingError, TransientError
from streamling.spec.faults import did_you_mean
from streamling.spec.mask import mask_text
from streamling.spec.settings.blocks import KafkaConnection

log = logging.getLogger(__name__)

# Limit of a request: a broker that is alive answers within milliseconds, one that fails over within seconds.
REQUEST_SECONDS = 10.0
# Limit of the lookup of a topic id, which is repeated later anyway.
_ID_SECONDS = 3.0
# Limit of a question to the coordinator of a group, which is repeated as well.
_COORDINATOR_SECONDS = 5.0
# How long partitions may be without a leader before that is a failure: until a broker leads a partition that was added,
# or another broker takes over, a fraction of a second passes.
_ELECTION_SECONDS = 1.0
_ELECTION_POLL_SECONDS = 0.05
# How soon denied access is noticed.
_POLL_SECONDS = 1.0
# Instead of a timestamp: the protocol's values for the two ends of a log.
_OLDEST, _END = -2, -1
# A consumer that only looks up offsets needs a group id, and never joins the group.
_LOOKUP_GROUP = "streamling-asking"
# Brokers before Kafka 2.8 report this id for every topic: zero.
_NO_TOPIC_ID = "A" * 22


class LogEnd(NamedTuple):
    """The offset after the last message that may be read, and the epoch of the leader that reported it, if known."""

    offset: int
    leader_epoch: int | None


class Member(NamedTuple):
    """A member of a consumer group. `id` is the one that the coordinator gave to it."""

    id: str
    client_id: str
    host: str


class Group(NamedTuple):
    """A consumer group. `state` as the broker names it, such as Stable or PreparingRebalance."""

    state: str
    members: tuple[Member, ...]


def client_settings(connection: KafkaConnection) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": connection.brokers,
        "security.protocol": connection.security_protocol.value,
        "socket.connection.setup.timeout.ms": 5000,
        # Errors are raised; the client would print them as well.
        "log_level": 0,
    }
    if connection.security_protocol.sasl:
        settings["sasl.mechanism"] = connection.sasl_mechanism
        settings["sasl.username"] = connection.sasl_username
        settings["sasl.password"] = connection.sasl_password.reveal() if connection.sasl_password else ""
    if connection.security_protocol.tls and (trusted := trusted_certificates()):
        settings["ssl.ca.location"] = trusted
    if connection.client_id:
        settings["client.id"] = connection.client_id
    return settings | _service_settings(connection.brokers)


def _service_settings(brokers: str) -> dict[str, Any]:
    """Settings for a service that keeps messages in an object store: a fetch is slow, so it should return much."""
    if "warpstream" not in brokers.lower():
        return {}
    return {
        "topic.metadata.refresh.interval.ms": 60_000,
        "fetch.max.bytes": 50 << 20,
        "max.partition.fetch.bytes": 5 << 20,
    }


def access_denied_callback(what: str, condition: Condition) -> Callable[[Any], None]:
    """An `error_cb`, which clients call while they are polled: raises PermanentError if a broker denies access.

    The request itself only reports that no broker answers, and the client goes on trying.
    """

    def check(error: Any) -> None:
        if is_permanent(error):
            raise kafka_failure(what, error, condition)

    return check


def kafka_failure(what: str, error: Any, condition: Condition) -> StreamlingError:
    """An error of the client as one of ours: permanent for access and settings, transient for everything else."""
    from confluent_kafka import KafkaError, KafkaException

    cause = error.args[0] if isinstance(error, KafkaException) else error
    if is_out_of_files():  # the client only reports that brokers are not reached
        return out_of_files(what)
    if not isinstance(cause, KafkaError):
        return TransientError(condition, f"{what}: the broker does not answer")
    if not is_permanent(cause):
        return TransientError(condition, f"{what}: {mask_text(cause.str())}")
    hint = HOW_TO_TRUST if cause.code() == KafkaError._SSL else None
    return PermanentError(condition, f"{what}: {mask_text(cause.str())}", hint=hint)


def out_of_files(what: str) -> PermanentError:
    limit = file_limit()
    return PermanentError(
        OPEN_FILES,
        f"{what}: this process has {'too many' if limit is None else f'{limit:,}'} open files, and may not open more",
        hint="raise the limit: `ulimit -n` of the shell, LimitNOFILE of a service, nofile of a container",
    )


def is_permanent(error: Any) -> bool:
    """Whether an error of the client is one that a retry cannot fix; None is no error."""
    from confluent_kafka import KafkaError

    if error is None:
        return False
    if error.code() == KafkaError._SSL:
        # A connection that breaks during the handshake has the same code.
        return "certificate verify failed" in error.str()
    return error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._INVALID_ARG,
    )


@contextmanager
def client_errors(what: str, condition: Condition) -> Iterator[None]:
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, TimeoutError) as error:
        raise kafka_failure(what, error, condition) from error


class TopicIdLookup:
    """Looks up the id of a topic, which is another one after it was deleted and created again. Keeps its client."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._admin: Any = None

    def find(self) -> str | None:
        """None if the broker does not report an id, denies it, or does not answer."""
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        try:
            if self._admin is None:
                self._admin = AdminClient(client_settings(self._connection))
            topics = TopicCollection([self._topic])
            (description,) = self._admin.describe_topics(topics, request_timeout=_ID_SECONDS).values()
            id_ = str(description.result(_ID_SECONDS).topic_id)
        except (KafkaException, TimeoutError) as error:
            log.debug("the id of topic '%s' cannot be looked up: %s", self._topic, error)
            return None
        return None if id_ == _NO_TOPIC_ID else id_


def topic_id_lookup(connection: KafkaConnection, topic: str) -> TopicIdLookup:
    """The one of this process."""
    with _id_lock:
        return _id_lookups.setdefault((connection.brokers, topic), TopicIdLookup(connection, topic))


_id_lookups: dict[tuple[str, str], TopicIdLookup] = {}
_id_lock = threading.Lock()


class Broker:
    """Looks up partitions and offsets of one topic."""

    def __init__(self, connection: KafkaConnection, topic: str, condition: Condition) -> None:
        from confluent_kafka import Consumer

        self._topic = topic
        self._connection = connection
        self._condition = condition
        what = f"topic '{topic}' cannot be read at {connection.brokers}"
        self._settings = {**client_settings(connection), "error_cb": access_denied_callback(what, condition)}
        # Readers do not see past the start of an open transaction: look up offsets as they do. This uses a consumer,
        # not the admin client, which can crash the process when a broker goes away while it lists offsets.
        lookup = {"group.id": _LOOKUP_GROUP, "enable.auto.commit": False, "isolation.level": "read_committed"}
        with client_errors(what, condition):
            self._client = Consumer(self._settings | lookup)

    def partitions(self) -> tuple[int, ...]:
        """Raises PermanentError if there is no such topic."""
        found = self.find_partitions()
        if found is not None:
            return found
        with self._lookup(f"topics cannot be looked up at {self._connection.brokers}"):
            names = tuple(sorted(self._client.list_topics(timeout=REQUEST_SECONDS).topics))
        message = f"there is no topic '{self._topic}' at {self._connection.brokers}"
        raise PermanentError(self._condition, message, hint=did_you_mean(self._topic, names))

    def find_partitions(self) -> tuple[int, ...] | None:
        """None if there is no such topic. Does not create it."""
        from confluent_kafka import KafkaError

        with self._lookup(f"topic '{self._topic}' cannot be looked up at {self._connection.brokers}"):
            topic = self._metadata().topics[self._topic]
            if topic.error is None:
                return tuple(sorted(topic.partitions))
            if topic.error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                raise kafka_failure(f"topic '{self._topic}' cannot be looked up", topic.error, self._condition)
        return None

    def _metadata(self) -> Any:
        """The metadata of the topic. Does not wait for brokers that deny access, nor for files to be closed."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                return self._client.list_topics(self._topic, timeout=_POLL_SECONDS)
            except KafkaException:
                self._client.poll(0)
                if time.monotonic() > deadline or is_out_of_files():
                    raise

    @contextmanager
    def _lookup(self, what: str) -> Iterator[None]:
        """Turns errors of the client into ours.

        The client only reports that no broker answers; if access was denied, that is raised instead, unless the denial
        is older than this lookup.
        """
        with suppress(PermanentError):
            self._client.poll(0)
        try:
            with client_errors(what, self._condition):
                yield
        except TransientError:
            self._client.poll(0)
            raise

    def first(self, partitions: Collection[int]) -> dict[int, int]:
        """By partition, the oldest offset that is left."""
        return {number: answer.offset for number, answer in self._offsets(partitions, _OLDEST).items()}

    def end(self, partitions: Collection[int]) -> dict[int, int]:
        """By partition, the offset after the last message that may be read."""
        return {number: end.offset for number, end in self.ends(partitions).items()}

    def ends(self, partitions: Collection[int]) -> dict[int, LogEnd]:
        """The same, with the epochs of the leaders."""
        return self._offsets(partitions, _END)

    def at(self, partitions: Collection[int], milliseconds: int) -> dict[int, int]:
        """By partition, the offset of the first message of that time or later; the end if there is none."""
        offsets = {n: answer.offset for n, answer in self._offsets(partitions, milliseconds).items()}
        found = {number: offset for number, offset in offsets.items() if offset >= 0}
        return {**found, **self.end(offsets.keys() - found.keys())}

    def topic_id(self) -> str | None:
        return topic_id_lookup(self._connection, self._topic).find()

    def group(self, name: str) -> Group:
        """A group as its coordinator sees it. Without members if there is no such group yet, or if the broker does not
        show it.

        Does not use `describe_consumer_groups`: the client aborts the process if the broker goes away meanwhile.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with self._lookup(f"the group '{name}' cannot be looked up at {self._connection.brokers}"):
            groups = AdminClient(self._settings).list_groups(name, timeout=REQUEST_SECONDS)
            for found in groups:
                if found.error is not None:
                    raise KafkaException(found.error)
            members = [
                Member(member.id, member.client_id, member.client_host.lstrip("/"))
                for found in groups
                for member in found.members
            ]
            return Group(groups[0].state if groups else "", tuple(members))

    def check_coordinator(self, group: str) -> None:
        """Raises if the coordinator of a group does not answer a new client, whatever other clients make of it."""
        from confluent_kafka import Consumer, TopicPartition

        what = f"the coordinator of the group '{group}' does not answer at {self._connection.brokers}"
        with client_errors(what, self._condition):
            client = Consumer({**self._settings, "group.id": group, "enable.auto.commit": False})
            try:
                (answer,) = client.committed([TopicPartition(self._topic, 0)], timeout=_COORDINATOR_SECONDS)
            finally:
                client.close()
        if answer.error:
            raise kafka_failure(what, answer.error, self._condition)

    def _offsets(self, partitions: Collection[int], time_: int) -> dict[int, LogEnd]:
        """The answers by partition. Partitions that cannot be looked up now, because they have no leader for instance,
        are left out; raises if that is so for all of them."""
        from confluent_kafka import TopicPartition

        if not partitions:
            return {}
        what = f"offsets of topic '{self._topic}' cannot be looked up at {self._connection.brokers}"
        requests = [TopicPartition(self._topic, number, time_) for number in partitions]
        with self._lookup(what):
            answers = self._ask_for_offsets(requests)
        failures = [kafka_failure(what, answer.error, self._condition) for answer in answers if answer.error]
        for failure in failures:
            if isinstance(failure, PermanentError) or len(failures) == len(answers):
                raise failure
            log.debug("%s", failure.message)
        return {a.partition: LogEnd(a.offset, _leader_epoch(a)) for a in answers if a.error is None}

    def _ask_for_offsets(self, requests: list[Any]) -> list[Any]:
        """Asks again if what the client knows of the topic is old, and for a moment while no partition has a leader."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _ELECTION_SECONDS
        answers, errors = self._ask_once(requests)
        if any(map(_is_old_metadata, errors)):
            self._metadata()  # the client remembers for minutes how many partitions the topic had
            answers, errors = self._ask_once(requests)
        while len(errors) == len(requests) and any(map(_is_old_metadata, errors)) and time.monotonic() < deadline:
            time.sleep(_ELECTION_POLL_SECONDS)
            self._metadata()
            answers, errors = self._ask_once(requests)
        if not answers:
            raise KafkaException(errors[0])
        return answers

    def _ask_once(self, requests: list[Any]) -> tuple[list[Any], list[Any]]:
        """The answers and the errors among them; if the request as a whole failed, its error for each partition."""
        from confluent_kafka import KafkaException

        try:
            answers = self._client.offsets_for_times(requests, timeout=REQUEST_SECONDS)
        except KafkaException as error:
            return [], [error.args[0]] * len(requests)
        return answers, [answer.error for answer in answers if answer.error]


def _is_old_metadata(error: Any) -> bool:
    """Whether a request failed because partitions were added or their leaders changed."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    )


def _leader_epoch(answer: Any) -> int | None:
    epoch = answer.leader_epoch
    return epoch if isinstance(epoch, int) and epoch >= 0 else None

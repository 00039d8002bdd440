"""The broker as the control side and the readers see it: settings, errors, partitions and offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from streamling.clients.tls import HOW_TO_TRUST, trusted_certificates
from streamling.errors import Condition, PermanentError, StreamlingError, TransientError
from streamling.spec.faults import did_you_mean
from streamling.spec.settings.blocks import KafkaConnection

# What a request may take: a broker that is alive answers within milliseconds, one that fails over within seconds.
REQUEST_SECONDS = 10.0
# How soon it is noticed that brokers do not let us in.
_LOOK_SECONDS = 1.0
# In place of a time: what the protocol takes for the two ends of a log.
_OLDEST, _BEHIND_ALL = -2, -1
# Clients that ask need the name of a group, and never join it.
_ASKING = "streamling-asking"


def client_settings(connection: KafkaConnection) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": connection.brokers,
        "security.protocol": connection.security_protocol.value,
        "socket.connection.setup.timeout.ms": 5000,
        # What goes wrong is raised; the client would print it too.
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
    """What suits a service that keeps messages in an object store: each fetch is slow, so it should bring much."""
    if "warpstream" not in brokers.lower():
        return {}
    return {
        "topic.metadata.refresh.interval.ms": 60_000,
        "fetch.max.bytes": 50 << 20,
        "max.partition.fetch.bytes": 5 << 20,
    }


def access_denied_callback(what: str, condition: Condition) -> Callable[[Any], None]:
    """An `error_cb`, which clients call while they are polled: raises PermanentError if brokers do not let us in.

    As an answer a client gives no more than that nobody answers, and goes on trying.
    """

    def heard(error: Any) -> None:
        if _lasting(error):
            raise kafka_failure(what, error, condition)

    return heard


def kafka_failure(what: str, error: Any, condition: Condition) -> StreamlingError:
    """An error of the client as ours: access and settings do not mend themselves, everything else may pass."""
    from confluent_kafka import KafkaError, KafkaException

    found = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(found, KafkaError):
        return TransientError(condition, f"{what}: the broker does not answer")
    if not _lasting(found):
        return TransientError(condition, f"{what}: {found.str()}")
    hint = HOW_TO_TRUST if found.code() == KafkaError._SSL else None
    return PermanentError(condition, f"{what}: {found.str()}", hint=hint)


def _lasting(error: Any) -> bool:
    from confluent_kafka import KafkaError

    if error.code() == KafkaError._SSL:
        # A connection that breaks while it is made is of the same code.
        return "certificate verify failed" in error.str()
    return error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG,
    )


@contextmanager
def client_errors(what: str, condition: Condition) -> Iterator[None]:
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, TimeoutError) as error:
        raise kafka_failure(what, error, condition) from error


class Broker:
    """Asks for partitions and offsets of one topic."""

    def __init__(self, connection: KafkaConnection, topic: str, condition: Condition) -> None:
        from confluent_kafka import Consumer

        self._topic = topic
        self._connection = connection
        self._condition = condition
        what = f"topic '{topic}' cannot be read at {connection.brokers}"
        self._settings = {**client_settings(connection), "error_cb": access_denied_callback(what, condition)}
        # An open transaction hides what is behind its begin from readers: ask as they do. A consumer is asked, not the
        # admin client, which can take the process down when a broker goes away while it lists offsets.
        asking = {"group.id": _ASKING, "enable.auto.commit": False, "isolation.level": "read_committed"}
        with client_errors(what, condition):
            self._client = Consumer(self._settings | asking)

    def partitions(self) -> tuple[int, ...]:
        """Raises PermanentError if there is no such topic."""
        from confluent_kafka import KafkaError

        with self._asking(f"topic '{self._topic}' cannot be looked up at {self._connection.brokers}"):
            found = self._listed().topics[self._topic]
            if found.error is None:
                return tuple(sorted(found.partitions))
            if found.error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                raise kafka_failure(f"topic '{self._topic}' cannot be looked up", found.error, self._condition)
            names = tuple(sorted(self._client.list_topics(timeout=REQUEST_SECONDS).topics))
        message = f"there is no topic '{self._topic}' at {self._connection.brokers}"
        raise PermanentError(self._condition, message, hint=did_you_mean(self._topic, names))

    def _listed(self) -> Any:
        """What there is to know of the topic. Brokers that refuse us are not waited for."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                return self._client.list_topics(self._topic, timeout=_LOOK_SECONDS)
            except KafkaException:
                self._client.poll(0)
                if time.monotonic() > deadline:
                    raise

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """The client only says that nobody answers; if it was refused, that is the news, unless it is old."""
        with suppress(PermanentError):
            self._client.poll(0)
        try:
            with client_errors(what, self._condition):
                yield
        except TransientError:
            self._client.poll(0)
            raise

    def first(self, partitions: Collection[int]) -> dict[int, int]:
        """The oldest offset that is left, by partition."""
        return self._offsets(partitions, _OLDEST)

    def end(self, partitions: Collection[int]) -> dict[int, int]:
        """The offset behind everything that may be read, by partition."""
        return self._offsets(partitions, _BEHIND_ALL)

    def at(self, partitions: Collection[int], milliseconds: int) -> dict[int, int]:
        """The offset of the first message of that time or later, by partition; the end if there is none."""
        found = self._offsets(partitions, milliseconds)
        late = self.end([number for number, offset in found.items() if offset < 0])
        return {**found, **late}

    def members(self, group: str) -> tuple[str, ...]:
        """The hosts of the processes that are in a group."""
        from confluent_kafka.admin import AdminClient

        with self._asking(f"the group '{group}' cannot be looked up at {self._connection.brokers}"):
            admin = AdminClient(self._settings)
            (asked,) = admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS).values()
            return tuple(member.host for member in asked.result(REQUEST_SECONDS).members)

    def _offsets(self, partitions: Collection[int], time_: int) -> dict[int, int]:
        from confluent_kafka import TopicPartition

        if not partitions:
            return {}
        what = f"offsets of topic '{self._topic}' cannot be looked up at {self._connection.brokers}"
        places = [TopicPartition(self._topic, number, time_) for number in partitions]
        with self._asking(what):
            answers = self._client.offsets_for_times(places, timeout=REQUEST_SECONDS)
        for answer in answers:
            if answer.error is not None:
                raise kafka_failure(what, answer.error, self._condition)
        return {answer.partition: answer.offset for answer in answers}

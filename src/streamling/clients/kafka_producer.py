"""A producer of one topic, with or without transactions, and the classes of its errors.

access denied, topic gone, setting refused     PermanentError
message larger than the broker accepts         MessagesRejected
another producer took the transactional id     LostTransaction, a TransientError: make a new producer
everything else                                TransientError
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from streamling.clients.kafka import Broker, client_settings, is_permanent, kafka_failure
from streamling.clients.kafka_calls import call_within, guarded
from streamling.errors import SINK_FAILED, PermanentError, StreamlingError, TransientError
from streamling.spec.settings.blocks import KafkaConnection

# A request of a transaction: the broker may have to load its log, or finish an earlier transaction.
_TRANSACTION_SECONDS = 20.0
# The broker aborts a transaction that is open for longer. Rows are in memory before it begins, so it lasts seconds.
# Messages behind it wait until then if a process dies and is not started again.
_TRANSACTION_TIMEOUT_MS = 120_000
# Without transactions: as long as an outage of the broker may last before messages count as failed.
_MESSAGE_TIMEOUT_MS = 600_000
# If no message was acknowledged for so long, the attempt fails, so that the outage is logged and shown.
_STALLED_SECONDS = 30.0
# The client waits for a topic that has vanished, as if it were about to come: look it up after so long.
_LOOK_SECONDS = 3.0
_FLUSH_SECONDS = 0.5
_ABORT_SECONDS = 5.0
# Arguments of `produce`: the partitioner chooses, by key; the time of the call.
_ANY_PARTITION, _NOW = -1, 0
# Between two looks at delivery reports.
_POLL_EVERY = 10_000
# Enough for the client to keep a broker busy; more would only take memory.
_QUEUE_KBYTES = 262_144
_QUEUE_MESSAGES = 500_000
# The client counts a few bytes per message on top of key and value.
_OVERHEAD_BYTES = 1024
_LEAST_MESSAGE_BYTES, _LEAST_BATCH_BYTES = 1000, 1

_SILENT = logging.getLogger(f"{__name__}.client")
_SILENT.disabled = True

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """`batch_bytes`: the largest batch that the topic accepts; None if unknown."""

    batch_messages: int
    linger_ms: int
    message_bytes: int
    compression: str
    batch_bytes: int | None = None


class LostTransaction(TransientError):
    """The transaction was aborted and this producer cannot be used any more."""

    remedied = True


class MessagesRejected(TransientError):
    """The broker rejects messages because of their size."""

    def __init__(self, message: str, rejected: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        super().__init__(SINK_FAILED, message)
        self.rejected = tuple(rejected)
        """Key and value of each."""


@dataclass(slots=True)
class _Deliveries:
    """What the callbacks of the client have reported: failed messages, and the last error of a connection."""

    transactional: bool = False
    failed: list[tuple[Any, Any]] = field(default_factory=list)
    trouble: Any = None

    has_failed: bool = False
    """Whether the others need not be waited for: a message has failed for a reason that is not its own, or the
    transaction has failed with it."""

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append((error, message))
            is_own = _is_too_large(error) or _is_purged(error)
            self.has_failed = self.has_failed or self.transactional or not is_own

    def take_failed(self) -> list[tuple[Any, Any]]:
        failed, self.failed, self.has_failed = self.failed, [], False
        return failed

    def on_error(self, error: Any) -> None:
        if not is_permanent(self.trouble):
            self.trouble = error


class _Patience:
    """Waits for the broker to acknowledge messages. Raises an error if it does not."""

    def __init__(self, what: str, deliveries: _Deliveries, topic_is_gone: Callable[[], bool]) -> None:
        self._what = what
        self._deliveries = deliveries
        self._topic_is_gone = topic_is_gone
        self._since = time.monotonic()
        self._has_looked = False

    def check(self) -> None:
        trouble = self._deliveries.trouble
        if is_permanent(trouble):
            raise kafka_failure(self._what, trouble, SINK_FAILED)
        waited = time.monotonic() - self._since
        if waited > _LOOK_SECONDS and not self._has_looked:
            self._has_looked = True
            if self._topic_is_gone():
                raise _topic_gone(self._what)
        if waited > _STALLED_SECONDS:
            why = f": {trouble.str()}" if trouble is not None else ""
            message = f"{self._what}: no message was acknowledged for {_STALLED_SECONDS:.0f} s{why}"
            raise TransientError(SINK_FAILED, message)


def _is_too_large(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError.MSG_SIZE_TOO_LARGE)


def _is_purged(error: Any) -> bool:
    """Whether the client has dropped a message because of another one."""
    from confluent_kafka import KafkaError

    return error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


def _topic_gone(what: str) -> PermanentError:
    hint = "a new start creates it, or create it yourself"
    return PermanentError(SINK_FAILED, f"{what}: the topic does not exist any more", hint=hint)


class TopicProducer:
    """All calls come from one thread at a time. After LostTransaction, or a failed `abort`, it must be discarded."""

    def __init__(
        self, connection: KafkaConnection, topic: str, options: ProducerOptions, transactional_id: str | None = None
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._transactional_id = transactional_id
        self._deliveries = _Deliveries(transactional=transactional_id is not None)
        self._what = f"topic '{topic}' cannot be written at {connection.brokers}"
        self._producer = self._make(options)

    def _make(self, options: ProducerOptions) -> Any:
        from confluent_kafka import KafkaException, Producer

        settings = {
            **client_settings(self._connection),
            "acks": "all",
            "enable.idempotence": True,
            "batch.num.messages": min(options.batch_messages, 1_000_000),
            "linger.ms": options.linger_ms,
            "message.max.bytes": max(options.message_bytes + _OVERHEAD_BYTES, _LEAST_MESSAGE_BYTES),
            "compression.type": options.compression,
            "queue.buffering.max.messages": _QUEUE_MESSAGES,
            "queue.buffering.max.kbytes": _QUEUE_KBYTES,
            # Reports of messages that were delivered would cost a call of Python each.
            "delivery.report.only.error": True,
            "on_delivery": self._deliveries.on_delivery,
            "error_cb": self._deliveries.on_error,
            # Errors are raised; the client would also print those that end it, whatever `log_level` says.
            "logger": _SILENT,
        }
        if options.batch_bytes is not None:
            settings["batch.size"] = max(min(options.batch_bytes, 1_000_000), _LEAST_BATCH_BYTES)
        if self._transactional_id is None:
            settings["message.timeout.ms"] = _MESSAGE_TIMEOUT_MS
        else:
            settings["transactional.id"] = self._transactional_id
            settings["transaction.timeout.ms"] = _TRANSACTION_TIMEOUT_MS
        try:
            return Producer(settings)
        except KafkaException as error:
            raise kafka_failure(self._what, error, SINK_FAILED) from error

    # Messages

    def send(self, values: Iterable[bytes], keys: Iterable[bytes], headers: Iterable[Headers]) -> None:
        """Queue messages; they are delivered when `flush` returns."""
        from confluent_kafka import KafkaException

        produce, topic = self._producer.produce, self._topic
        until_poll = _POLL_EVERY
        try:
            for value, key, header in zip(values, keys, headers, strict=True):
                while True:
                    try:
                        # All arguments by position: with one keyword the client looks for the others in a dictionary,
                        # and a call takes 0.9 instead of 0.6 microseconds.
                        produce(topic, value, key, _ANY_PARTITION, None, None, _NOW, header)
                        break
                    except BufferError:
                        self._wait_for_room()
                until_poll -= 1
                if not until_poll:
                    until_poll = _POLL_EVERY
                    guarded(lambda: self._producer.poll(0))
        except KafkaException as error:
            raise self._failure(self._what, error.args[0]) from error

    def _wait_for_room(self) -> None:
        """Until the queue of the client has room again."""
        before, patience = len(self._producer), self._new_patience()
        while len(self._producer) >= before and not self._deliveries.has_failed:
            guarded(lambda: self._producer.poll(0.05))
            patience.check()
        if self._deliveries.has_failed:
            self._raise_failed()

    def flush(self) -> None:
        """Wait until the broker has acknowledged every message. Raises the first error of a delivery; without a
        transaction, MessagesRejected only when all other messages are acknowledged."""
        from confluent_kafka import KafkaException

        left, patience = len(self._producer), self._new_patience()
        try:
            while (now := guarded(self._flush_some)) and not self._deliveries.has_failed:
                if now < left:
                    left, patience = now, self._new_patience()
                patience.check()
        except KafkaException as error:
            raise self._failure(self._what, error.args[0]) from error
        self._raise_failed()

    def _flush_some(self) -> int:
        """How many messages are left after a moment."""
        return int(self._producer.flush(_FLUSH_SECONDS))

    def _new_patience(self) -> _Patience:
        return _Patience(self._what, self._deliveries, self._topic_is_gone)

    def _raise_failed(self) -> None:
        failed = self._deliveries.take_failed()
        if not failed:
            return
        too_large = [message for error, message in failed if _is_too_large(error)]
        others = [pair for pair in failed if not (_is_too_large(pair[0]) or _is_purged(pair[0]))]
        if too_large and not others:
            pairs = [(message.key(), message.value()) for message in too_large]
            raise MessagesRejected(f"{self._what}: {failed[0][0].str()}", pairs)
        error, message = (others or failed)[0]
        if not others:
            error = self._transaction_error() or error
        key = (message.key() or b"")[:80].decode(errors="replace")
        what = (
            f"a message with the key '{key}' was not delivered to topic '{self._topic}' at {self._connection.brokers}"
        )
        raise self._failure(what, error)

    def _transaction_error(self) -> Any:
        """Why the client has dropped the messages of a transaction: it says so when it is asked for anything else."""
        from confluent_kafka import KafkaException, TopicPartition

        if self._transactional_id is None:
            return None
        metadata = _group_metadata(self._transactional_id)
        offsets = [TopicPartition(self._topic, 0, 0)]
        try:
            call_within(
                _ABORT_SECONDS + 1,
                lambda: self._producer.send_offsets_to_transaction(offsets, metadata, _ABORT_SECONDS),
            )
        except KafkaException as error:
            return error.args[0]
        except TimeoutError:
            return None
        return None

    def _failure(self, what: str, error: Any) -> StreamlingError:
        from confluent_kafka import KafkaError

        if is_permanent(error):
            return kafka_failure(what, error, SINK_FAILED)
        if error.fatal() or error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError._FATAL):
            return LostTransaction(SINK_FAILED, f"{what}: {error.str()}")
        if error.code() in (
            KafkaError.INVALID_PRODUCER_EPOCH,
            KafkaError.INVALID_PRODUCER_ID_MAPPING,
            KafkaError.UNKNOWN_PRODUCER_ID,
            KafkaError._STATE,
        ):
            return LostTransaction(SINK_FAILED, f"{what}: {error.str()}")
        if error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART) and self._topic_is_gone():
            return _topic_gone(what)
        return kafka_failure(what, error, SINK_FAILED)

    def _topic_is_gone(self) -> bool:
        """A broker that has just started may not know the topic for a moment: ask again."""
        with suppress(TransientError):
            return Broker(self._connection, self._topic, SINK_FAILED).find_partitions() is None
        return False

    # Transactions

    def init(self) -> None:
        """Fence every other producer of the transactional id, and abort what it has begun."""
        self._request("transactions cannot be used", lambda: self._producer.init_transactions(_TRANSACTION_SECONDS))

    def begin(self) -> None:
        self._deliveries.take_failed()
        self._request("a transaction cannot be begun", self._producer.begin_transaction)

    def store_offset(self, group: str, text: str) -> None:
        """Store a text with the transaction: as metadata of an offset of the group, for partition 0 of the topic."""
        from confluent_kafka import TopicPartition

        offsets = [TopicPartition(self._topic, 0, 0, metadata=text)]
        what = f"the positions cannot be stored in the group '{group}'"
        metadata = _group_metadata(group)
        self._request(what, lambda: self._producer.send_offsets_to_transaction(offsets, metadata, _TRANSACTION_SECONDS))

    def commit(self) -> None:
        self._request(
            "a transaction cannot be committed", lambda: self._producer.commit_transaction(_TRANSACTION_SECONDS)
        )

    def abort(self) -> bool:
        """Whether the transaction was aborted and the producer can be used again."""
        from confluent_kafka import KafkaException

        try:
            call_within(_ABORT_SECONDS + 1, lambda: self._producer.abort_transaction(_ABORT_SECONDS))
        except (KafkaException, TimeoutError):
            return False
        finally:
            self._deliveries.take_failed()
        return True

    def _request(self, what: str, action: Callable[[], object]) -> None:
        """A request of a transaction. The client retries it until its timeout.

        After a request that has timed out the producer must be discarded.
        """
        from confluent_kafka import KafkaException

        what = f"{what} (topic '{self._topic}' at {self._connection.brokers})"
        self._deliveries.trouble = None
        try:
            call_within(_TRANSACTION_SECONDS + 1, action)
        except TimeoutError as error:
            message = f"{what}: the broker has not answered for {_TRANSACTION_SECONDS:.0f} s"
            raise LostTransaction(SINK_FAILED, message) from error
        except KafkaException as error:
            with suppress(KafkaException):  # it is the same error
                guarded(lambda: self._producer.poll(0))
            trouble = self._deliveries.trouble
            if is_permanent(trouble):  # the request itself only says that it timed out
                raise kafka_failure(what, trouble, SINK_FAILED) from error
            raise self._failure(what, error.args[0]) from error

    def close(self) -> None:
        """Drop what is queued."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException):
            guarded(self._producer.purge)
            guarded(lambda: self._producer.poll(0))


@lru_cache(maxsize=64)
def _group_metadata(group: str) -> Any:
    """What names the group in a transaction. Its consumer connects to no broker."""
    from confluent_kafka import Consumer

    consumer = Consumer({"group.id": group, "log_level": 0})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def read_offset(connection: KafkaConnection, group: str, topic: str, *, waits: bool, seconds: float) -> str | None:
    """The text that `store_offset` has stored, read within so many seconds.

    `waits`: for the end of a transaction that is about to store another text.
    Uses a consumer, not the admin client, which can crash the process when a broker goes away.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    what = f"the positions in the group '{group}' cannot be read at {connection.brokers}"
    trouble = _Deliveries()
    isolation = "read_committed" if waits else "read_uncommitted"
    settings = {"group.id": group, "enable.auto.commit": False, "isolation.level": isolation}
    consumer = Consumer({**client_settings(connection), **settings, "error_cb": trouble.on_error, "logger": _SILENT})
    try:
        (answer,) = consumer.committed([TopicPartition(topic, 0)], timeout=seconds)
    except KafkaException as error:
        with suppress(KafkaException):
            consumer.poll(0)
        denied = trouble.trouble if is_permanent(trouble.trouble) else error
        raise kafka_failure(what, denied, SINK_FAILED) from error
    finally:
        consumer.close()
    if answer.error is not None:
        raise kafka_failure(what, answer.error, SINK_FAILED)
    return str(answer.metadata) if answer.metadata else None

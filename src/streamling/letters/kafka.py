"""Dead letters in a compacted topic: the key is the id, and the last message of a key counts."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from streamling.clients.kafka import REQUEST_SECONDS, Broker, client_errors, client_settings
from streamling.clients.kafka_topics import ensure_topic
from streamling.errors import LETTERS_FAILED, PermanentError, StreamlingError, TransientError
from streamling.letters.letter import Letter, LetterBatch, from_json
from streamling.letters.store import NewestLetters
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import KafkaLetters
from streamling.spec.settings import Settings

log = logging.getLogger(__name__)

# The longest message: a letter has the payload of a message in base64, and more.
_MESSAGE_BYTES = 64 << 20
_FLUSH_SECONDS = 30.0
_GROUP = "streamling-dead-letters"


class LetterTopic:
    def __init__(self, node: NodeSpec, destination: KafkaLetters, settings: Settings) -> None:
        self._topic = destination.topic
        self._node = node
        self._connection = settings.kafka_sink
        self.place = f"topic {self._topic}"
        self._producer: Any = None
        self._latest: dict[str, tuple[str, set[str]]] = {}
        """By stage: the last epoch of which this process has stored letters, and their ids."""

    def open(self) -> None:
        config = {"cleanup.policy": "compact", "max.message.bytes": str(_MESSAGE_BYTES)}
        ensure_topic(self._connection, self._topic, config, condition=LETTERS_FAILED)

    def put(self, batch: LetterBatch, letters: Iterator[Letter]) -> int:
        ids: set[str] = set()

        def messages() -> Iterator[tuple[str, str | None]]:
            for letter in letters:
                ids.add(letter.id)
                yield letter.id, letter.to_line()
            yield from ((id_, None) for id_ in self._earlier(batch) - ids)

        self._send(messages())
        self._latest[batch.stage] = (batch.epoch.id, ids)
        return len(ids)

    def remove(self, batch: LetterBatch) -> None:
        if earlier := self._earlier(batch):
            self._send((id_, None) for id_ in earlier)
        self._latest.pop(batch.stage, None)

    def read(self) -> Iterator[Letter]:
        letters: dict[str, Letter] = {}
        for key, letter in self._changes(self._beginnings()):
            if letter is None:
                letters.pop(key, None)
            else:
                letters[key] = letter
        yield from letters.values()

    def newest(self, application: str, most: int, deadline: float) -> NewestLetters:
        """Those among the newest messages of each partition."""
        beginnings, starts = self._beginnings(), {}
        if beginnings:
            broker = Broker(self._connection, self._topic, LETTERS_FAILED)
            ends = broker.end(beginnings)
            starts = {number: max(first, ends.get(number, first) - most) for number, first in beginnings.items()}
        complete = starts == beginnings
        letters: dict[str, Letter] = {}
        for key, letter in self._changes(starts):
            if time.monotonic() > deadline:
                complete = False
                break
            letters.pop(key, None)
            if letter is not None and letter.application_id == application:
                letters[key] = letter.without_contents()
            if len(letters) > 2 * most:
                letters = _newest(letters, most)
                complete = False
        return NewestLetters([*_newest(letters, most).values()], complete and len(letters) <= most)

    def _changes(self, starts: Mapping[int, int]) -> Iterator[tuple[str, Letter | None]]:
        """What happened to letters, each partition in order; None: the letter is removed."""
        for key, value in self._messages(starts):
            try:
                yield key, None if value is None else from_json(json.loads(value))
            except (KeyError, TypeError, ValueError):
                log.warning("%s has a message that is not a dead letter, with the key %r", self.place, key)

    def update(self, letters: Collection[Letter]) -> None:
        self._send((letter.id, letter.to_line()) for letter in letters)

    def close(self) -> None:
        self._producer = None

    def _earlier(self, batch: LetterBatch) -> set[str]:
        """The letters of this process for an earlier attempt of the same epoch."""
        epoch, ids = self._latest.get(batch.stage, ("", set()))
        return ids if epoch == batch.epoch.id else set()

    def _send(self, messages: Iterator[tuple[str, str | None]]) -> None:
        from confluent_kafka import Producer

        errors: list[Any] = []
        with self._errors("cannot be written"):
            if self._producer is None:
                limits = {"enable.idempotence": True, "compression.type": "lz4", "message.max.bytes": _MESSAGE_BYTES}
                times = {"message.timeout.ms": int(_FLUSH_SECONDS * 1000)}
                self._producer = Producer({**client_settings(self._connection), **limits, **times})
            for key, text in messages:
                value = None if text is None else text.encode(errors="backslashreplace")
                self._produce(key, value, errors)
                if errors:
                    break
            left = self._producer.flush(_FLUSH_SECONDS)
            if errors or left:
                self._producer = None  # it would send what is left together with the next letters
            if errors:
                raise self._refusal(errors[0])
        if left:
            raise self._failure(f"has not stored {left} letters within {_FLUSH_SECONDS:.0f} s")

    def _refusal(self, error: Any) -> Exception:
        from confluent_kafka import KafkaError, KafkaException

        if error.code() not in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD):
            other: Exception = KafkaException(error)
            return other
        return PermanentError(
            LETTERS_FAILED,
            f"{self.place} does not accept a dead letter: {error.str()}",
            node=self._node.name,
            hint="raise 'max.message.bytes' of the topic",
        )

    def _produce(self, key: str, value: bytes | None, errors: list[Any]) -> None:
        from confluent_kafka import KafkaException

        def note(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)

        while True:
            try:
                self._producer.produce(self._topic, value, key=key.encode(), on_delivery=note)
                self._producer.poll(0)
                return
            except BufferError:  # it holds as much as it may: wait until some is stored
                self._producer.poll(0.1)
            except KafkaException as error:
                raise self._refusal(error.args[0]) from error

    def _beginnings(self) -> dict[int, int]:
        """By partition, the oldest offset; empty if there is no topic."""
        broker = Broker(self._connection, self._topic, LETTERS_FAILED)
        partitions = broker.find_partitions() or ()
        found = broker.first(partitions) if partitions else {}
        if silent := set(partitions) - found.keys():
            raise self._failure(f"cannot be read: no broker answers for partition {min(silent)}")
        return found

    def _messages(self, starts: Mapping[int, int]) -> Iterator[tuple[str, bytes | None]]:
        """What is on the topic now, each partition in order from an offset on."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        if not starts:
            return
        own = {"group.id": _GROUP, "enable.auto.commit": False, "enable.partition.eof": True}
        own |= {"auto.offset.reset": "earliest"}  # retention may have removed the first messages meanwhile
        with self._errors("cannot be read"):
            consumer = Consumer({**client_settings(self._connection), **own})
            try:
                consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in starts.items()])
                left = set(starts)
                while left:
                    message = consumer.poll(REQUEST_SECONDS)
                    if message is None:
                        raise self._failure("cannot be read: the broker does not answer")
                    if message.error() is None:
                        yield (message.key() or b"").decode(errors="replace"), message.value()
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
                    else:
                        raise KafkaException(message.error())
            finally:
                consumer.close()

    def _errors(self, what: str) -> Any:
        return client_errors(f"dead letters of '{self._node.name}': {self.place} {what}", LETTERS_FAILED)

    def _failure(self, what: str) -> StreamlingError:
        return TransientError(LETTERS_FAILED, f"{self.place} {what}", node=self._node.name)


def _newest(letters: Mapping[str, Letter], most: int) -> dict[str, Letter]:
    """Partitions are read in any order."""
    ordered = sorted(letters, key=lambda key: (letters[key].timestamp, letters[key].epoch))
    return {key: letters[key] for key in ordered[-most:]}

"""The sink: one producer in the driver, one transaction per epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamling.clients.kafka_producer import (
    LostTransaction,
    MessagesRejected,
    ProducerOptions,
    TopicProducer,
)
from streamling.clients.kafka_topics import ensure_topic, largest_batch
from streamling.connector import (
    Applied,
    BadRow,
    Epoch,
    Guarantee,
    Report,
    Runtime,
    Sink,
    SinkCapabilities,
    SinkContext,
    Slice,
    Task,
)
from streamling.connector.reports import sum_latencies
from streamling.errors import SINK_FAILED, STATE_MOVED, Fenced, PermanentError, TransientError
from streamling.sinks.kafka.ledger import Ledger
from streamling.spec.pipeline import NodeSpec
from streamling.spec.pipeline.options import OnError
from streamling.spec.settings.blocks import KafkaConnection
from streamling.telemetry.buckets import BucketCounts, one_sample

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.sinks.kafka.messages import MessageMaker

log = logging.getLogger(__name__)
ENCODE_LATENCY = "kafka_producer.msg_encode_latency"
# Of a topic that is created: messages stay, and of a key the last one.
_NEW_TOPIC = {"retention.ms": "-1", "cleanup.policy": "compact"}
# Of the largest batch of a topic: what the batch itself takes.
_BATCH_OVERHEAD = 100


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """The options of a sink, with what the settings add. `batch_rows`: the window of `deduplicate`; None without."""

    topic: str
    avro: bool
    evolves: bool
    partitions: int | None
    exactly_once: bool
    batch_rows: int | None
    producer: ProducerOptions


@dataclass(slots=True)
class _OpenTopic:
    """What `open` makes. Without a ledger there is one producer for the whole run."""

    messages: MessageMaker
    producer_options: ProducerOptions
    ledger: Ledger | None
    producer: TopicProducer | None = None


class KafkaSink(Sink):
    def __init__(self, node: NodeSpec, connection: KafkaConnection, options: MessageOptions) -> None:
        self.capabilities = _capabilities(options.exactly_once)
        self.target: str | None = f"{connection.brokers}/{options.topic}"
        self._node = node
        self._connection = connection
        self._options = options
        self._opened: _OpenTopic | None = None
        self._open_epoch: str | None = None
        self._last_write: tuple[str, Report] | None = None
        self._measures = False
        self._latencies: dict[str, BucketCounts] = {}
        """Of the messages that were encoded last, if they are measured."""

    def attach(self, runtime: Runtime) -> None:
        self._measures = runtime.metrics.allows(ENCODE_LATENCY)

    # Before the first epoch

    def open(self, context: SinkContext) -> None:
        options = self._options
        if ensure_topic(
            self._connection, options.topic, _NEW_TOPIC, condition=SINK_FAILED, partitions=options.partitions
        ):
            log.info("%s: created topic '%s'", self._described, options.topic)
        limit = largest_batch(self._connection, options.topic)
        batch_bytes = max(limit - _BATCH_OVERHEAD, 1) if limit is not None else None
        opened = _OpenTopic(self._make_messages(context), replace(options.producer, batch_bytes=batch_bytes), None)
        self._opened = opened
        if options.exactly_once:
            opened.ledger = self._open_ledger(context)
        if opened.ledger is None:
            self.capabilities = _capabilities(False)
            opened.producer = self._make_producer(None)

    def _make_messages(self, context: SinkContext) -> MessageMaker:
        from streamling.sinks.kafka.messages import JsonValues, MessageMaker
        from streamling.sinks.kafka.schemas import make_encoder

        options, columns, key = self._options, context.schema, context.primary_key
        values = (
            make_encoder(self._node, self._connection, options.topic, columns, key, evolve=options.evolves)
            if options.avro
            else JsonValues(columns)
        )
        return MessageMaker(columns, key, values, options.topic, options.producer.message_bytes, options.batch_rows)

    def _open_ledger(self, context: SinkContext) -> Ledger | None:
        """None if the broker does not permit transactions."""
        ledger = Ledger(
            self._connection,
            self._options.topic,
            self._make_producer,
            application=context.application,
            sink=context.node,
            generation=context.generation,
        )
        try:
            ledger.check()
        except PermanentError as error:
            ledger.close()
            log.warning(
                "%s: the broker refuses what exactly once needs, so rows are delivered at least once: %s. Grant the "
                "permissions, or set 'exactly_once: false'",
                self._described,
                error.message,
            )
            return None
        return ledger

    def _make_producer(self, transactional_id: str | None) -> TopicProducer:
        options = self._topic.producer_options
        return TopicProducer(self._connection, self._options.topic, options, transactional_id)

    @property
    def _topic(self) -> _OpenTopic:
        if self._opened is None:
            raise AssertionError("not opened")
        return self._opened

    @property
    def _ledger(self) -> Ledger:
        if self._topic.ledger is None:
            raise AssertionError("a sink without transactions has no ledger")
        return self._topic.ledger

    @property
    def _described(self) -> str:
        return self._node.described()

    # After a crash

    def applied(self, slices: Sequence[Slice]) -> Applied:
        return self._ledger.applied(slices)

    def abandon(self, epoch: Epoch) -> Applied:
        """Aborts the transaction of the earlier owner, if it is still open."""
        try:
            return self._ledger.abandon(epoch)
        except TransientError:
            self._end_session()
            raise

    # Epochs

    def writer(self) -> KafkaSink:
        return self

    def write(self, epoch: Epoch, task: Task, batches: Iterable[pa.RecordBatch]) -> Report:
        import pyarrow as pa

        # Before the transaction begins: it must not be open while Spark computes the rows.
        held = [batch for batch in batches if batch.num_rows]
        rows = pa.Table.from_batches(held) if held else None
        arrived = rows.num_rows if rows is not None else 0
        self._latencies = {}
        try:
            if self._topic.ledger is not None:
                applied = self._begin(epoch)
                if applied is Applied.YES:
                    if self._last_write is not None and self._last_write[0] == epoch.id:
                        return self._last_write[1]  # the answer to our commit was lost
                    return Report(arrived, detail=self._count(rows))
            bad, written = self._send(rows) if rows is not None else ((), 0)
        except LostTransaction:
            self._end_session()
            raise
        report = Report(arrived - len(bad), len(bad), bad, detail=written, latencies=self._latencies)
        self._last_write = (epoch.id, report)
        return report

    def recount(self, batches: Iterable[pa.RecordBatch]) -> int:
        import pyarrow as pa

        held = [batch for batch in batches if batch.num_rows]
        return self._count(pa.Table.from_batches(held)) if held else 0

    def _count(self, rows: pa.Table | None) -> int:
        """How many messages become of these rows."""
        return len(self._topic.messages.select(rows)) if rows is not None else 0

    def _begin(self, epoch: Epoch) -> Applied:
        applied = self._ledger.claim(epoch)
        if applied is Applied.UNKNOWN:
            message = f"{self._described}: another process has taken over these rows"
            raise Fenced(STATE_MOVED, message, node=self._node.name)
        if applied is Applied.NO:
            self._ledger.producer.begin()
            self._open_epoch = epoch.id
        return applied

    def commit(self, epoch: Epoch, reports: Sequence[Report]) -> int:
        if self._open_epoch == epoch.id:
            try:
                self._ledger.move(epoch)
                self._ledger.producer.commit()
            except TransientError:
                # Whether it is committed is not known: the next session waits for the end of the transaction.
                self._end_session()
                raise
            self._open_epoch = None
            self._ledger.moved(epoch)
        return sum(report.detail for report in reports if isinstance(report.detail, int))

    def abort(self, epoch: Epoch) -> None:
        if self._open_epoch is not None:
            self._open_epoch = None
            if not self._ledger.producer.abort():
                self._end_session()
        elif self._topic.ledger is None and self._topic.producer is not None:
            # Messages of the failed attempt would be delivered after those of the next one.
            self._topic.producer.close()
            self._topic.producer = None

    def _end_session(self) -> None:
        """The next epoch begins a new session; what this one has not committed is aborted then."""
        self._open_epoch = None
        if self._topic.ledger is not None:
            self._topic.ledger.end_session()

    def close(self) -> None:
        if self._opened is None:
            return
        if self._open_epoch is not None:
            self._ledger.producer.abort()
        if self._topic.ledger is not None:
            self._topic.ledger.close()
        if self._topic.producer is not None:
            self._topic.producer.close()

    # Rows

    def _send(self, rows: pa.Table) -> tuple[tuple[BadRow, ...], int]:
        """Send the rows and wait until they are acknowledged; returns those that cannot be sent, and how many were."""
        bad, producer = list[BadRow](), self._producer
        while True:
            sent, found = self._send_selected(rows, producer, bad)
            if not found:
                break
            bad += found
            # In a transaction all is written again without these rows. Without one, a row that cannot be sent must not
            # hide an earlier one of its key.
            if self._topic.ledger is not None or self._node.options.on_error is OnError.FAIL:
                return tuple(bad), 0
        try:
            producer.flush()
        except MessagesRejected as rejected:
            found = self._find(rows, rejected)
            bad += found
            sent -= len(found)
        return tuple(sorted(bad, key=lambda row: row.index or 0)), sent

    def _send_selected(
        self, rows: pa.Table, producer: TopicProducer, bad: Sequence[BadRow]
    ) -> tuple[int, list[BadRow]]:
        """Send what is not bad, unless another bad row turns up."""
        from streamling.sinks.kafka.messages import Messages

        messages, found, sent = self._topic.messages, list[BadRow](), 0
        selected = messages.select(rows, [row.index for row in bad if row.index is not None])
        pending: list[Messages] = []
        self._latencies = {}
        for item in messages.chunks(rows, selected, self._note_encoding if self._measures else None):
            if isinstance(item, BadRow):
                found.append(item)
                if self._node.options.on_error is OnError.FAIL:  # one is enough to end the run
                    break
            elif self._topic.ledger is None and self._node.options.on_error is not OnError.FAIL:
                pending.append(item)
            elif not found:
                producer.send(item.values, item.keys, item.headers)
                sent += len(item)
        if not found:
            for item in pending:
                producer.send(item.values, item.keys, item.headers)
                sent += len(item)
        return sent, found

    def _note_encoding(self, milliseconds: float) -> None:
        self._latencies = sum_latencies([self._latencies, {ENCODE_LATENCY: one_sample(milliseconds)}])

    @property
    def _producer(self) -> TopicProducer:
        topic = self._topic
        if topic.ledger is not None:
            return topic.ledger.producer
        if topic.producer is None:
            topic.producer = self._make_producer(None)
        return topic.producer

    def _find(self, rows: pa.Table, error: MessagesRejected) -> list[BadRow]:
        """The rows of messages that the broker rejects."""
        from streamling.sinks.kafka.messages import Messages

        messages, rejected = self._topic.messages, set(error.rejected)
        if self._topic.producer_options.batch_bytes is None:
            # The broker rejects whole batches, and does not say what they may have: send each message alone.
            self._topic.producer_options = replace(self._topic.producer_options, batch_messages=1, batch_bytes=1)
            self._end_session()
            raise LostTransaction(error.condition, error.message)
        found = []
        for chunk in messages.chunks(rows, messages.select(rows)):
            if isinstance(chunk, Messages):
                pairs = zip(chunk.keys, chunk.values, chunk.indexes.tolist(), strict=True)
                numbers = [index for key, value, index in pairs if (key, value) in rejected]
                why = "the broker rejects the message because of its size"
                row = [rows.slice(number, 1).combine_chunks().to_batches()[0] for number in numbers]
                found += [messages.rejected(r, n, why) for r, n in zip(row, numbers, strict=True)]
        if not found:
            raise error
        return found


def _capabilities(exactly_once: bool) -> SinkCapabilities:
    guarantee = Guarantee.EXACTLY_ONCE if exactly_once else Guarantee.AT_LEAST_ONCE
    return SinkCapabilities(guarantee=guarantee, transactional=exactly_once)

"""All metrics that streamling records by itself: kind, unit, buckets, labels and meaning. Plugins add their own.

The exporters take units, buckets and descriptions from here, and the documentation prints the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamling.telemetry.metrics import MetricKind

BOUNDS_MS = (100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""Upper bounds of the latency buckets."""
HTTP_BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000)
"""Upper bounds of the buckets of HTTP requests."""


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """A metric without its prefix. `labels`: those besides the labels of the node, or of the coordinator."""

    name: str
    kind: MetricKind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    bounds: tuple[int, ...] = BOUNDS_MS
    of: str = "every node"
    """Which nodes have it."""


def _count(name: str, help_: str, *labels: str, unit: str = "", of: str = "every node") -> MetricInfo:
    return MetricInfo(name, MetricKind.COUNT, help_, unit, labels, of=of)


def _gauge(name: str, help_: str, *labels: str, unit: str = "", of: str = "every node") -> MetricInfo:
    return MetricInfo(name, MetricKind.GAUGE, help_, unit, labels, of=of)


def _latency(
    name: str, help_: str, *labels: str, bounds: tuple[int, ...] = BOUNDS_MS, of: str = "every node"
) -> MetricInfo:
    return MetricInfo(name, MetricKind.LATENCY, help_, "ms", labels, bounds, of)


_HTTP = "handlers, webhooks"
_KAFKA = "kafka sources"
_COORDINATOR = "the coordinator"
_READ = "sources, transforms"
_TIMED = "nodes with `telemetry.event_time`"

METRICS = (
    _count("output_rows", "Rows that the node has produced; for a sink, rows that it has written."),
    _count("output_rows_delta", "The same, as the increment since the last export. Only over OTLP."),
    _count("input_rows", "Rows that the node has received.", of="transforms, sinks"),
    _count("rows_filtered", "Rows that the node has left out by its filter or query.", of="sources, transforms, sinks"),
    _count("rows_skipped", "Bad rows that were skipped.", "stage", "reason"),
    _count("rows_dead_lettered", "Bad rows that became dead letters.", "stage", "reason"),
    _count(
        "rows_unaccounted",
        "Input rows that are neither output nor filtered, skipped or dead letters. More than 0 is a bug.",
    ),
    _gauge("output_rows_rate", "Output rows per second over the last window."),
    _latency("output_rows_latency", "Time from the reading of rows to their output, per epoch."),
    _latency("elapsed_compute", "Time that the node has worked in an epoch, without waiting; for a sink, writing."),
    _count("http_requests", "Attempts of requests.", "outcome", "status_class", of=_HTTP),
    _count("http_retries", "Attempts that are repeated.", "status_class", of=_HTTP),
    _latency(
        "http_request_latency", "Duration of an attempt.", "outcome", "status_class", bounds=HTTP_BOUNDS_MS, of=_HTTP
    ),
    _count("checkpoint_markers_sent", "Epochs that were begun.", of=_COORDINATOR),
    _count("checkpoint_acks_received", "Commits of epochs by sinks, once per epoch and sink.", of=_COORDINATOR),
    _count("checkpoint_finalizers_sent", "Epochs whose end was announced to the nodes.", of=_COORDINATOR),
    _count("checkpoint_epochs_succeeded", "Epochs that were finalized.", of=_COORDINATOR),
    _count("checkpoint_epochs_failed", "Epochs that were open for 300 s.", of=_COORDINATOR),
    _gauge("checkpoint_epochs_in_flight", "Epochs that are begun and not finalized.", of=_COORDINATOR),
    _latency("checkpoint_epoch_duration", "Time between two finalized epochs.", of=_COORDINATOR),
    _latency("checkpoint_finalization_wait", "Time in which an epoch waits for its finalization.", of=_COORDINATOR),
    _latency(
        "checkpoint_per_sink_ack_latency",
        "Time from the beginning of an epoch to its commit by a sink.",
        "sink_id",
        of=_COORDINATOR,
    ),
    _count("checkpoint_terminal_finalizer_skipped", "Last epochs that were not finalized at a stop.", of=_COORDINATOR),
    _latency("checkpoint_marker_arrival", "Time from the beginning of an epoch to the node's turn."),
    _latency("checkpoint_sink_flush", "Time in which a sink writes and commits an epoch.", of="sinks"),
    _gauge("event_time_watermark", "The greatest event time, unix time.", unit="ms", of=_TIMED),
    _latency("event_time_lag", "Now minus the event time, per row.", of=_TIMED),
    _gauge("kafka_consumer.messages_lag", "Messages behind the stored offset.", "partition", of=_KAFKA),
    _count("kafka_consumer.row_kind_count", "Rows by operation: i, u, d.", "kind", of=_KAFKA),
    _count("kafka_consumer.tombstones_skipped", "Messages without a value that were skipped.", of=_KAFKA),
    _latency(
        "kafka_consumer.msg_decode_latency",
        "Time in which a batch of messages is decoded. Denied by default.",
        of=_KAFKA,
    ),
    _latency(
        "kafka_producer.msg_encode_latency",
        "Time in which a batch of rows is encoded as messages. Denied by default.",
        of="kafka sinks",
    ),
    _count(
        "node_wait",
        "Time in which rows of the node have waited: for the node named (blocked), or the node for input (starved).",
        "state",
        "downstream_id",
        unit="ms",
    ),
    _latency(
        "node_idle_wait", "Time in which the node has waited for input, per epoch; as `starved`.", "execution_kind"
    ),
    _latency(
        "node_backpressure_wait",
        "Time in which rows of the node have waited for its slowest reader, per epoch; as `blocked`.",
        "execution_kind",
        of=_READ,
    ),
    _count(
        "node_backpressure_events",
        "Such waits of at least `STREAMLING__BACKPRESSURE_EVENT_THRESHOLD_MS`, 100 by default.",
        "execution_kind",
        of=_READ,
    ),
    _count("node_empty_batch", "Epochs in which the node produced no row; sinks: received none.", "execution_kind"),
    _gauge("node_empty_streak", "How many epochs in a row, up to the last one, were like that.", "execution_kind"),
    _gauge(
        "node_inflight_buffered",
        "Rows that were read ahead, or are ready to be read by executors, and that no epoch has taken yet.",
        "execution_kind",
        of="sources",
    ),
    _count("df_input_rows", "The same as `input_rows`.", of="queries"),
    _gauge(
        "pipeline_ready",
        "1 while the pipeline runs and makes progress, as `/readyz` answers; otherwise 0.",
        "bounded",
        of=_COORDINATOR,
    ),
)
_BY_NAME = {info.name: info for info in METRICS}


def find(name: str, kind: MetricKind) -> MetricInfo:
    """A metric by its name without prefix; latencies that are not in the table have the general buckets."""
    info = _BY_NAME.get(name)
    if info is not None and info.kind is kind:
        return info
    return MetricInfo(name, kind, "A metric of a plugin.", "ms" if kind is MetricKind.LATENCY else "")

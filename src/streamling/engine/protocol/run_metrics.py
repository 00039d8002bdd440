"""The gauges of a run that are read whenever metrics are exported: whether it is ready, and what its sources buffer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from streamling.connector import Source
from streamling.engine.protocol.epoch_metrics import EpochMetrics, coordinator_labels
from streamling.engine.protocol.health import Health
from streamling.engine.protocol.progress import Progress
from streamling.plan.pipeline import Plan
from streamling.spec.settings import Settings
from streamling.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from streamling.engine.data.readahead import ReadAhead


def watch_readiness(
    metrics: Metrics, progress: Progress, settings: Settings, sources: Iterable[Source], instance: str
) -> None:
    """`bounded` in its labels: the run ends by itself."""
    health = Health(progress, settings.progress_deadline_secs)
    bounded = all(source.bounded for source in sources)
    labels = {**coordinator_labels(instance), "bounded": str(bounded).lower()}
    metrics.watch("pipeline_ready", lambda: float(health.ready), labels)


def make_epoch_metrics(
    plan: Plan, metrics: Metrics, progress: Progress, settings: Settings, sources: Sequence[ReadAhead], instance: str
) -> EpochMetrics:
    threshold_ms = settings.runtime.backpressure_event_threshold_ms
    epoch_metrics = EpochMetrics(plan, progress.meter, metrics, instance, threshold_ms)
    for source in sources:
        epoch_metrics.watch_buffer(source.node, partial(getattr, source, "buffered_rows"))
    return epoch_metrics

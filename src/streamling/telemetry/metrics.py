"""The metrics of a run: counts, gauges and latencies. The OpenTelemetry SDK aggregates them (`instruments.py`).

The SDK takes about 50 ms to import. It is imported by `Metrics.start`, which a thread calls while Java opens the Spark
session, or else by the first recording: commands that run no pipeline, and the Python workers of Spark, do without it.
"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader, MetricsData

    from streamling.telemetry.buckets import BucketCounts
    from streamling.telemetry.instruments import Instruments

log = logging.getLogger(__name__)

PREFIX = "streamling_"
"""Prefix of the name of every metric."""

Labels = tuple[tuple[str, str], ...]
Tags = Mapping[str, str] | Iterable[tuple[str, str]]


class MetricKind(Enum):
    COUNT = "count"
    GAUGE = "gauge"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One time series at one moment.

    value     the sum of a count, the last value of a gauge, the sum of a latency in ms
    buckets   of a latency: samples per bucket, one more than `bounds`
    bounds    of a latency: the upper bounds of the buckets
    """

    name: str
    kind: MetricKind
    labels: Labels
    value: float
    buckets: tuple[int, ...] = ()
    bounds: tuple[float, ...] = ()


class Recording(ABC):
    """Recording is best effort: it never raises, never waits for another system, and works from any thread.

    A recording that is not valid is dropped; the first one of each name is logged as a warning.
    """

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def count(self, name: str, value: float, labels: Mapping[str, str], tags: Tags | None = None) -> None:
        """Add to a count, which never falls. Labels replace tags of the same name."""
        self._try(MetricKind.COUNT, name, value, labels, tags)

    def gauge(self, name: str, value: float, labels: Mapping[str, str], tags: Tags | None = None) -> None:
        self._try(MetricKind.GAUGE, name, value, labels, tags)

    def latency(self, name: str, milliseconds: float, labels: Mapping[str, str], tags: Tags | None = None) -> None:
        self._try(MetricKind.LATENCY, name, milliseconds, labels, tags)

    @abstractmethod
    def _record(self, kind: MetricKind, name: str, value: float, labels: dict[str, str]) -> None:
        """Record a finite value, which is negative only if it is that of a gauge. May raise."""

    def _try(
        self, kind: MetricKind, name: str, value: float, labels: Mapping[str, str], tags: Tags | None = None
    ) -> None:
        try:
            number = float(value)
            if not math.isfinite(number) or (number < 0 and kind is not MetricKind.GAUGE):
                raise ValueError(f"{number} is not a valid value of a {kind.value}")
            self._record(kind, name, number, _as_text({**dict(tags or {}), **labels}))
        except Exception as error:  # plugins may pass anything
            self._warn_once(str(name), error)

    def _warn_once(self, name: str, error: Exception) -> None:
        level = logging.DEBUG if name in self._warned else logging.WARNING
        self._warned.add(name)
        log.log(level, "a recording of the metric '%s' is dropped: %s", name, error)


class Metrics(Recording):
    """All time series of a run, by name, kind and labels.

    `readers` makes the SDK's readers that get the metrics in addition to `snapshot`: an exporter is one of them.
    """

    def __init__(
        self,
        readers: Callable[[], Sequence[MetricReader]] = tuple,
        *,
        resource: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        denies: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """`resource`: attributes of the process. `tags`: labels of all metrics; those of a node replace them.
        `denies`: which metrics are neither exported nor shown."""
        super().__init__()
        self._readers = readers
        self._resource = dict(resource or {})
        self._tags = dict(tags or {})
        self._denies = denies
        self._starting = threading.Lock()
        self._instruments: Instruments | None = None
        self._unwatched: list[tuple[str, Callable[[], float], Mapping[str, str]]] = []
        """Gauges that are watched from the start on."""

    def start(self) -> None:
        """Import and set up the SDK now, so that the first recording need not wait for it."""
        self._started()

    def allows(self, name: str) -> bool:
        """Whether a metric is exported or shown: others need not be measured."""
        return not self._denies(f"{PREFIX}{name}")

    def watch(self, name: str, read: Callable[[], float], labels: Mapping[str, str]) -> None:
        """A gauge whose value is read whenever metrics are exported or shown. `read` must not block."""
        with self._starting:
            if self._instruments is None:  # nothing is read yet
                self._unwatched.append((name, read, labels))
                return
        self._watch(self._instruments, name, read, labels)

    def merge(self, name: str, histogram: BucketCounts, labels: Mapping[str, str]) -> None:
        """Add many samples of a latency at once."""
        self._started().merge(f"{PREFIX}{name}", histogram, _as_text({**self._tags, **labels}))

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        """Remove a gauge of something that this process no longer owns."""
        if self._instruments is not None:
            self._instruments.forget(f"{PREFIX}{name}", _as_text({**self._tags, **labels}))

    def snapshot(self) -> tuple[Measurement, ...]:
        """Every series, sorted by name and labels."""
        if self._instruments is None:
            return ()
        found = (one for one in self._instruments.read() if not self._denies(one.name))
        return tuple(sorted(found, key=lambda m: (m.name, m.kind.value, m.labels)))

    def data(self) -> MetricsData | None:
        """Every series, in the form of the SDK; None if there is none."""
        return self._instruments.data() if self._instruments is not None else None

    def allowed(self, data: MetricsData) -> MetricsData:
        """Without the metrics that are not exported."""
        resources = [
            replace(
                resource,
                scope_metrics=[
                    replace(scope, metrics=[metric for metric in scope.metrics if not self._denies(metric.name)])
                    for scope in resource.scope_metrics
                ],
            )
            for resource in data.resource_metrics
        ]
        return replace(data, resource_metrics=resources)

    def _record(self, kind: MetricKind, name: str, value: float, labels: dict[str, str]) -> None:
        self._started().record(kind, f"{PREFIX}{name}", value, {**self._tags, **labels})

    def _started(self) -> Instruments:
        if self._instruments is None:
            with self._starting:
                if self._instruments is None:
                    from streamling.telemetry.instruments import Instruments

                    instruments = Instruments(self._readers(), self._resource)
                    for name, read, labels in self._unwatched:
                        self._watch(instruments, name, read, labels)
                    self._instruments = instruments
        return self._instruments

    def _watch(self, instruments: Instruments, name: str, read: Callable[[], float], labels: Mapping[str, str]) -> None:
        instruments.watch(f"{PREFIX}{name}", read, _as_text({**self._tags, **labels}))


def _as_text(labels: Mapping[str, str]) -> dict[str, str]:
    return {_encodable(str(key)): _encodable(str(value)) for key, value in labels.items()}


def _encodable(text: str) -> str:
    """Names of files may have bytes that are not text. One such label would stop the export of all metrics."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()

"""The metrics of a run, kept in this process; exporters read snapshots.

Recording is best effort: it never blocks for long, never raises, and may be called from any thread.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

log = logging.getLogger(__name__)

PREFIX = "streamling_"
"""Prefix of the name of every metric."""

BOUNDS_MS = (100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""Upper bounds of the latency buckets."""

Labels = tuple[tuple[str, str], ...]


class MetricKind(Enum):
    COUNT = "count"
    GAUGE = "gauge"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One time series at one moment.

    value     the sum of a count, the last value of a gauge, the sum of a latency in ms
    samples   how often it was recorded
    buckets   of a latency: samples per bucket, one more than `BOUNDS_MS`
    """

    name: str
    kind: MetricKind
    labels: Labels
    value: float
    samples: int
    buckets: tuple[int, ...] = ()


@dataclass(slots=True)
class _Series:
    value: float = 0.0
    samples: int = 0
    buckets: list[int] = field(default_factory=list)


class Metrics:
    """All time series of a process, by name, kind and labels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._series: dict[tuple[str, MetricKind, Labels], _Series] = {}

    def count(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self._record(MetricKind.COUNT, name, value, labels)

    def gauge(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self._record(MetricKind.GAUGE, name, value, labels)

    def latency(self, name: str, milliseconds: float, labels: Mapping[str, str]) -> None:
        self._record(MetricKind.LATENCY, name, milliseconds, labels)

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        """Remove a gauge of something that this process no longer owns."""
        with self._lock:
            self._series.pop((f"{PREFIX}{name}", MetricKind.GAUGE, _sort_labels(labels)), None)

    def snapshot(self) -> tuple[Measurement, ...]:
        """Every series, sorted by name and labels."""
        with self._lock:
            measurements = [
                Measurement(name, kind, labels, series.value, series.samples, tuple(series.buckets))
                for (name, kind, labels), series in self._series.items()
            ]
        return tuple(sorted(measurements, key=lambda m: (m.name, m.kind.value, m.labels)))

    def _record(self, kind: MetricKind, name: str, value: float, labels: Mapping[str, str]) -> None:
        try:
            key = (f"{PREFIX}{name}", kind, _sort_labels(labels))
            number = float(value)
        except (TypeError, ValueError, AttributeError) as error:
            log.debug("metric %s is not recorded: %s", name, error)
            return
        with self._lock:
            series = self._series.setdefault(key, _Series())
            series.samples += 1
            series.value = number if kind is MetricKind.GAUGE else series.value + number
            if kind is MetricKind.LATENCY:
                series.buckets = series.buckets or [0] * (len(BOUNDS_MS) + 1)
                series.buckets[bisect_left(BOUNDS_MS, number)] += 1


def _sort_labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted((str(key), str(value)) for key, value in labels.items()))

"""Histograms that are merged from counts per bucket. The SDK takes single samples only, one call for each."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
)

from streamling.telemetry.buckets import BucketCounts
from streamling.telemetry.catalog import BOUNDS_MS, find
from streamling.telemetry.metrics import PREFIX, Labels, MetricKind


class MergedHistograms:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.time_ns()
        self._histograms: dict[str, dict[Labels, BucketCounts]] = {}

    def add(self, name: str, histogram: BucketCounts, labels: Mapping[str, str]) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            series = self._histograms.setdefault(name, {})
            series[key] = series.get(key, BucketCounts()) + histogram

    def metrics(self) -> list[Metric]:
        """In the SDK's form."""
        now = time.time_ns()
        with self._lock:
            return [
                Metric(
                    name,
                    find(name.removeprefix(PREFIX), MetricKind.LATENCY).help,
                    "ms",
                    Histogram(
                        [self._point(labels, counts, now) for labels, counts in series.items()],
                        AggregationTemporality.CUMULATIVE,
                    ),
                )
                for name, series in self._histograms.items()
            ]

    def _point(self, labels: Labels, counts: BucketCounts, now: int) -> HistogramDataPoint:
        return HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=self._began,
            time_unix_nano=now,
            count=counts.count,
            sum=counts.sum,
            bucket_counts=counts.buckets,
            explicit_bounds=BOUNDS_MS,
            min=None,  # type: ignore[arg-type]  # not known; the exporters leave it out
            max=None,  # type: ignore[arg-type]
        )

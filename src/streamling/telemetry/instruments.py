"""The instruments of the OpenTelemetry SDK, one per metric, and the reader behind `Metrics.snapshot`.

The environment variables of the SDK change neither names nor buckets: whatever they could set is set here.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, Counter, Histogram, MeterProvider, ObservableGauge
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    MetricReader,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.view import View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from streamling.telemetry.buckets import BucketCounts
from streamling.telemetry.catalog import MetricInfo, find
from streamling.telemetry.merged_histograms import MergedHistograms
from streamling.telemetry.metrics import PREFIX, Labels, Measurement, MetricKind

# By default the SDK adds up all series of a metric beyond the 2,000th: a topic may have more partitions.
_SERIES = sys.maxsize
_VIEWS = (
    View(instrument_type=Counter, aggregation_cardinality_limit=_SERIES),
    View(instrument_type=ObservableGauge, aggregation_cardinality_limit=_SERIES),
    View(instrument_type=Histogram, aggregation_cardinality_limit=_SERIES),
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{0,254}")


class Instruments:
    """Made with the first recording of their names, which the SDK compares without case; the first spelling stays."""

    def __init__(self, readers: Sequence[MetricReader], resource: Mapping[str, str]) -> None:
        self._reader = InMemoryMetricReader()
        self._resource = Resource(dict(resource))
        self._merged = MergedHistograms()
        self._provider = MeterProvider(
            [self._reader, *readers],
            resource=self._resource,
            exemplar_filter=AlwaysOffExemplarFilter(),
            shutdown_on_exit=False,  # it would keep the metrics of every run until the process ends
            views=_VIEWS,
        )
        self._meter = self._provider.get_meter("streamling")
        self._counters: dict[str, metrics.Counter] = {}
        self._histograms: dict[str, metrics.Histogram] = {}
        self._gauges: dict[str, _GaugeValues] = {}
        self._creating_gauge = threading.Lock()

    def record(self, kind: MetricKind, name: str, value: float, labels: dict[str, str]) -> None:
        """Raises if the name is not valid."""
        if kind is MetricKind.COUNT:
            self._counter(name).add(value, labels)
        elif kind is MetricKind.LATENCY:
            self._histogram(name).record(value, labels)
        else:
            self._gauge(name).set(value, labels)

    def watch(self, name: str, read: Callable[[], float], labels: dict[str, str]) -> None:
        self._gauge(name).set(read, labels)

    def forget(self, name: str, labels: dict[str, str]) -> None:
        gauge = self._gauges.get(name.lower())
        if gauge is not None:
            gauge.forget(labels)

    def merge(self, name: str, histogram: BucketCounts, labels: dict[str, str]) -> None:
        """Add many samples of a latency at once."""
        self._merged.add(name, histogram, labels)

    def data(self) -> MetricsData | None:
        """Every series now, for exporters; None if there is none."""
        data, merged = self._reader.get_metrics_data(), self._merged.metrics()
        found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        if not found and not merged:
            return None
        scope = ScopeMetrics(InstrumentationScope("streamling"), [*found, *merged], "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def read(self) -> Iterator[Measurement]:
        """Every series now."""
        data = self.data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    yield from _measurements(metric)

    def _counter(self, name: str) -> metrics.Counter:
        counter = self._counters.get(name)
        if counter is None:
            counter = self._meter.create_counter(_checked(name), **_described(name, MetricKind.COUNT))
            _keep_spelling(counter, name)
            self._counters[name] = counter
        return counter

    def _histogram(self, name: str) -> metrics.Histogram:
        histogram = self._histograms.get(name)
        if histogram is None:
            described = _described(name, MetricKind.LATENCY)
            bounds = _info(name, MetricKind.LATENCY).bounds
            histogram = self._meter.create_histogram(
                _checked(name), **described, explicit_bucket_boundaries_advisory=bounds
            )
            _keep_spelling(histogram, name)
            self._histograms[name] = histogram
        return histogram

    def _gauge(self, name: str) -> _GaugeValues:
        key = name.lower()
        if key not in self._gauges:
            with self._creating_gauge:
                if key not in self._gauges:
                    values = _GaugeValues()
                    gauge = self._meter.create_observable_gauge(
                        _checked(name), [values.observe], **_described(name, MetricKind.GAUGE)
                    )
                    _keep_spelling(gauge, name)
                    self._gauges[key] = values
        return self._gauges[key]


class _GaugeValues:
    """The values of a gauge by labels. The SDK asks for them whenever it reads, so that a series can be removed: a
    gauge that is set through the SDK keeps all its series."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Labels, float | Callable[[], float]] = {}

    def set(self, value: float | Callable[[], float], labels: dict[str, str]) -> None:
        with self._lock:
            self._values[_key(labels)] = value

    def forget(self, labels: dict[str, str]) -> None:
        with self._lock:
            self._values.pop(_key(labels), None)

    def observe(self, _: CallbackOptions) -> list[Observation]:
        with self._lock:
            values = list(self._values.items())
        return [Observation(value() if callable(value) else value, dict(labels)) for labels, value in values]


def _info(name: str, kind: MetricKind) -> MetricInfo:
    return find(name.removeprefix(PREFIX), kind)


def _described(name: str, kind: MetricKind) -> dict[str, str]:
    info = _info(name, kind)
    return {"unit": info.unit, "description": info.help}


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name consists of ASCII letters, digits and _ . / -, at most 255 with the prefix")
    return name


def _keep_spelling(instrument: metrics.Instrument, name: str) -> None:
    """The SDK turns names into lower case."""
    if isinstance(instrument, Counter | Histogram | ObservableGauge):
        instrument.name = name


def _measurements(metric: Metric) -> Iterator[Measurement]:
    for point in metric.data.data_points:
        labels = _key(point.attributes or {})
        if isinstance(point, HistogramDataPoint):
            buckets, bounds = tuple(point.bucket_counts), tuple(point.explicit_bounds)
            yield Measurement(metric.name, MetricKind.LATENCY, labels, point.sum, buckets, bounds)
        elif isinstance(point, NumberDataPoint):
            kind = MetricKind.COUNT if isinstance(metric.data, Sum) else MetricKind.GAUGE
            yield Measurement(metric.name, kind, labels, point.value)


def _key(labels: Mapping[str, object]) -> Labels:
    return tuple(sorted((key, str(value)) for key, value in labels.items()))

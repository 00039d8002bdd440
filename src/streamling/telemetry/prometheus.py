"""The metrics of a run in the text format of Prometheus, version 0.0.4.

Names are those that Prometheus makes of metrics that it receives over OTLP: counters end in `_total`, the unit ms
becomes `_milliseconds`, what is between words of letters and digits becomes one `_`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

from streamling.telemetry.catalog import find
from streamling.telemetry.metrics import PREFIX, Labels, Measurement, MetricKind, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TYPES = {MetricKind.COUNT: "counter", MetricKind.GAUGE: "gauge", MetricKind.LATENCY: "histogram"}
# The label of buckets, and the one that stands for the name of the metric.
_RESERVED = ("le", "__name__")
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]")
_MILLISECONDS, _TOTAL = "milliseconds", "total"
_WORD = re.compile(r"[a-zA-Z0-9]+")


def render(metrics: Metrics) -> str:
    """All series of a run, each family under its HELP and TYPE."""
    families: dict[str, dict[Labels, Measurement]] = {}
    for measurement in metrics.snapshot():
        series = families.setdefault(prometheus_name(measurement), {})
        first = next(iter(series.values()), measurement)
        # Two names of plugins may become one; a family has one type, and a series one value.
        if first.kind is measurement.kind:
            series.setdefault(measurement.labels, measurement)
    return "".join(line + "\n" for name, series in sorted(families.items()) for line in _family(name, series))


def prometheus_name(measurement: Measurement) -> str:
    """The name of the family of a series."""
    info = find(measurement.name.removeprefix(PREFIX), measurement.kind)
    words = _WORD.findall(measurement.name)
    if info.unit == "ms" and _MILLISECONDS not in words:
        words.append(_MILLISECONDS)
    if measurement.kind is MetricKind.COUNT:
        words = [*(word for word in words if word != _TOTAL), _TOTAL]
    return "_".join(words)


def _family(name: str, series: dict[Labels, Measurement]) -> Iterator[str]:
    first = next(iter(series.values()))
    info = find(first.name.removeprefix(PREFIX), first.kind)
    yield f"# HELP {name} {_escape_help(info.help)}"
    yield f"# TYPE {name} {_TYPES[first.kind]}"
    for labels, measurement in series.items():
        if measurement.kind is MetricKind.LATENCY:
            yield from _histogram(name, labels, measurement)
        else:
            yield f"{name}{_braces(labels)} {_number(measurement.value)}"


def _histogram(name: str, labels: Labels, measurement: Measurement) -> Iterator[str]:
    bounds = [*(_number(bound) for bound in measurement.bounds), "+Inf"]
    for bound, samples in zip(bounds, accumulate(measurement.buckets), strict=True):
        yield f"{name}_bucket{_braces(labels, le=bound)} {samples}"
    yield f"{name}_sum{_braces(labels)} {_number(measurement.value)}"
    yield f"{name}_count{_braces(labels)} {sum(measurement.buckets)}"


def _braces(labels: Labels, **more: str) -> str:
    """The labels in braces. Tags of plugins may have names that Prometheus lacks, and two of them may become one: then
    it has both values, as Prometheus joins them."""
    pairs: dict[str, str] = {}
    for key, value in labels:
        name = _NOT_IN_LABELS.sub("_", key)
        if name[0].isdigit() or name in _RESERVED:
            name = f"key_{name}"
        elif name.startswith("_") and not name.startswith("__"):
            name = f"key{name}"
        pairs[name] = f"{pairs[name]};{value}" if name in pairs else value
    pairs |= more
    inner = ",".join(f'{key}="{_escape_value(value)}"' for key, value in pairs.items())
    return f"{{{inner}}}" if inner else ""


def _escape_value(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))

"""The text format of Prometheus (exposition format 0.0.4): families of samples, also those of an OpenTelemetry reader.

Names follow the rules for OpenTelemetry metrics in Prometheus: ``callboard.run.queue.duration`` in seconds is
``callboard_run_queue_duration_seconds``, and the name of a counter ends in ``_total``.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]

_UNFIT = re.compile(r"[^a-zA-Z0-9_]")


class Sample(NamedTuple):
    """A figure. ``suffix`` is appended to its family's name."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


class MetricFamily(NamedTuple):
    """The figures with one name."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


def exposition(families: Iterable[MetricFamily]) -> bytes:
    """Return the text of some families."""
    return "".join(line + "\n" for family in families for line in _lines(family)).encode()


def _lines(family: MetricFamily) -> Iterator[str]:
    told = family.help.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {family.name} {told}"
    yield f"# TYPE {family.name} {family.kind}"
    for value, labels, suffix in family.samples:
        inside = ",".join(f'{_UNFIT.sub("_", name)}="{_escape_label(text)}"' for name, text in labels.items())
        yield f"{family.name}{suffix}{f'{{{inside}}}' if inside else ''} {_number(value)}"


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return "+Inf" if value == inf else repr(value)


class Histogram:
    """A cumulative histogram of observed values."""

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._help = help
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self) -> MetricFamily:
        """Return the counts."""
        samples = _buckets(self._bounds, self._counts, sum(self._counts), self._sum, {})
        return MetricFamily(self._name, "histogram", self._help, samples)


def _buckets(
    bounds: Sequence[float], counts: Sequence[int], count: int, total: float, labels: Mapping[str, str]
) -> list[Sample]:
    found: list[Sample] = []
    below = 0
    for bound, here in zip((*bounds, inf), counts, strict=True):
        below += here
        found.append(Sample(below, {**labels, "le": _number(bound)}, "_bucket"))
    return [*found, Sample(total, labels, "_sum"), Sample(count, labels, "_count")]


def families_of(data: "MetricsData | None") -> list[MetricFamily]:
    """Return the families of the metrics that an OpenTelemetry reader has collected."""
    if data is None:
        return []
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return [_family(metric) for scope in scopes for metric in scope.metrics]


def _family(metric: "Metric") -> MetricFamily:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, Sum

    name = _UNFIT.sub("_", metric.name) + ("_seconds" if metric.unit == "s" else "")
    kind: Kind = "gauge"
    samples: list[Sample] = []
    if isinstance(metric.data, Sum) and metric.data.is_monotonic:
        name, kind = f"{name}_total", "counter"
    for point in metric.data.data_points:
        labels = {key: str(value) for key, value in (point.attributes or {}).items()}
        if isinstance(point, HistogramDataPoint):
            kind = "histogram"
            samples += _buckets(point.explicit_bounds, point.bucket_counts, point.count, point.sum, labels)
        elif isinstance(value := getattr(point, "value", None), int | float):
            samples.append(Sample(value, labels))
    return MetricFamily(name, kind, metric.description or "", samples)

"""Series of numbers, one for each combination of labels, of which there are never too many.

They are counted here and not in the client library of Prometheus, which takes a lock and a look
through all buckets for each number: a step would pay more for that than for its commit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.utils import floatToGoString

from stepwell.telemetries.metrics import Metric

OTHER = "other"
MAX_LENGTH = 100


class Labels:
    """Names that stay within bounds: what comes after too many others is one of the `other`."""

    def __init__(self, most: tuple[int, ...]) -> None:
        self._most = most
        self._known: dict[tuple[str, ...], set[str]] = {}
        # Those that are within bounds as they are: nearly all that are asked for.
        self._whole: set[tuple[str, ...]] = set()

    def bounded(self, *values: str) -> tuple[str, ...]:
        """These values of labels, each counted among those that had the same before it."""
        if values in self._whole:
            return values
        found: tuple[str, ...] = ()
        for place, value in enumerate(values):
            known = self._known.setdefault(found, set())
            value = value[:MAX_LENGTH]
            if value not in known:
                if len(known) >= self._most[place]:
                    value = OTHER
                else:
                    known.add(value)
            found += (value,)
        if found == values:
            self._whole.add(found)
        return found


class Counts:
    """A counter or a gauge."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._labels = Labels(metric.most)
        self._values: dict[tuple[str, ...], float] = {} if metric.labels else {(): 0}

    def add(self, *labels: str, amount: float = 1) -> None:
        bounded = self._labels.bounded(*labels)
        self._values[bounded] = self._values.get(bounded, 0) + amount

    def family(self) -> Family:
        metric = self._metric
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family: CounterMetricFamily | GaugeMetricFamily = kind(
            metric.name, metric.help, labels=metric.labels
        )
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class Distribution:
    """One series of a histogram."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Upper bounds, and how many are not above them."""
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        return zip(names, accumulate(self.counts), strict=True)


class Histogram:
    """A histogram."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._labels = Labels(metric.most)
        self._series: dict[tuple[str, ...], Distribution] = {}
        if not metric.labels:
            self.of()

    def of(self, *labels: str) -> Distribution:
        """The series with these labels."""
        bounded = self._labels.bounded(*labels)
        found = self._series.get(bounded)
        if found is None:
            found = self._series[bounded] = Distribution(self._metric.bounds)
        return found

    def family(self) -> Family:
        metric = self._metric
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, series in self._series.items():
            family.add_metric(labels, list(series.buckets()), sum_value=series.total)
        return family

"""Exports to Prometheus: the only module that loads prometheus_client."""

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, final

from gristmill._api.exporters.export import Export, weak_stats
from gristmill._api.exporters.metrics import (
    METRICS,
    STEP_METRICS,
    bytes_read,
    grain_distributions,
)
from gristmill._base.extras import load_extra
from gristmill._metrics.stats import HasStats, Stats, StepStats
from gristmill._printable import printable
from gristmill.errors import PlanError

_EXAMPLE = Stats(steps=(StepStats(name="reading", num_records=1),))
"""Statistics with all metrics, from which the names of Grain's are taken."""


def to_prometheus(source: HasStats, *, registry: Any = None, name: str = "train") -> Export:
    """Let Prometheus read the statistics of a loader, an iterator or a feed.

    The values are computed when a server of `prometheus_client` is asked for them, such as that of
    `prometheus_client.start_http_server(9431)`. Names begin with `gristmill_`. The metrics that
    Grain has of a run are there under Grain's names, too, so that its dashboards work.

    It needs prometheus-client: `pip install "gristmill[prometheus]"`.

    >>> from gristmill import load
    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> loader = load(range(8), num_epochs=1, batch_size=4)
    >>> with to_prometheus(loader, registry=registry):
    ...     for batch in loader: pass
    ...     registry.get_sample_value("gristmill_elements_total", {"loader": "train"})
    2

    Args:
        source: What to export.
        registry: A `CollectorRegistry`. By default the global one.
        name: The value of the label `loader`, by which several sources differ.

    Returns:
        The export, which ends with `close()`, with a `with` block, or with the source.

    Raises:
        MissingExtraError: prometheus-client is not installed.
        PlanError: The registry has another source of this name.
        PlanTypeError: The source has no statistics.
    """
    core: Any = load_extra(
        "prometheus_client.core", extra="prometheus", wanted_by="`to_prometheus`"
    )
    used = core.REGISTRY if registry is None else registry
    collector = _collector_of(core, used)
    if name in collector.sources:
        raise PlanError(
            f"The registry already has a source with the name {name!r}. Pass another `name`, or "
            "close the other export."
        )
    collector.sources[name] = weak_stats(source)

    def end() -> None:
        collector.sources.pop(name, None)
        if not collector.sources and _COLLECTORS.pop(used, None) is not None:
            used.unregister(collector)

    return Export(source, end)


@final
class _Collector:
    """Returns the metrics of all sources: a registry refuses a name that two collectors have."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self.sources: dict[str, Callable[[], Stats | None]] = {}

    def describe(self) -> list[Any]:
        """Return the names, for which the registry would otherwise call `collect`."""
        return list(self._families([]))

    def collect(self) -> Iterator[Any]:
        found = [(name, read()) for name, read in list(self.sources.items())]
        yield from self._families([(name, stats) for name, stats in found if stats is not None])

    def _families(self, sources: list[tuple[str, Stats]]) -> Iterator[Any]:
        kinds = {
            "counter": self._core.CounterMetricFamily,
            "gauge": self._core.GaugeMetricFamily,
        }
        for metric in METRICS:
            family = kinds[metric.kind](
                _full(metric.name, metric.unit), metric.description, labels=["loader"]
            )
            for name, stats in sources:
                family.add_metric([name], metric.value(stats))
            yield family
        for metric in STEP_METRICS:
            family = self._core.CounterMetricFamily(
                _full(metric.name, metric.unit), metric.description, labels=["loader", "step"]
            )
            for name, stats in sources:
                for step, value in _by_step([(s.name, metric.value(s)) for s in stats.steps]):
                    family.add_metric([name, step], value)
            yield family
        yield from self._grain_families(sources)

    def _grain_families(self, sources: list[tuple[str, Stats]]) -> Iterator[Any]:
        read = self._core.CounterMetricFamily(
            "grain_python_data_sources_bytes_read",
            "Bytes that were read from a source.",
            labels=["loader", "source"],
        )
        families: dict[str, Any] = {}
        for one in grain_distributions(_EXAMPLE):
            labels = ["loader", one.label[0]] if one.label else ["loader"]
            families[one.name] = self._core.HistogramMetricFamily(
                one.name, one.description, labels=labels
            )
        for name, stats in sources:
            for step, value in _by_step(list(bytes_read(stats).items())):
                read.add_metric([name, step], value)
            for one in grain_distributions(stats):
                labels = [name, printable(one.label[1])] if one.label else [name]
                buckets = [(_bound(bound), count) for bound, count in one.buckets]
                families[one.name].add_metric(labels, buckets=buckets, sum_value=one.total)
        yield read
        yield from families.values()


_COLLECTORS: "weakref.WeakKeyDictionary[Any, _Collector]" = weakref.WeakKeyDictionary()


def _collector_of(core: Any, registry: Any) -> _Collector:
    """Return the collector of a registry, which is registered if it was not."""
    if registry not in _COLLECTORS:
        _COLLECTORS[registry] = _Collector(core)
        registry.register(_COLLECTORS[registry])
    return _COLLECTORS[registry]


def _by_step(values: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Add up what has the same name: a metric must not have the same labels twice."""
    total: dict[str, float] = {}
    for step, value in values:
        shown = printable(step)
        total[shown] = total.get(shown, 0.0) + value
    return list(total.items())


def _full(name: str, unit: str) -> str:
    return f"gristmill_{name}_{unit}" if unit else f"gristmill_{name}"


def _bound(bound: float) -> str:
    """Return the largest value of a bucket as Prometheus writes it."""
    return "+Inf" if math.isinf(bound) else repr(bound)

"""Exports to OpenTelemetry: the only module that loads it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from gristmill._api.exporters.export import Export, weak_stats
from gristmill._api.exporters.metrics import METRICS, STEP_METRICS, RunMetric, StepMetric
from gristmill._base.extras import load_extra
from gristmill._base.version import VERSION
from gristmill._metrics.stats import HasStats, Stats
from gristmill._printable import printable

_LabelledValues: TypeAlias = list[tuple[dict[str, str], float]]
"""Attributes and a value for each of them."""

_UNITS = {"seconds": "s", "bytes": "By", "": "1"}


def to_opentelemetry(source: HasStats, *, meter: Any = None, name: str = "train") -> Export:
    """Let OpenTelemetry read the statistics of a loader, an iterator or a feed.

    The instruments are asynchronous: a `MetricReader` of the program reads them when it collects.
    Names begin with `gristmill.`; the attribute `loader` is `name`, and `step` is that of a step.

    It needs opentelemetry-api: `pip install "gristmill[opentelemetry]"`.

    >>> from gristmill import load
    >>> loader = load(range(8), num_epochs=1, batch_size=4)
    >>> with to_opentelemetry(loader):
    ...     for batch in loader: pass

    Args:
        source: What to export.
        meter: A `Meter`. By default one of the global `MeterProvider`.
        name: The value of the attribute `loader`, by which several sources differ.

    Returns:
        The export, which ends with `close()`, with a `with` block, or with the source.

    Raises:
        MissingExtraError: opentelemetry-api is not installed.
        PlanTypeError: The source has no statistics.
    """
    api: Any = load_extra(
        "opentelemetry.metrics", extra="opentelemetry", wanted_by="`to_opentelemetry`"
    )
    read = weak_stats(source)
    used = api.get_meter("gristmill", VERSION) if meter is None else meter
    is_open = [True]  # an instrument cannot be removed: after the end it observes nothing

    def stats() -> Stats | None:
        return read() if is_open else None

    for metric in METRICS:
        create = (
            used.create_observable_counter
            if metric.kind == "counter"
            else used.create_observable_gauge
        )
        create(
            f"gristmill.{metric.name}",
            callbacks=[_callback(api, stats, name, partial(_of_run, metric))],
            unit=_UNITS[metric.unit],
            description=metric.description,
        )
    for metric in STEP_METRICS:
        used.create_observable_counter(
            f"gristmill.{metric.name}",
            callbacks=[_callback(api, stats, name, partial(_of_steps, metric))],
            unit=_UNITS[metric.unit],
            description=metric.description,
        )
    return Export(source, is_open.clear)


def _of_run(metric: RunMetric, stats: Stats) -> _LabelledValues:
    return [({}, metric.value(stats))]


def _of_steps(metric: StepMetric, stats: Stats) -> _LabelledValues:
    return [({"step": printable(step.name)}, metric.value(step)) for step in stats.steps]


def _callback(
    api: Any,
    stats: Callable[[], Stats | None],
    name: str,
    values: Callable[[Stats], _LabelledValues],
) -> Callable[[object], Iterator[Any]]:
    def observe(options: object) -> Iterator[Any]:
        del options
        found = stats()
        if found is not None:
            for attributes, value in values(found):
                yield api.Observation(value, {"loader": name, **attributes})

    return observe

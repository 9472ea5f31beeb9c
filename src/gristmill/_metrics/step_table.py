"""Table of what each step took, in total and for each of the last blocks."""

from collections.abc import Iterable

from gristmill._base.format_numbers import format_rate, format_seconds
from gristmill._metrics.self_time import block_times, percentile
from gristmill._metrics.stats import COLUMNS as TIME_COLUMNS
from gristmill._metrics.stats import Stats
from gristmill._metrics.stats import step_rows as time_rows
from gristmill._metrics.timeline import StepSpan

COLUMNS = (*TIME_COLUMNS, "alone", "p50", "p95")


def step_rows(stats: Stats, spans: Iterable[StepSpan] = ()) -> list[tuple[str, ...]]:
    """Return the cells of `COLUMNS` for each step.

    `alone` is the number of elements per second if one thread ran only this step. Percentiles are
    those of the times for one block, over the last blocks.

    >>> from gristmill._metrics.stats import StepStats
    >>> step = StepStats(name="Map f", elapsed_s=2.0, cpu_s=1.5, waited_s=0.5)
    >>> step_rows(Stats(num_elements=10, steps=(step,)))
    [('Map f', '100%', '2.00 s', '1.50 s', '0.50 s', '-', '-', '5.00/s', '-', '-')]
    """
    times = block_times(spans)
    return [
        (
            *cells,
            format_rate(stats.num_elements / step.elapsed_s) if step.elapsed_s else "-",
            *(_percentile(times.get(step.name, []), share) for share in (0.5, 0.95)),
        )
        for step, cells in zip(stats.steps, time_rows(stats), strict=True)
    ]


def _percentile(times: list[float], share: float) -> str:
    return format_seconds(percentile(times, share)) if times else "-"

"""The metrics that are exported: their names, and their values in the statistics of a source."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Literal, NamedTuple

from gristmill._metrics.counters import bounds_ns
from gristmill._metrics.stats import Stats, StepStats


class RunMetric(NamedTuple):
    """A number that an iterator or a loader has."""

    name: str
    kind: Literal["counter", "gauge"]
    """Whether it only grows."""
    unit: str
    description: str
    value: Callable[[Stats], float]


class StepMetric(NamedTuple):
    """A number that each step has. All of them grow."""

    name: str
    unit: str
    description: str
    value: Callable[[StepStats], float]


class BucketCounts(NamedTuple):
    """A metric of Grain: the number of observations up to some bounds, and their sum."""

    name: str
    description: str
    label: tuple[str, str] | None
    """The name of its label and the value, such as a source or a step, if it has one."""
    buckets: tuple[tuple[float, float], ...]
    """Bounds, and how many observations do not exceed each; infinity comes last."""
    total: float


def memory_bytes(stats: Stats) -> int:
    """Return the memory of this process at the last sample."""
    return stats.recent[-1].memory_bytes if stats.recent else 0


def worker_memory_bytes(stats: Stats) -> int:
    """Return the memory of the workers of this process at the last sample."""
    return stats.recent[-1].worker_memory_bytes if stats.recent else 0


METRICS = (
    RunMetric(
        "elements", "counter", "", "Elements handed to the caller.", attrgetter("num_elements")
    ),
    RunMetric("output", "counter", "bytes", "Bytes in these elements.", attrgetter("output_bytes")),
    RunMetric("elapsed", "counter", "seconds", "Time of the run.", attrgetter("elapsed_s")),
    RunMetric(
        "waited", "counter", "seconds", "Time that the caller waited.", attrgetter("waited_s")
    ),
    RunMetric(
        "place", "counter", "seconds", "Time that placing on devices took.", attrgetter("place_s")
    ),
    RunMetric(
        "host_wait",
        "counter",
        "seconds",
        "Time that other processes of the job were waited for.",
        attrgetter("host_wait_s"),
    ),
    RunMetric(
        "skipped_records",
        "counter",
        "",
        "Bad records that were skipped.",
        attrgetter("num_skipped"),
    ),
    RunMetric(
        "worker_restarts", "counter", "", "Workers that were replaced.", attrgetter("num_restarts")
    ),
    RunMetric("workers", "gauge", "", "Worker processes or Ray actors.", attrgetter("num_workers")),
    RunMetric("threads", "gauge", "", "Threads that read and compute.", attrgetter("num_threads")),
    RunMetric(
        "blocks_ready", "gauge", "", "Blocks that are computed.", attrgetter("num_blocks_ready")
    ),
    RunMetric(
        "blocks_in_flight",
        "gauge",
        "",
        "Blocks that are being computed.",
        attrgetter("num_blocks_in_flight"),
    ),
    RunMetric(
        "shared_memory",
        "gauge",
        "bytes",
        "Shared memory for the batches of workers.",
        attrgetter("shared_memory_bytes"),
    ),
    RunMetric("memory", "gauge", "bytes", "Memory of this process.", memory_bytes),
    RunMetric(
        "worker_memory",
        "gauge",
        "bytes",
        "Memory of its worker processes, without shared memory.",
        worker_memory_bytes,
    ),
)

STEP_METRICS = (
    StepMetric("step", "seconds", "Time of the step, over all threads.", attrgetter("elapsed_s")),
    StepMetric("step_cpu", "seconds", "Part of it on a core.", attrgetter("cpu_s")),
    StepMetric("step_waited", "seconds", "Part of it waiting for data.", attrgetter("waited_s")),
    StepMetric(
        "step_interpreter_wait",
        "seconds",
        "Part of it waiting for the interpreter lock.",
        attrgetter("interpreter_wait_s"),
    ),
)


def grain_distributions(stats: Stats) -> Iterator[BucketCounts]:
    """Yield what Grain exports as histograms, under its names.

    Where only the number and the sum of observations are known, infinity is the only bound.
    """
    waits = _buckets(stats.wait_counts)
    for name, description in (
        ("grain_python_data_loader_iterator_get_next", "Nanoseconds of each `next` of a loader."),
        ("grain_python_dataset_next_duration_ns", "Nanoseconds of each `next` of a dataset."),
    ):
        yield BucketCounts(name, description, None, waits, 1e9 * stats.waited_s)
    yield BucketCounts(
        "grain_python_dataset_prefetch_buffer_ready_count",
        "Blocks that were ready when the caller got one.",
        None,
        ((float("inf"), stats.num_blocks),),
        stats.sum_blocks_ready,
    )
    for name in bytes_read(stats):
        steps = [step for step in stats.steps if step.name == name]
        yield BucketCounts(
            "grain_python_dataset_source_read_time_ns",
            "Nanoseconds to read a record.",
            ("source", name),
            ((float("inf"), sum(step.num_records for step in steps)),),
            1e9 * sum(step.elapsed_s for step in steps),
        )
    for name in dict.fromkeys(step.name for step in stats.steps):
        yield BucketCounts(
            "grain_python_dataset_self_time_ns",
            "Nanoseconds of a step for each element handed to the caller.",
            ("name", name),
            ((float("inf"), stats.num_elements),),
            1e9 * sum(step.elapsed_s for step in stats.steps if step.name == name),
        )


def bytes_read(stats: Stats) -> dict[str, int]:
    """Return the bytes that were read from each source; those of equal names are added up."""
    total: dict[str, int] = {}
    for step in stats.steps:
        if step.num_records:
            total[step.name] = total.get(step.name, 0) + step.num_bytes
    return total


def _buckets(counts: tuple[int, ...]) -> tuple[tuple[float, float], ...]:
    bounds = [*bounds_ns(), float("inf")]
    total = 0
    buckets: list[tuple[float, float]] = []
    for bound, count in zip(bounds, counts or [0] * len(bounds), strict=True):
        total += count
        buckets.append((bound, total))
    return tuple(buckets)

"""Predict how long a run would have taken with other settings, from what its steps took."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final

from gristmill._metrics.bottleneck import MAX_CORES_WITH_LOCK
from gristmill._metrics.copies import MOSTLY_COPYING, copied_share

if TYPE_CHECKING:
    from gristmill._metrics.stats import Stats

Limit: TypeAlias = Literal["consumer", "in order", "cores", "memory", "interpreter", "reads"]

SIMILAR = 1.05
"""A setting that is faster by less than this ratio is not worth more threads or workers."""

MAX_THREADS = 64
"""The largest number of threads that is recommended: `ReadOptions` has up to 128 by default."""


MAX_WORKERS_PER_CORE = 4
"""Up to this many workers are recommended for each core if they mostly wait."""

MAX_REMOTE_GROWTH = 8
"""Up to this many times as many workers on other machines are recommended."""

THREAD_WAIT_S = 0.00007
"""Seconds for which a thread holds the interpreter lock when a wait ends, measured with 16 and 64
threads that wait for 1 and 4 ms for each record: they read up to 14,000 records per second."""

THREAD_BLOCK_S = 0.00005
"""The same for handing over a block: with one record in each, threads read 8,000 per second."""

MIN_BLOCK_S = 0.0015
"""The least time that a block takes in a thread, unless it is a single record that takes less.
Shorter waits are counted as if they took that long."""


@final
@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A setting, how long the run would have taken with it, and what would have limited it.

    >>> Prediction(num_workers=2, num_threads=1, elapsed_s=2.0, limit="cores").limit
    'cores'
    """

    num_workers: int
    num_threads: int
    elapsed_s: float
    limit: Limit
    """- `"consumer"`: the code that takes the elements;
    - `"in order"`: the steps above the cut;
    - `"cores"`: all cores compute;
    - `"memory"`: copies of elements take as long, whatever the number of cores;
    - `"interpreter"`: the threads of a process share one interpreter lock;
    - `"reads"`: all threads wait."""


@final
@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a run has to do, whatever the settings, in seconds.

    It assumes that steps hold the interpreter lock unless they were measured to use more cores
    than they could with it, that a consumer needs one core, that it holds the lock of its process
    while its thread has a core, and that disks and networks answer more requests at once as fast as
    fewer.
    """

    consumer_s: float
    in_order_s: float
    cpu_s: float
    """Computing below the cut, and copies into shared memory."""
    waited_s: float
    """Waiting below the cut."""
    consumer_cpu_s: float = 0.0
    """Part of `consumer_s` in which its thread had a core, and not a device for example."""
    is_lock_free: bool = False
    """Whether the steps release the interpreter lock."""
    copied_s: float = 0.0
    """Part of `cpu_s` and `in_order_s` in which arrays were copied. The cores share the memory."""
    records_per_block: float = math.inf
    """A worker reads one block at a time, so that it uses no more threads than that."""
    num_records: int = 0
    """Records that were read from sources."""
    num_positions: int = 0
    """Positions that threads read at the same time: of records, or of elements of a dataset."""
    is_remote: bool = False
    """Whether workers are on other machines: the cores of this one do not limit them."""

    @property
    def is_mostly_copying(self) -> bool:
        """Whether most of what the steps compute is copying arrays."""
        return self.copied_s > MOSTLY_COPYING * (self.cpu_s + self.in_order_s)

    def predict(self, *, num_workers: int, num_threads: int, num_cores: int) -> Prediction:
        """Return how long the run takes with threads or workers, which compute ahead.

        >>> work = Workload(consumer_s=1.0, in_order_s=0.0, cpu_s=8.0, waited_s=0.0)
        >>> work.predict(num_workers=2, num_threads=1, num_cores=8).elapsed_s
        4.0
        """
        num_interpreters = max(1, num_workers)
        most = max(1.0, self.records_per_block) if num_workers else math.inf
        num_lanes = num_interpreters * min(max(1, num_threads), most)
        local_cpu_s = 0.0 if self.is_remote else self.cpu_s
        limits: dict[Limit, float] = {
            "consumer": self.consumer_s,
            "in order": self.in_order_s,
            "cores": (local_cpu_s + self.in_order_s + self.consumer_s) / num_cores,
            "memory": 0.0 if self.is_remote else self.copied_s,
            "reads": (self.cpu_s + self.waited_s) / num_lanes,
        }
        locked_s = 0.0 if self.is_lock_free else self.cpu_s
        if not num_workers:  # the threads share the interpreter with the consumer
            locked_s += self.consumer_cpu_s
        if num_threads > 1:
            most_blocks = (self.cpu_s + self.waited_s) / MIN_BLOCK_S
            locked_s += THREAD_WAIT_S * min(self.num_records, most_blocks)
            locked_s += THREAD_BLOCK_S * min(self.num_positions, most_blocks)
        limits["interpreter"] = locked_s / num_interpreters
        limit = max(limits, key=lambda limit: limits[limit])
        return Prediction(
            num_workers=num_workers,
            num_threads=num_threads,
            elapsed_s=max(limits[limit], 1e-9),
            limit=limit,
        )

    def best_workers(self, *, num_threads: int, num_cores: int, num_workers: int = 0) -> Prediction:
        """Return the smallest number of workers that is about as fast as any.

        There are more workers than cores only if they mostly wait, or are on other machines.

        Args:
            num_threads: The number of threads of each of them.
            num_cores: The number of cores of this machine.
            num_workers: The present number.
        """
        per_core = MAX_WORKERS_PER_CORE if self.waited_s > self.cpu_s else 1
        numbers = range(1, per_core * num_cores + 1)
        if self.is_remote:  # times as many as there are
            numbers = range(num_workers, MAX_REMOTE_GROWTH * num_workers + 1, num_workers)
        return _smallest_of_best(
            self.predict(num_workers=number, num_threads=num_threads, num_cores=num_cores)
            for number in numbers
        )

    def best_threads(self, *, num_workers: int, num_cores: int) -> Prediction:
        """Return the smallest number of threads, a power of two, that is about as fast as any."""
        return _smallest_of_best(
            self.predict(num_workers=num_workers, num_threads=number, num_cores=num_cores)
            for number in _powers_of_two(MAX_THREADS)
        )


def work_of(stats: "Stats", num_cores: int, *, copy_bytes_per_s: float | None = None) -> Workload:
    """Return the work of a run from its statistics.

    Time in which steps waited for a core counts as computing if the run did not use all cores
    itself: other programs have them, and will have them with other settings too.

    Args:
        stats: The statistics.
        num_cores: The number of cores.
        copy_bytes_per_s: How fast one core copies arrays. By default that is measured if needed.
    """
    is_remote = stats.executor == "ray"
    counts_core_waits = is_remote or stats.num_workers + stats.num_threads <= num_cores
    in_order_s = cpu_s = waited_s = parallel_cpu_s = 0.0
    for step in stats.steps:
        share = 1.0 - step.in_order_s / step.elapsed_s if step.elapsed_s else 0.0
        step_cpu_s = step.cpu_s + (step.core_wait_s if counts_core_waits else 0.0)
        in_order_s += (1.0 - share) * (step_cpu_s + step.waited_s)
        cpu_s += share * step_cpu_s
        waited_s += share * step.waited_s
        parallel_cpu_s += share * step.cpu_s
    on_core_s = sum([step.cpu_s for step in stats.steps]) + stats.transfer_s
    copied = copied_share(stats.output_bytes, on_core_s, bytes_per_s=copy_bytes_per_s)
    cpu_s += stats.transfer_s
    return Workload(
        consumer_s=max(0.0, stats.elapsed_s - stats.waited_s),
        in_order_s=in_order_s,
        cpu_s=cpu_s,
        waited_s=waited_s,
        consumer_cpu_s=stats.consumer_cpu_s,
        copied_s=copied * (in_order_s + cpu_s),
        records_per_block=_records_per_block(stats),
        num_records=sum(step.num_records for step in stats.steps),
        num_positions=stats.num_positions,
        is_remote=is_remote,
        is_lock_free=parallel_cpu_s
        > MAX_CORES_WITH_LOCK * max(1, stats.num_workers) * stats.elapsed_s,
    )


def _records_per_block(stats: "Stats") -> float:
    """Return how many records a worker reads at a time: in future, at least those of an element."""
    num_blocks = stats.num_blocks if stats.num_workers else stats.num_elements
    if not (num_blocks and stats.num_positions):
        return math.inf
    return stats.num_positions / num_blocks


def predict_present(work: Workload, stats: "Stats", num_cores: int) -> Prediction:
    """Return how long other work takes with the present settings of a run.

    Ratios of predictions are more accurate than ratios of a prediction and a measurement, which
    includes what the prediction leaves out.
    """
    if stats.executor == "inline":  # one thread does everything, one after the other
        pipeline_s = work.in_order_s + work.cpu_s + work.waited_s
        limit: Limit = "consumer" if work.consumer_s > pipeline_s else "interpreter"
        elapsed_s = max(work.consumer_s + pipeline_s, 1e-9)
        return Prediction(num_workers=0, num_threads=0, elapsed_s=elapsed_s, limit=limit)
    return work.predict(
        num_workers=stats.num_workers,
        num_threads=num_threads_in_use(stats),
        num_cores=num_cores,
    )


def num_threads_in_use(stats: "Stats") -> int:
    """Return the number of threads of each process, estimated for worker processes."""
    if not stats.num_workers:
        return max(1, stats.num_threads)
    parallel_s = sum([step.elapsed_s - step.in_order_s for step in stats.steps])
    return max(1, round(parallel_s / (stats.elapsed_s * stats.num_workers)))


def _smallest_of_best(predictions: Iterable[Prediction]) -> Prediction:
    several = list(predictions)
    least_s = min([prediction.elapsed_s for prediction in several])
    return next(one for one in several if one.elapsed_s <= SIMILAR * least_s)


def _powers_of_two(maximum: int) -> list[int]:
    return [1 << exponent for exponent in range(maximum.bit_length())]

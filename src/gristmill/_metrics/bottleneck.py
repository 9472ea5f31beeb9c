"""Bottleneck: what limits the elements per second of a run, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final

from gristmill._base.format_numbers import format_seconds
from gristmill._metrics.copies import MOSTLY_COPYING, copied_share

if TYPE_CHECKING:
    from gristmill._metrics.stats import Stats, StepStats

BottleneckKind: TypeAlias = Literal[
    "consumer",
    "waiting",
    "computing",
    "interpreter",
    "in order",
    "transfer",
    "device",
    "other hosts",
    "overhead",
]

CONSUMER_SHARE = 0.5
"""The caller is the bottleneck if it is busy for this share of the time."""

LITTLE_WAITING = 0.1
"""If the caller waits for less than this share of the time, a faster pipeline gains little."""

WITHOUT_CORE_RATIO = 0.5
"""Waiting for a core is named if it is more than this, compared with the time on a core."""

OVERHEAD_SHARE = 0.25
"""If the steps take less than this share of the time that the caller waited, no step is slow."""

CONTENDED_SHARE = 0.4
"""Minimum share of their time that steps wait for the interpreter lock if it is the bottleneck.

At a load of 18 on two cores, 0.51 to 0.59 was measured for threads that hold it, and 0.23 to 0.31
for native code that releases it, where waiting for a core is taken for waiting for the lock."""

WAITING_SHARE = 2 / 3
"""Minimum share of the time of a step, apart from the lock, that it waits if it waits for data. On
the same machine, 0.51 to 0.61 of the time of native code was taken for that; a read that waits has
more than 0.9."""

LOCKED_SHARE = 1 / 3
"""More threads are not recommended if steps that compute have the lock for this share of the time:
each thread that waited has to get it back, and so has the caller."""

MAX_CORES_WITH_LOCK = 1.25
"""Maximum number of cores that steps use if the lock is the bottleneck: its holders share one."""

FEED_SHARE = 0.5
"""Placing batches, or other hosts, are the bottleneck if they take this share of the time."""

USE_WORKERS = "Use worker processes: `worker_count`, or `mp_prefetch` of a dataset."


@final
@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What limits a run.

    >>> print(Bottleneck(kind="consumer", explanation="Your code is slow.", remedy="Speed it up."))
    consumer: Your code is slow. Speed it up.
    """

    kind: BottleneckKind
    """- `"consumer"`: the code that takes the elements;
    - `"waiting"`: a step that waits, usually for a disk or a network;
    - `"computing"`: a step that computes;
    - `"interpreter"`: a step that holds the interpreter lock, which other threads wait for;
    - `"in order"`: a step that runs on one block after the other, however many workers there are;
    - `"transfer"`: workers that copy their results into shared memory;
    - `"device"`: placing batches on devices;
    - `"other hosts"`: other processes of the job, which have no batch yet;
    - `"overhead"`: none of these, such as starting workers, or handing over small elements."""
    step: str = ""
    """The name of the step, as in `Stats.steps`, if it is one."""
    explanation: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.explanation} {self.remedy}"


def find_bottleneck(stats: "Stats") -> Bottleneck | None:
    """Return what limits a run; `None` before its first element."""
    if not stats.num_elements or stats.elapsed_s <= 0:
        return None
    busy_s = stats.elapsed_s - stats.waited_s
    if busy_s >= CONSUMER_SHARE * stats.elapsed_s:
        return Bottleneck(
            kind="consumer",
            explanation=f"Your code was busy for {busy_s / stats.elapsed_s:.0%} of the time.",
            remedy=_limit_of_gains(stats),
        )
    if stats.host_wait_s > FEED_SHARE * stats.elapsed_s:
        return _other_hosts(stats)
    if stats.place_s > FEED_SHARE * stats.elapsed_s:
        return _device(stats)
    num_parallel = max(1, stats.num_workers or stats.num_threads)
    in_order_s = sum([step.in_order_s for step in stats.steps])
    parallel_s = stats.busy_s / num_parallel
    steps_s = sum([step.elapsed_s for step in stats.steps]) - in_order_s + stats.transfer_s
    accounted_s = in_order_s + steps_s / num_parallel
    if accounted_s < OVERHEAD_SHARE * stats.waited_s:
        return _overhead(stats, accounted_s)
    if is_lock_contended(stats):
        step = max(stats.steps, key=lambda step: step.cpu_s)
        if step.in_order_s < 0.5 * step.elapsed_s:
            return _interpreter(step, stats)
    if stats.executor != "inline" and in_order_s > parallel_s:
        return _in_order(max(stats.steps, key=lambda step: step.in_order_s), stats)
    if stats.transfer_s > 0.5 * stats.busy_s:
        return Bottleneck(
            kind="transfer",
            explanation=f"Workers copied results for {format_seconds(stats.transfer_s)} of the "
            f"{format_seconds(stats.busy_s)} that they were busy.",
            remedy="Return fewer bytes from the workers, for example uint8 instead of float32, and "
            "large arrays instead of many small objects.",
        )
    return _step(stats.steps, stats)


def _overhead(stats: "Stats", accounted_s: float) -> Bottleneck:
    """Return the bottleneck of a run that waited for longer than its steps took."""
    is_starting = stats.first_wait_s > 0.5 * stats.waited_s
    return Bottleneck(
        kind="overhead",
        explanation=f"All steps together account for {format_seconds(accounted_s)} of the "
        f"{format_seconds(stats.waited_s)} that your code waited, of which "
        f"{format_seconds(stats.first_wait_s)} passed before the first element.",
        remedy=(
            "Starting workers takes longer. Measure a longer run, or use fewer workers."
            if is_starting
            else "Handing over the elements takes longer. Batch them in the pipeline, or use fewer "
            "workers."
        ),
    )


def is_lock_contended(stats: "Stats") -> bool:
    """Return whether steps wait for the interpreter lock rather than for cores or data."""
    elapsed_s = sum([step.elapsed_s for step in stats.steps])
    waited_s = sum([step.interpreter_wait_s for step in stats.steps])
    num_cores = sum([step.cpu_s for step in stats.steps]) / stats.elapsed_s
    num_interpreters = max(1, stats.num_workers)
    return (
        waited_s > CONTENDED_SHARE * elapsed_s
        and num_cores < MAX_CORES_WITH_LOCK * num_interpreters
    )


def _step(steps: Sequence["StepStats"], stats: "Stats") -> Bottleneck:
    """Return the step that takes longest, apart from waiting for the interpreter lock."""
    step = max(steps, key=lambda step: step.elapsed_s - step.interpreter_wait_s)
    if step.in_order_s > 0.5 * step.elapsed_s:
        return _in_order(step, stats)
    if step.waited_s > WAITING_SHARE * (step.elapsed_s - step.interpreter_wait_s):
        return Bottleneck(
            kind="waiting",
            step=step.name,
            explanation=f"{step.name!r} waits, usually for a disk or a network: {_share(step)}.",
            remedy=_more_waits(stats),
        )
    return Bottleneck(
        kind="computing",
        step=step.name,
        explanation=f"{step.name!r} computes: {format_seconds(step.cpu_s)} on a core"
        f"{_without_core(step)}.",
        remedy=_more_cores(stats),
    )


def _more_cores(stats: "Stats") -> str:
    cpu_s = sum([step.cpu_s for step in stats.steps]) + stats.transfer_s
    if copied_share(stats.output_bytes, cpu_s) > MOSTLY_COPYING:
        return (
            "Most of that is copying arrays, and workers share the memory bandwidth. Use fewer "
            "bytes per element, for example uint8 instead of float32."
        )
    if stats.num_workers:
        return (
            f"Use more than {stats.num_workers} workers if there are more cores, or make the step "
            "cheaper."
        )
    return USE_WORKERS


def _more_waits(stats: "Stats") -> str:
    if stats.num_workers:
        return "Use more `ReadOptions.num_threads`, which each worker has, or more workers."
    locked_s = sum([step.cpu_s for step in stats.steps if step.in_order_s < step.elapsed_s])
    if locked_s > LOCKED_SHARE * stats.elapsed_s:
        return (
            f"{USE_WORKERS} More threads would share the interpreter lock, which steps that "
            f"compute have for {locked_s / stats.elapsed_s:.0%} of the time."
        )
    if stats.num_threads < stats.max_threads:
        return (
            f"Up to {stats.max_threads} threads are allowed, and used while they are faster. "
            "Worker processes may be faster still: `worker_count`, or `mp_prefetch` of a dataset."
        )
    if stats.num_threads:
        return f"Use more than {stats.num_threads} `ReadOptions.num_threads`."
    return "Let threads wait at the same time: `ReadOptions(num_threads=16)`."


def _interpreter(step: "StepStats", stats: "Stats") -> Bottleneck:
    waited_s = sum([step.interpreter_wait_s for step in stats.steps])
    return Bottleneck(
        kind="interpreter",
        step=step.name,
        explanation=f"{step.name!r} holds the interpreter lock: threads waited "
        f"{format_seconds(waited_s)} for it.",
        remedy=(
            "Use more workers, with fewer `ReadOptions.num_threads` in each."
            if stats.num_workers
            else USE_WORKERS
        ),
    )


def _in_order(step: "StepStats", stats: "Stats") -> Bottleneck:
    return Bottleneck(
        kind="in order",
        step=step.name,
        explanation=f"{step.name!r} runs on one block after the other, for "
        f"{format_seconds(step.in_order_s)} of {format_seconds(stats.elapsed_s)}.",
        remedy="Make it cheaper, or move it below the step that needs the elements in order, so "
        "that it runs in parallel.",
    )


def _other_hosts(stats: "Stats") -> Bottleneck:
    return Bottleneck(
        kind="other hosts",
        explanation=f"Other processes of the job had no batch yet for "
        f"{format_seconds(stats.host_wait_s)} of {format_seconds(stats.elapsed_s)}.",
        remedy="Find the slowest process: its own statistics name another bottleneck.",
    )


def _device(stats: "Stats") -> Bottleneck:
    return Bottleneck(
        kind="device",
        explanation=f"Placing batches on devices took {format_seconds(stats.place_s)} "
        f"of {format_seconds(stats.elapsed_s)}.",
        remedy="Feed fewer bytes, for example uint8 instead of float32, and dtypes that JAX does "
        "not convert.",
    )


def _share(step: "StepStats") -> str:
    return f"{format_seconds(step.waited_s)} of {format_seconds(step.elapsed_s)}"


def _without_core(step: "StepStats") -> str:
    """Return what to add about a step that waited for a core for long."""
    if step.core_wait_s < WITHOUT_CORE_RATIO * step.cpu_s:
        return ""
    return f", and {format_seconds(step.core_wait_s)} without one, because all cores were busy"


def _limit_of_gains(stats: "Stats") -> str:
    if stats.waited_share < LITTLE_WAITING:
        return "A faster pipeline gains little."
    return f"A faster pipeline brings at most {1.0 / (1.0 - stats.waited_share):.1f}x."

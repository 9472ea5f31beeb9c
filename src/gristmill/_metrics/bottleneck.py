"""Bottleneck: what limits the elements per second of a run, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final

if TYPE_CHECKING:
    from gristmill._metrics.stats import Stats, StepStats

BottleneckKind: TypeAlias = Literal[
    "consumer", "waiting", "computing", "interpreter", "in order", "transfer", "overhead"
]

CONSUMER_SHARE = 0.5
"""The caller is the bottleneck if it is busy for this share of the time."""

OVERHEAD_SHARE = 0.25
"""If the steps take less than this share of the time that the caller waited, no step is slow."""

CONTENDED_SHARE = 0.3
"""Minimum share of their time that steps wait for the interpreter lock if it is the bottleneck."""

MAX_CORES_WITH_LOCK = 1.25
"""Maximum number of cores that steps use if the lock is the bottleneck: its holders share one."""


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
    - `"overhead"`: none of these, such as starting workers, or placing batches on devices."""
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
            remedy="A faster pipeline gains little.",
        )
    num_parallel = max(1, stats.num_workers or stats.num_threads)
    in_order_s = sum([step.in_order_s for step in stats.steps])
    parallel_s = stats.busy_s / num_parallel
    if in_order_s + parallel_s < OVERHEAD_SHARE * stats.waited_s:
        return Bottleneck(
            kind="overhead",
            explanation=f"All steps together account for {in_order_s + parallel_s:.2f} s of the "
            f"{stats.waited_s:.2f} s that your code waited.",
            remedy="Starting workers or placing batches on devices takes longer. Measure a longer "
            "run, or use fewer workers.",
        )
    if is_lock_contended(stats):
        step = max(stats.steps, key=lambda step: step.cpu_s)
        if step.in_order_s < 0.5 * step.elapsed_s:
            return _interpreter(step, stats)
    if stats.executor != "inline" and in_order_s > parallel_s:
        return _in_order(max(stats.steps, key=lambda step: step.in_order_s), stats)
    if stats.transfer_s > 0.5 * stats.busy_s:
        return Bottleneck(
            kind="transfer",
            explanation=f"Workers copied results for {stats.transfer_s:.2f} s of the "
            f"{stats.busy_s:.2f} s that they were busy.",
            remedy="Return fewer bytes from the workers, for example uint8 instead of float32, and "
            "large arrays instead of many small objects.",
        )
    return _step(stats.steps, stats)


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
    if step.waited_s > 0.5 * (step.elapsed_s - step.interpreter_wait_s):
        return Bottleneck(
            kind="waiting",
            step=step.name,
            explanation=f"{step.name!r} waits, usually for a disk or a network: {_share(step)}.",
            remedy=_more_waits(stats),
        )
    return Bottleneck(
        kind="computing",
        step=step.name,
        explanation=f"{step.name!r} computes: {step.cpu_s:.2f} s on a core.",
        remedy=(
            f"Use more than {stats.num_workers} workers if there are more cores, or make the step "
            "cheaper."
            if stats.num_workers
            else "Use worker processes: `worker_count`, or `mp_prefetch` of a dataset."
        ),
    )


def _more_waits(stats: "Stats") -> str:
    if stats.num_workers:
        return "Use more `ReadOptions.num_threads`, which each worker has, or more workers."
    if stats.num_threads:
        return f"Use more than {stats.num_threads} `ReadOptions.num_threads`."
    return "Let threads wait at the same time: `ReadOptions(num_threads=16)`."


def _interpreter(step: "StepStats", stats: "Stats") -> Bottleneck:
    waited_s = sum([step.interpreter_wait_s for step in stats.steps])
    return Bottleneck(
        kind="interpreter",
        step=step.name,
        explanation=f"{step.name!r} holds the interpreter lock: threads waited {waited_s:.2f} s "
        "for it.",
        remedy=(
            "Use more workers, with fewer `ReadOptions.num_threads` in each."
            if stats.num_workers
            else "Use worker processes: `worker_count`, or `mp_prefetch` of a dataset."
        ),
    )


def _in_order(step: "StepStats", stats: "Stats") -> Bottleneck:
    return Bottleneck(
        kind="in order",
        step=step.name,
        explanation=f"{step.name!r} runs on one block after the other, for {step.in_order_s:.2f} s "
        f"of {stats.elapsed_s:.2f} s.",
        remedy="Make it cheaper, or move it below the step that needs the elements in order, so "
        "that it runs in parallel.",
    )


def _share(step: "StepStats") -> str:
    return f"{step.waited_s:.2f} s of {step.elapsed_s:.2f} s"

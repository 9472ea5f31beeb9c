"""Statistics of a loader or iterator at one moment, as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from gristmill._metrics.bottleneck import Bottleneck, find_bottleneck


@final
@dataclass(frozen=True, kw_only=True)
class StepStats:
    """Time spent in one step of the pipeline, added up over threads and workers.

    With several threads or workers, the sum may exceed the time that the run took, except for
    `cpu_s`, which is at most the time of the run times the number of cores.

    >>> StepStats(name="Map f", elapsed_s=4.0, cpu_s=1.0, interpreter_wait_s=2.5).core_wait_s
    0.5
    """

    name: str
    elapsed_s: float = 0.0
    """Time from the start to the end of the step for each block."""
    cpu_s: float = 0.0
    """Part of `elapsed_s` in which the step had a core."""
    waited_s: float = 0.0
    """Part of `elapsed_s` in which the step waited for a disk, a network, or another thread of the
    user's code."""
    interpreter_wait_s: float = 0.0
    """Part of `elapsed_s` in which the step waited for the interpreter lock, because another thread
    of the process had it. An estimate."""
    in_order_s: float = 0.0
    """Part of `elapsed_s` in which the step ran above the cut: on one block after the other."""

    @property
    def core_wait_s(self) -> float:
        """The rest of `elapsed_s`: the step could have computed, but all cores were busy."""
        return self.elapsed_s - self.cpu_s - self.waited_s - self.interpreter_wait_s


@final
@dataclass(frozen=True, kw_only=True)
class Stats:
    """What a loader, or one of its iterators, has done so far and holds now.

    Counts are named `num_x`, times end in `_s`, amounts of memory in `_bytes`.

    >>> Stats(num_elements=10, elapsed_s=2.0, waited_s=0.5).waited_share
    0.25
    """

    num_elements: int = 0
    """Elements handed to the caller."""
    output_bytes: int = 0
    """Bytes of the arrays in them, estimated from one element of each block."""
    elapsed_s: float = 0.0
    """Time from the first request to the last element."""
    waited_s: float = 0.0
    """Part of `elapsed_s` in which the caller waited for an element."""
    steps: tuple[StepStats, ...] = ()
    """Steps of the pipeline, from the source up."""
    busy_s: float = 0.0
    """Time for which threads or workers were busy with blocks, added up."""
    transfer_s: float = 0.0
    """Part of `busy_s` in which workers copied results into shared memory."""
    num_skipped: int = 0
    """Bad records skipped on request."""
    executor: str = "inline"
    """Current executor: `"inline"`, `"threads"` or `"processes"`."""
    num_threads: int = 0
    """Threads that read and compute."""
    num_workers: int = 0
    """Worker processes."""
    worker_start: str = ""
    """How the workers were started: `"forked"` from the fork server, or `"spawned"` as new
    interpreters, with the reason why they could not be forked."""
    num_restarts: int = 0
    """Workers that died and were replaced."""
    num_blocks_ready: int = 0
    """Blocks that are computed and not yet requested."""
    num_blocks_in_flight: int = 0
    """Blocks that are being computed."""
    shared_memory_bytes: int = 0
    """Shared memory that is mapped for the batches of workers."""

    @property
    def waited_share(self) -> float:
        """Share of the elapsed time in which the caller waited for data."""
        return self.waited_s / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def bottleneck(self) -> Bottleneck | None:
        """What limits the elements per second, and what to do about it; `None` at the start.

        >>> stats = Stats(
        ...     num_elements=10,
        ...     elapsed_s=2.0,
        ...     waited_s=1.9,
        ...     busy_s=1.9,
        ...     steps=(StepStats(name="Map f", elapsed_s=1.9, cpu_s=1.9),),
        ... )
        >>> print(stats.bottleneck)
        computing: 'Map f' computes: 1.90 s on a core. Use worker processes: `worker_count`, or \
`mp_prefetch` of a dataset.
        """
        return find_bottleneck(self)

    def __str__(self) -> str:
        """Return the summary, a line for each step, and the bottleneck."""
        lines = [self.summary()]
        if self.steps:
            width = max(len(step.name) for step in self.steps)
            lines.append(f"{'':{width}}  elapsed      CPU   waited  interpreter wait")
            lines += [
                f"{step.name:{width}} {step.elapsed_s:6.2f} s {step.cpu_s:6.2f} s "
                f"{step.waited_s:6.2f} s {step.interpreter_wait_s:15.2f} s"
                for step in self.steps
            ]
        return "\n".join([*lines, *([] if self.bottleneck is None else [str(self.bottleneck)])])

    def summary(self) -> str:
        """Return one line about how much of the time the caller waited for data.

        >>> Stats(num_elements=120, elapsed_s=3.2, waited_s=0.0104).summary()
        'waited for data 0.3% of the time: 0.01 s of 3.20 s, 120 elements'
        """
        return (
            f"waited for data {100 * self.waited_share:.1f}% of the time: {self.waited_s:.2f} s of "
            f"{self.elapsed_s:.2f} s, {self.num_elements:,} elements"
        )


def add_stats(several: Iterable[Stats]) -> Stats:
    """Add up the statistics of several iterators; the execution details are those of the last.

    >>> add_stats([Stats(num_elements=1), Stats(num_elements=2)]).num_elements
    3
    """
    total = Stats()
    for stats in several:
        total = Stats(
            num_elements=total.num_elements + stats.num_elements,
            output_bytes=total.output_bytes + stats.output_bytes,
            elapsed_s=total.elapsed_s + stats.elapsed_s,
            waited_s=total.waited_s + stats.waited_s,
            steps=_add_steps(total.steps, stats.steps),
            busy_s=total.busy_s + stats.busy_s,
            transfer_s=total.transfer_s + stats.transfer_s,
            num_skipped=total.num_skipped + stats.num_skipped,
            executor=stats.executor,
            num_threads=stats.num_threads,
            num_workers=stats.num_workers,
            worker_start=stats.worker_start,
            num_restarts=total.num_restarts + stats.num_restarts,
            num_blocks_ready=stats.num_blocks_ready,
            num_blocks_in_flight=stats.num_blocks_in_flight,
            shared_memory_bytes=stats.shared_memory_bytes,
        )
    return total


def _add_steps(total: tuple[StepStats, ...], steps: tuple[StepStats, ...]) -> tuple[StepStats, ...]:
    if not total:
        return steps
    return tuple(
        StepStats(
            name=step.name,
            elapsed_s=before.elapsed_s + step.elapsed_s,
            cpu_s=before.cpu_s + step.cpu_s,
            waited_s=before.waited_s + step.waited_s,
            interpreter_wait_s=before.interpreter_wait_s + step.interpreter_wait_s,
            in_order_s=before.in_order_s + step.in_order_s,
        )
        for before, step in zip(total, steps, strict=True)
    )

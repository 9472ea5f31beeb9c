"""Statistics of a loader or iterator at one moment, as data."""

import importlib
import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

from gristmill._base.format_numbers import count_of, format_seconds
from gristmill._base.text_table import format_table
from gristmill._metrics.bottleneck import Bottleneck, find_bottleneck
from gristmill._metrics.history import Sample
from gristmill._printable import printable

COLUMNS = ("step", "share", "time", "CPU", "waiting", "lock", "no core")

MAX_NAME = 44
"""Longer names of steps are cut where they share a line with numbers."""


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
    num_values: int = 0
    """Values of the arrays that the step padded, including padding."""
    num_padding: int = 0
    """Those of them that are padding."""
    num_records: int = 0
    """Records that the step read from a source."""
    num_bytes: int = 0
    """Bytes of the arrays and strings in them, estimated from one of each block."""

    @property
    def core_wait_s(self) -> float:
        """The rest of `elapsed_s`: the step could have computed, but all cores were busy."""
        return self.elapsed_s - self.cpu_s - self.waited_s - self.interpreter_wait_s


class RecentSkip(NamedTuple):
    """A record that was skipped, as views list it."""

    step: str
    error: str
    """Type and message, cut if it is long."""
    record: int | None
    """Its index in the source, if it is known."""
    position: int


MAX_RECENT_SKIPS = 200
"""Skipped records that statistics list: the last ones."""


@final
@dataclass(frozen=True, kw_only=True)
class WorkerStats:
    """What one Ray actor has done so far.

    >>> WorkerStats(name="worker 0", node="10.0.0.2", num_blocks=3).num_restarts
    0
    """

    name: str
    """Its name, as on Ray's dashboard."""
    node: str
    """The address of its machine."""
    num_blocks: int = 0
    """Blocks that it computed."""
    output_bytes: int = 0
    """Bytes of them, as they were sent."""
    busy_s: float = 0.0
    """Time for which it computed."""
    network_wait_s: float = 0.0
    """Time between request and reply in which it did not compute: that of the network, mostly."""
    num_restarts: int = 0
    """How often another actor replaced it, or one before it that died while it started."""


@final
@dataclass(frozen=True, kw_only=True, repr=False)
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
    first_wait_s: float = 0.0
    """Part of `waited_s` before the first element, in which workers start."""
    consumer_cpu_s: float = 0.0
    """Part of the time in which the caller did not wait for data that its thread had a core. The
    rest it waited for something else, such as a device."""
    steps: tuple[StepStats, ...] = ()
    """Steps of the pipeline, from the source up."""
    busy_s: float = 0.0
    """Time for which threads or workers were busy with blocks, added up."""
    transfer_s: float = 0.0
    """Part of `busy_s` in which workers copied results into shared memory."""
    place_s: float = 0.0
    """Time in which `feed` placed batches on devices."""
    host_wait_s: float = 0.0
    """Time in which `feed` waited for other processes of a job."""
    num_skipped: int = 0
    """Bad records skipped on request."""
    recent_skips: tuple[RecentSkip, ...] = ()
    """The last of them, up to 200."""
    executor: str = "inline"
    """Current executor: `"inline"`, `"threads"`, `"processes"` or `"ray"`."""
    num_threads: int = 0
    """Threads that read and compute."""
    max_threads: int = 0
    """The largest number of threads, of this process or of each worker, that settings allow."""
    num_workers: int = 0
    """Worker processes or Ray actors."""
    worker_start: str = ""
    """How the workers were started: `"forked"` from the fork server, with the reason if each worker
    imports some modules itself, or `"spawned"` as new interpreters, with the reason why they could
    not be forked."""
    missing_workers: str = ""
    """Why fewer Ray actors run than were requested, if the cluster has no room for all of them."""
    num_restarts: int = 0
    """Workers that died and were replaced."""
    num_blocks: int = 0
    """Blocks handed to the caller."""
    num_positions: int = 0
    """Records of samplers and elements of datasets that were requested for them: threads read them
    at the same time."""
    num_blocks_ready: int = 0
    """Blocks that are computed and not yet requested."""
    num_blocks_in_flight: int = 0
    """Blocks that are being computed."""
    sum_blocks_ready: int = 0
    """The sum of `num_blocks_ready` at the moments when the caller got a block."""
    wait_counts: tuple[int, ...] = ()
    """How many elements were waited for by up to 1, 2, 4, ... nanoseconds, and longer than all."""
    shared_memory_bytes: int = 0
    """Shared memory that is mapped for the batches of workers."""
    history: tuple[Sample, ...] = ()
    """What the last iterator had done at up to 240 moments, from its start to now."""
    recent: tuple[Sample, ...] = ()
    """The same for the last minute of it, every 0.5 s."""
    workers: tuple[WorkerStats, ...] = ()
    """Ray actors, one by one. Empty with other executors."""

    @property
    def padding_share(self) -> float:
        """Share of the values of padded arrays that are padding; 0 if nothing is padded.

        >>> Stats(steps=(StepStats(name="Batch(8)", num_values=40, num_padding=10),)).padding_share
        0.25
        """
        num_values = sum(step.num_values for step in self.steps)
        return sum(step.num_padding for step in self.steps) / num_values if num_values else 0.0

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

    @property
    def nodes(self) -> tuple[WorkerStats, ...]:
        """The sum over the Ray actors of each machine.

        >>> one = WorkerStats(name="worker 0", node="10.0.0.2", num_blocks=3)
        >>> two = WorkerStats(name="worker 1", node="10.0.0.2", num_blocks=4)
        >>> [(node.node, node.num_blocks) for node in Stats(workers=(one, two)).nodes]
        [('10.0.0.2', 7)]
        """
        return _add_workers([replace(worker, name=worker.node) for worker in self.workers])

    def __str__(self) -> str:
        """Return the summary, a line for each step, and the bottleneck."""
        lines = [self.summary()]
        if self.steps:
            rows = [(shorten_name(name), *cells) for name, *cells in step_rows(self)]
            lines.append(format_table([COLUMNS, *rows]))
            lines += [
                f"{step.name} pads: {100 * step.num_padding / step.num_values:.1f}% of the values "
                "of its arrays are padding"
                for step in self.steps
                if step.num_values
            ]
        if self.missing_workers:
            lines.append(printable(self.missing_workers))
        return "\n".join([*lines, *([] if self.bottleneck is None else [str(self.bottleneck)])])

    def __repr__(self) -> str:
        where = self.executor
        if self.num_workers or self.num_threads:
            where += f" ({self.num_workers or self.num_threads})"
        return f"<Stats: {self.summary()}, {len(self.steps)} steps, {where}>"

    def _repr_html_(self) -> str:
        return show_html(self)

    def summary(self) -> str:
        """Return one line about how much of the time the caller waited for data.

        >>> Stats(num_elements=120, elapsed_s=3.2, waited_s=0.0104).summary()
        'waited for data 0.3% of the time: 10.4 ms of 3.20 s, 120 elements'
        """
        if not self.elapsed_s:
            return count_of(self.num_elements, "element")
        return (
            f"waited for data {100 * self.waited_share:.1f}% of the time: "
            f"{format_seconds(self.waited_s)} of {format_seconds(self.elapsed_s)}, "
            f"{count_of(self.num_elements, 'element')}"
        )


@runtime_checkable
class HasStats(Protocol):
    """What counts what it does: a loader, an iterator of a loader or a dataset, or a feed."""

    def stats(self) -> Stats:
        """Return what was counted so far."""
        ...


def shorten_name(name: str, length: int = MAX_NAME) -> str:
    """Return the name of a step for a line that also has numbers.

    >>> shorten_name("RandomMap Crop(size=(224, 224))", 20)
    'RandomMap Crop(size…'
    """
    return name if len(name) <= length else f"{name[: length - 1]}…"


def step_shares(stats: Stats) -> list[float]:
    """Return the share of each step in the time of all steps, 0 if none has taken any.

    >>> steps = (StepStats(name="a", elapsed_s=1.0), StepStats(name="b", elapsed_s=3.0))
    >>> step_shares(Stats(steps=steps))
    [0.25, 0.75]
    """
    # Waiting for the lock is caused by the step that holds it, which has the time as CPU time.
    times = [max(0.0, step.elapsed_s - step.interpreter_wait_s) for step in stats.steps]
    total_s = sum(times)
    return [seconds / total_s if total_s else 0.0 for seconds in times]


def step_rows(stats: Stats) -> list[tuple[str, ...]]:
    """Return the cells of `COLUMNS` for each step. Waiting for a core is "no core"."""
    return [
        (
            printable(step.name),
            f"{share:.0%}",
            format_seconds(step.elapsed_s),
            *(
                format_seconds(seconds) if seconds > 1e-6 else "-"
                for seconds in (
                    step.cpu_s,
                    step.waited_s,
                    step.interpreter_wait_s,
                    step.core_wait_s,
                )
            ),
        )
        for step, share in zip(stats.steps, step_shares(stats), strict=True)
    ]


def show_html(stats: Stats, *, title: str = "", is_dataset: bool = False) -> str:
    """Return statistics as HTML. Most programs show none, so what makes it is imported here.

    Args:
        stats: The statistics.
        title: Whose they are.
        is_dataset: Whether settings are named as those of a dataset, not those of a loader.
    """
    module: Any = importlib.import_module("gristmill._metrics.pages.run_html")
    return module.stats_html(stats, title=title, is_dataset=is_dataset)


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
            first_wait_s=total.first_wait_s + stats.first_wait_s,
            consumer_cpu_s=total.consumer_cpu_s + stats.consumer_cpu_s,
            steps=_add_steps(total.steps, stats.steps),
            busy_s=total.busy_s + stats.busy_s,
            transfer_s=total.transfer_s + stats.transfer_s,
            place_s=total.place_s + stats.place_s,
            host_wait_s=total.host_wait_s + stats.host_wait_s,
            num_skipped=total.num_skipped + stats.num_skipped,
            recent_skips=(total.recent_skips + stats.recent_skips)[-MAX_RECENT_SKIPS:],
            executor=stats.executor,
            num_threads=stats.num_threads,
            max_threads=stats.max_threads,
            num_workers=stats.num_workers,
            worker_start=stats.worker_start,
            missing_workers=stats.missing_workers,
            num_restarts=total.num_restarts + stats.num_restarts,
            num_blocks=total.num_blocks + stats.num_blocks,
            num_positions=total.num_positions + stats.num_positions,
            num_blocks_ready=stats.num_blocks_ready,
            sum_blocks_ready=total.sum_blocks_ready + stats.sum_blocks_ready,
            wait_counts=_add_counts(total.wait_counts, stats.wait_counts),
            num_blocks_in_flight=stats.num_blocks_in_flight,
            shared_memory_bytes=total.shared_memory_bytes + stats.shared_memory_bytes,
            history=stats.history or total.history,
            recent=stats.recent or total.recent,
            workers=_add_workers([*total.workers, *stats.workers]),
        )
    return total


def _add_counts(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    if not first or not second:
        return first or second
    return tuple(map(operator.add, first, second))


def _add_workers(workers: Iterable[WorkerStats]) -> tuple[WorkerStats, ...]:
    """Add up what has the same name."""
    totals: dict[tuple[str, str], WorkerStats] = {}
    for worker in workers:
        key = worker.node, worker.name
        total = totals.get(key, WorkerStats(name=worker.name, node=worker.node))
        totals[key] = WorkerStats(
            name=worker.name,
            node=worker.node,
            num_blocks=total.num_blocks + worker.num_blocks,
            output_bytes=total.output_bytes + worker.output_bytes,
            busy_s=total.busy_s + worker.busy_s,
            network_wait_s=total.network_wait_s + worker.network_wait_s,
            num_restarts=total.num_restarts + worker.num_restarts,
        )
    return tuple(totals.values())


def _add_steps(total: tuple[StepStats, ...], steps: tuple[StepStats, ...]) -> tuple[StepStats, ...]:
    """Add up what has the same name, in order. A run that was resharded has other steps."""
    sums: dict[tuple[str, int], StepStats] = {}
    for some in (total, steps):
        counts = Counter[str]()
        for step in some:
            key = step.name, counts[step.name]
            counts[step.name] += 1
            before = sums.get(key, StepStats(name=step.name))
            sums[key] = StepStats(
                name=step.name,
                elapsed_s=before.elapsed_s + step.elapsed_s,
                cpu_s=before.cpu_s + step.cpu_s,
                waited_s=before.waited_s + step.waited_s,
                interpreter_wait_s=before.interpreter_wait_s + step.interpreter_wait_s,
                in_order_s=before.in_order_s + step.in_order_s,
                num_values=before.num_values + step.num_values,
                num_padding=before.num_padding + step.num_padding,
                num_records=before.num_records + step.num_records,
                num_bytes=before.num_bytes + step.num_bytes,
            )
    return tuple(sums.values())

"""Explain a run: how much of the time the caller waited, for what, and what would change it."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, final

from gristmill._base.format_numbers import count_of, format_rate, format_seconds
from gristmill._base.threads.cores import num_cores as available_cores
from gristmill._metrics.bottleneck import Bottleneck
from gristmill._metrics.headspace import Headspace
from gristmill._metrics.prediction import (
    SIMILAR,
    Limit,
    Prediction,
    Workload,
    num_threads_in_use,
    predict_present,
    work_of,
)
from gristmill._metrics.stats import Stats
from gristmill._printable import printable

MIN_FIRST_SHARE = 0.2
"""The wait for the first element is named if it is more than this share of all waiting."""

MIN_SPEEDUP = 1.1
"""A change that is predicted to bring less than this is not recommended."""


@final
@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of the settings or of a step, and what it would bring.

    >>> print(Change(action="With `worker_count=4`", speedup=1.84, limit="the 4 cores"))
    With `worker_count=4`, the run would be about 1.8x as fast; its limit is then the 4 cores.
    """

    action: str
    """What to change: the start of a sentence."""
    speedup: float
    """The predicted number of elements per second, divided by the measured one."""
    limit: str
    """What would then limit the run: more of the same change does not help."""

    def __str__(self) -> str:
        return (
            f"{self.action}, the run would be {_about(self.speedup)} as fast; its limit is "
            f"then {self.limit}."
        )


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """Why a run is as fast as it is. `print` it, or use its fields.

    All numbers come from `stats`. Speedups are predictions from what the steps took on a core and
    waiting; they assume that other programs leave the cores free.

    >>> from gristmill import Stats
    >>> print(explain_stats(Stats()))
    Nothing was measured yet: take some elements first.
    """

    stats: Stats
    """What was measured."""
    bottleneck: Bottleneck | None
    """What limits the elements per second; `None` before the first element."""
    changes: tuple[Change, ...] = ()
    """Changes that are predicted to bring at least a tenth; those of settings come first."""
    headspace: Headspace | None = None
    """The speed of the training step without data, if it was measured."""

    @property
    def elements_per_s(self) -> float:
        """The measured number of elements per second."""
        return self.stats.num_elements / self.stats.elapsed_s if self.stats.elapsed_s else 0.0

    @property
    def free_data_speedup(self) -> float:
        """How much faster your code would run if it never waited for data.

        It is measured with `headspace`, and otherwise estimated: the time that your code did not
        wait is the time that it needs.
        """
        stats = self.stats
        if not self.elements_per_s:
            return 1.0
        if self.headspace is not None:
            return max(1.0, self.headspace.steps_per_s / self.elements_per_s)
        return _speedup_without_waiting(stats)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        if self.bottleneck is None:
            return "<Explanation: nothing was measured yet>"
        step = f" {printable(self.bottleneck.step)!r:.60}" if self.bottleneck.step else ""
        return (
            f"<Explanation: waited for data {self.stats.waited_share:.0%} of the time, bottleneck "
            f"{self.bottleneck.kind!r}{step}, {count_of(len(self.changes), 'change')}>"
        )

    def _repr_html_(self) -> str:
        module: Any = importlib.import_module("gristmill._metrics.pages.verdict")
        return module.verdict_fragment(self)

    def _lines(self) -> Iterator[str]:
        if self.bottleneck is None:
            yield "Nothing was measured yet: take some elements first."
            return
        yield self.waiting_line()
        yield f"Bottleneck ({self.bottleneck.kind}): {printable(self.bottleneck.explanation)}"
        if self.changes:
            yield from (f"- {printable(str(change))}" for change in self.changes)
        else:
            yield f"- {self.bottleneck.remedy}"
        yield self.headspace_line()

    def waiting_line(self) -> str:
        """Return the sentence about how long the caller waited."""
        stats = self.stats
        first = ""
        if stats.num_elements > 1 and stats.first_wait_s > MIN_FIRST_SHARE * stats.waited_s:
            first = f", of which {format_seconds(stats.first_wait_s)} for the first element"
        return (
            f"Your code waited for data for {stats.waited_share:.0%} of the time: "
            f"{format_seconds(stats.waited_s)} of {format_seconds(stats.elapsed_s)}{first}; "
            f"{count_of(stats.num_elements, 'element')}, {format_rate(self.elements_per_s)}."
        )

    def headspace_line(self) -> str:
        """Return the sentence about how fast the caller would be if it never waited."""
        speedup = self.free_data_speedup
        if self.headspace is not None:
            return (
                f"If data were free, your code would run {_about(speedup)} as fast, at "
                f"{format_rate(self.headspace.steps_per_s)}: measured with one batch, "
                f"{self.headspace.num_steps} times."
            )
        return (
            f"If data were free, your code would run {_about(speedup)} as fast: estimated "
            "from the time that it did not wait."
        )


def explain_stats(
    stats: Stats,
    *,
    num_cores: int | None = None,
    is_dataset: bool = False,
    headspace: Headspace | None = None,
) -> Explanation:
    """Return the explanation of a run from its statistics.

    Args:
        stats: The statistics.
        num_cores: The number of cores. By default those that this process may use.
        is_dataset: Whether settings are named as those of a dataset, not those of a loader.
        headspace: The speed of the training step without data, if it was measured.
    """
    bottleneck = stats.bottleneck
    changes: list[Change] = []
    if bottleneck is not None:
        cores = available_cores() if num_cores is None else num_cores
        changes = list(_Advice(stats, bottleneck, cores, is_dataset=is_dataset).changes())
    return Explanation(
        stats=stats,
        bottleneck=bottleneck,
        changes=tuple([change for change in changes if change.speedup >= MIN_SPEEDUP]),
        headspace=headspace,
    )


@final
class _Advice:
    """Predicts what changes of one run would bring."""

    def __init__(
        self, stats: Stats, bottleneck: Bottleneck, num_cores: int, *, is_dataset: bool
    ) -> None:
        self._stats = stats
        self._bottleneck = bottleneck
        self._num_cores = num_cores
        self._is_dataset = is_dataset
        self._work = work_of(stats, num_cores)
        self._present = predict_present(self._work, stats, num_cores)

    def changes(self) -> Iterator[Change]:
        """Yield changes that fit the bottleneck, those of settings first."""
        match self._bottleneck.kind:
            case "transfer":
                yield self._fewer_bytes()
            case "in order":
                yield self._without_step()
            case "waiting" | "consumer":
                yield from self._settings()
            case "computing" | "interpreter":
                yield from self._settings()
                if self._work.is_mostly_copying:
                    yield self._fewer_bytes()
                yield self._without_step()
            case "device":
                yield self._fewer_placed_bytes()
            case "other hosts" | "overhead":
                return  # the record does not contain what other hosts would take

    def _settings(self) -> list[Change]:
        """Return changes of settings, the best one first."""
        threads, workers = list(self._more_threads()), list(self._more_workers())
        if threads and not self._stats.num_workers:  # the first worker must be worth it
            workers = [one for one in workers if one.speedup > SIMILAR * threads[0].speedup]
        return sorted([*threads, *workers], key=lambda change: -change.speedup)

    def _more_workers(self) -> Iterator[Change]:
        stats, work = self._stats, self._work
        if work.is_mostly_copying:  # a batch from another process comes in pages that are new here
            return
        num_threads = num_threads_in_use(stats)
        if not stats.num_workers:  # a worker uses its threads while its steps mostly wait
            num_threads = max(1, stats.max_threads) if work.waited_s > work.cpu_s else 1
        best = work.best_workers(
            num_threads=num_threads, num_cores=self._num_cores, num_workers=stats.num_workers
        )
        if best.num_workers > stats.num_workers and not self._is_tried(best):
            options = "RayOptions" if work.is_remote else "MultiprocessingOptions"
            setting = _workers_setting(best.num_workers, options if self._is_dataset else "")
            cores = " and as many cores in the cluster" if work.is_remote else ""
            yield self._change(f"With `{setting}`{cores}", best)

    def _is_tried(self, changed: Prediction) -> bool:
        """Return whether threads are about as fast, which a loader tries by itself."""
        stats = self._stats
        if stats.num_workers or stats.max_threads <= num_threads_in_use(stats):
            return False
        tried = self._work.predict(
            num_workers=0, num_threads=stats.max_threads, num_cores=self._num_cores
        )
        return tried.elapsed_s < MIN_SPEEDUP * changed.elapsed_s

    def _more_threads(self) -> Iterator[Change]:
        best = self._work.best_threads(
            num_workers=self._stats.num_workers, num_cores=self._num_cores
        )
        # Up to the number that is set already, a loader tries threads by itself.
        if best.num_threads > max(self._stats.max_threads, num_threads_in_use(self._stats)):
            setting = _threads_setting(best.num_threads, self._is_dataset)
            yield self._change(f"With `{setting}`", best)

    def _without_step(self) -> Change:
        name = self._bottleneck.step
        steps = tuple([step for step in self._stats.steps if step.name != name])
        rest = work_of(replace(self._stats, steps=steps), self._num_cores)
        return self._with_other_work(f"If {name!r} took no time", rest)

    def _fewer_bytes(self) -> Change:
        work = self._work
        if work.is_mostly_copying:
            shares = {
                name: 0.5 * getattr(work, name) for name in ("cpu_s", "in_order_s", "copied_s")
            }
            fewer = replace(work, **shares)
        else:
            fewer = replace(work, cpu_s=work.cpu_s - 0.5 * self._stats.transfer_s)
        return self._with_other_work("With half as many bytes per element", fewer)

    def _fewer_placed_bytes(self) -> Change:
        stats = self._stats
        speedup = stats.elapsed_s / max(stats.elapsed_s - 0.5 * stats.place_s, 1e-9)
        return Change(
            action="With half as many bytes per element",
            speedup=min(speedup, _speedup_without_waiting(stats)),
            limit="placing batches on devices",
        )

    def _with_other_work(self, action: str, work: Workload) -> Change:
        return self._change(action, predict_present(work, self._stats, self._num_cores))

    def _change(self, action: str, changed: Prediction) -> Change:
        return Change(
            action=action,
            # Both are predictions, but no data is faster than data for which the code never waits.
            speedup=min(
                self._present.elapsed_s / changed.elapsed_s, _speedup_without_waiting(self._stats)
            ),
            limit=_describe_limit(changed.limit, self._num_cores),
        )


def _speedup_without_waiting(stats: Stats) -> float:
    return stats.elapsed_s / max(stats.elapsed_s - stats.waited_s, 1e-3 * stats.elapsed_s)


def _workers_setting(number: int, dataset_options: str) -> str:
    if dataset_options:
        return f"mp_prefetch({dataset_options}(num_workers={number}))"
    return f"worker_count={number}"


def _threads_setting(number: int, is_dataset: bool) -> str:
    options = f"ReadOptions(num_threads={number})"
    return f"to_iter_dataset({options})" if is_dataset else f"read_options={options}"


def _describe_limit(limit: Limit, num_cores: int) -> str:
    match limit:
        case "consumer":
            return "your code"
        case "in order":
            return "the steps that run in order"
        case "cores":
            return f"the {num_cores} cores" if num_cores > 1 else "the only core"
        case "memory":
            return "memory bandwidth"
        case "interpreter":
            return "the interpreter lock"
        case "reads":
            return "the steps that wait"


def _about(speedup: float) -> str:
    return f"about {format_speedup(speedup)}" if speedup <= 10 else "more than 10x"


def format_speedup(speedup: float) -> str:
    """Return a ratio of speeds; of large ones, only that they are large.

    >>> format_speedup(1.84), format_speedup(27.3)
    ('1.8x', '>10x')
    """
    return f"{speedup:.1f}x" if speedup <= 10 else ">10x"

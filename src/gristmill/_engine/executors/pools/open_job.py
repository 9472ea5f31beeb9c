"""Job in a worker: a plan, and the reader of its ranges, which uses threads while reads wait."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, final

from gristmill._base.memory.aligned_alloc import aligned_empty
from gristmill._engine.access.context import Allocate, Reader
from gristmill._engine.access.cut import Cut, cut_plan
from gristmill._engine.access.reader import open_cut
from gristmill._engine.blocks.block import BlockResult, SourceEndedError, join_results
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.threads import ThreadExecutor, with_reader_name
from gristmill._engine.stages.batch import stack_stages
from gristmill._engine.tuning.measure import Stopwatch, is_mostly_waiting
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.counters import Counters


@final
class ThreadedReader:
    """Reads ranges of the base of a cut as `read` does; in threads after a range mostly waited.

    It returns to one thread after a range that did not wait.
    """

    def __init__(
        self,
        cut: Cut,
        read: Reader,
        *,
        num_threads: int,
        most_ahead: int,
        policy: TuningPolicy,
    ) -> None:
        self._cut = cut
        self._read = with_reader_name(read, num_threads=num_threads)
        self._policy = policy
        self._num_threads = num_threads
        # A source that reads many records in one call waits for all of them together, so that only
        # waits of the steps above it are shorter in threads.
        self._first_counted = cut.num_measured - cut.num_read if cut.plan.reads_many else 0
        self._low = cut_plan(
            cut.plan, skips_errors=cut.skips_errors, below_batches=True, in_order=cut.in_order
        )
        self._most_ahead = most_ahead
        self._threads: ThreadExecutor | None = None
        self._has_waited = False

    def __call__(self, positions: range) -> BlockResult:
        if self._has_waited and self._num_threads > 1:
            return self._read_in_threads(positions)
        watch = Stopwatch(self._policy)
        result = self._read(positions)
        watch.stop()
        self._has_waited = watch.has_waited and self._has_waited_in_steps([result], watch.wall_s)
        return result

    def _read_in_threads(self, positions: range) -> BlockResult:
        """Run the stages of the cut from the start to the end of a range."""
        if self._threads is None:
            self._threads = ThreadExecutor(
                with_reader_name(
                    open_cut(self._low, policy=self._policy), num_threads=self._num_threads
                ),
                most_positions_ahead=self._most_ahead,
                policy=self._policy,
            )
        threads = self._threads
        threads.resize(self._num_threads)
        records = self._cut.base.records_per_position
        low = self._low
        counters = Counters([""] * self._cut.num_measured)
        stop = min(positions.stop * records, low.base.length())
        ends: list[SourceEndedError] = []
        stage = stack_stages(low, threads, counters, length=stop, on_source_end=ends.append)
        stage.seek((positions.start * records,) + (0,) * low.num_flat_maps)
        results: list[BlockResult] = []
        while (result := stage.pull()) is not None:
            results.append(result)
            if result.error is not None:
                threads.cancel()
                break
        self._observe(results)
        joined = join_results(results)
        return replace(
            joined,
            error=ends[0] if ends else joined.error,
            step_times=tuple([step.time for step in counters.steps]),
            work=tuple(counters.timeline.works),
        )

    def _observe(self, results: list[BlockResult]) -> None:
        stats = [result.stats for result in results if result.stats is not None]
        serial_s = sum(block.serial_s for block in stats)
        waited_s = sum(block.waited_s for block in stats)
        self._has_waited = is_mostly_waiting(
            serial_s, waited_s, self._policy
        ) and self._has_waited_in_steps(results, serial_s)
        if not self._has_waited and self._threads is not None:
            self._threads.resize(1)

    def _has_waited_in_steps(self, results: list[BlockResult], wall_s: float) -> bool:
        """Return whether the steps waited whose waits are shorter in threads."""
        if not self._first_counted:
            return True
        steps = [step for result in results for step in result.step_times[self._first_counted :]]
        return is_mostly_waiting(wall_s, sum(step.waited_s for step in steps), self._policy)


class Probe(NamedTuple):
    """A part of a range that is computed by itself, because the range has killed a worker."""

    position: int
    record: int | None
    """The record that is read. `None`: the element at `position` is computed as a whole."""


@final
class OpenJob:
    """A job, and the reader of its plan.

    Args:
        job: The job.
        allocate: Returns uninitialized arrays for batches. By default they are ordinary arrays.
    """

    def __init__(self, job: Job, allocate: Allocate = aligned_empty) -> None:
        cut = self.cut = job.cut
        self._num_threads = job.read.num_threads
        self.read = ThreadedReader(
            cut,
            open_cut(cut, allocate, policy=job.policy),
            num_threads=job.read.num_threads,
            most_ahead=job.read.prefetch_buffer_size,
            policy=job.policy,
        )

    def run_probe(self, probe: Probe) -> None:
        """Compute a record or an element, and drop it."""
        if probe.record is None:
            self._read_elements(range(probe.position, probe.position + 1))
        else:
            self._read_records(range(probe.record, probe.record + 1))

    @cached_property
    def _read_records(self) -> Callable[[range], BlockResult]:
        return with_reader_name(open_cut(_record_cut(self.cut)), num_threads=self._num_threads)

    @cached_property
    def _read_elements(self) -> Callable[[range], BlockResult]:
        return with_reader_name(open_cut(self.cut), num_threads=self._num_threads)


def probes_of(cut: Cut, positions: range) -> Iterator[Probe]:
    """Yield what to compute by itself of a range: each record, then each element.

    If one of them kills the worker, the parent knows which one.
    """
    length = _record_cut(cut).base.length()
    size = cut.base.records_per_position
    for position in positions:
        for record in range(position * size, min((position + 1) * size, length)):
            yield Probe(position, record)
        yield Probe(position, None)


def _record_cut(cut: Cut) -> Cut:
    return cut_plan(cut.plan, skips_errors=cut.skips_errors, below_batches=True)

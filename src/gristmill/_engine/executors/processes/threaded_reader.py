"""Read one range in a worker with several threads, as long as its reads mostly wait."""

from dataclasses import replace
from typing import final

from gristmill._engine.access.context import Reader
from gristmill._engine.access.cut import Cut, cut_plan
from gristmill._engine.access.reader import open_cut
from gristmill._engine.blocks.block_result import BlockResult, join_results
from gristmill._engine.blocks.source_end import SourceEndedError
from gristmill._engine.executors.reader_names import with_reader_name
from gristmill._engine.executors.threads import ThreadExecutor
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
        # A source that reads many records in one call waits for all of them together.
        self._num_threads = 1 if cut.plan.reads_many else num_threads
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
        self._has_waited = watch.has_waited
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
        counters = Counters([""] * (1 + self._cut.num_read))
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
        )

    def _observe(self, results: list[BlockResult]) -> None:
        stats = [result.stats for result in results if result.stats is not None]
        serial_s = sum(block.serial_s for block in stats)
        waited_s = sum(block.waited_s for block in stats)
        self._has_waited = is_mostly_waiting(serial_s, waited_s, self._policy)
        if not self._has_waited and self._threads is not None:
            self._threads.resize(1)

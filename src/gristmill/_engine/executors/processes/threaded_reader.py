"""Reads one range in a worker with several threads, if its reads mostly wait."""

from dataclasses import replace
from typing import final

from gristmill._engine.access.context import Reader
from gristmill._engine.access.cut import Cut, cut_plan
from gristmill._engine.access.reader import open_cut
from gristmill._engine.blocks.block_result import BlockResult, join_results
from gristmill._engine.executors.threads import ThreadExecutor
from gristmill._engine.stages.stack import stack_stages
from gristmill._engine.tuning.waiting import Stopwatch
from gristmill._metrics.counters import Counters


@final
class ThreadedReader:
    """Reads ranges of a cut's base with `read`, and in threads after a range that mostly waited."""

    def __init__(self, cut: Cut, read: Reader, *, num_threads: int, most_ahead: int) -> None:
        self._cut = cut
        self._read = read
        # A source that reads many at once waits for all of them together.
        self._num_threads = 1 if cut.plan.reads_many else num_threads
        self._low = cut_plan(
            cut.plan, skips_errors=cut.skips_errors, below_batches=True, in_order=cut.in_order
        )
        self._most_ahead = most_ahead
        self._threads: ThreadExecutor | None = None

    def __call__(self, positions: range) -> BlockResult:
        if self._threads is not None:
            return self._read_in_threads(self._threads, positions)
        watch = Stopwatch()
        result = self._read(positions)
        watch.stop()
        if self._num_threads > 1 and watch.has_waited:
            self._threads = ThreadExecutor(
                open_cut(self._low), most_positions_ahead=self._most_ahead
            )
            self._threads.resize(self._num_threads)
        return result

    def _read_in_threads(self, threads: ThreadExecutor, positions: range) -> BlockResult:
        """Run the stages of the cut from the start to the end of a range."""
        records = self._cut.base.records_per_position
        low = self._low
        counters = Counters([""] * (1 + self._cut.num_read))
        stop = min(positions.stop * records, low.base.length())
        stage = stack_stages(low, threads, counters, length=stop)
        stage.seek((positions.start * records,) + (0,) * low.num_flat_maps)
        results: list[BlockResult] = []
        while (result := stage.pull()) is not None:
            results.append(result)
            if result.error is not None:
                threads.cancel()
                break
        joined = join_results(results)
        return replace(joined, step_seconds=tuple(step.seconds for step in counters.steps))

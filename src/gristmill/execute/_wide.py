"""Read one range in a worker with several threads, once its reads are seen to wait."""

import time
from typing import final

from gristmill.execute._block import Block, concatenate
from gristmill.execute._outcome import Outcome
from gristmill.execute._reader import Cut, Read, cut_plan, open_reader
from gristmill.execute._stack import stack_stages
from gristmill.execute._threads import WAITING_SECONDS, WAITING_SHARE, ThreadExecutor
from gristmill.observe import Counters


@final
class WideReader:
    """Reads ranges of a cut's base as `read` does; with threads from when that mostly waits."""

    def __init__(self, cut: Cut, read: Read, *, num_threads: int, most_ahead: int) -> None:
        self._cut = cut
        self._read = read
        self._num_threads = num_threads
        self._low = cut_plan(cut.plan, skips_errors=cut.skips_errors, below_batches=True)
        self._most_ahead = most_ahead
        self._threads: ThreadExecutor | None = None

    def __call__(self, positions: range) -> Outcome:
        if self._threads is not None:
            return self._read_wide(self._threads, positions)
        start, start_cpu = time.perf_counter(), time.thread_time()
        outcome = self._read(positions)
        seconds = time.perf_counter() - start
        waited = seconds - (time.thread_time() - start_cpu)
        if self._num_threads > 1 and waited > max(WAITING_SECONDS, WAITING_SHARE * seconds):
            self._threads = ThreadExecutor(
                open_reader(self._low), most_positions_ahead=self._most_ahead
            )
            self._threads.resize(self._num_threads)
        return outcome

    def _read_wide(self, threads: ThreadExecutor, positions: range) -> Outcome:
        """Run the stages of the range up to its end."""
        records = self._cut.base.records_per_position
        low = self._low
        counters = Counters([""] * (1 + self._cut.num_read))
        stop = min(positions.stop * records, low.base.length())
        stage = stack_stages(low, threads, counters, length=stop, num_steps=self._cut.num_read)
        stage.seek((positions.start * records,) + (0,) * low.num_flat_maps)
        outcomes: list[Outcome] = []
        while (outcome := stage.pull()) is not None:
            outcomes.append(outcome)
            if outcome.error is not None:
                threads.cancel()
                break
        blocks = [outcome.block for outcome in outcomes if len(outcome.block)]
        return Outcome(
            concatenate(blocks) if blocks else Block.empty(),
            outcomes[-1].error if outcomes else None,
            skips=tuple(skip for outcome in outcomes for skip in outcome.skips),
            spent=tuple(step.seconds for step in counters.steps),
        )

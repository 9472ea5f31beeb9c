"""Read one range in a worker with several threads, once its reads are seen to wait."""

from dataclasses import replace
from typing import final

from gristmill.execute._outcome import Outcome, join_outcomes
from gristmill.execute._reader import Cut, Read, cut_plan, open_reader
from gristmill.execute._stack import stack_stages
from gristmill.execute._threads import ThreadExecutor
from gristmill.execute._waiting import Stopwatch
from gristmill.observe import Counters


@final
class WideReader:
    """Reads ranges of a cut's base as `read` does; with threads from when that mostly waits."""

    def __init__(self, cut: Cut, read: Read, *, num_threads: int, most_ahead: int) -> None:
        self._cut = cut
        self._read = read
        # A source that reads many at once waits for all of them together.
        self._num_threads = 1 if cut.plan.reads_many else num_threads
        self._low = cut_plan(
            cut.plan, skips_errors=cut.skips_errors, below_batches=True, in_order=cut.in_order
        )
        self._most_ahead = most_ahead
        self._threads: ThreadExecutor | None = None

    def __call__(self, positions: range) -> Outcome:
        if self._threads is not None:
            return self._read_wide(self._threads, positions)
        watch = Stopwatch()
        outcome = self._read(positions)
        watch.stop()
        if self._num_threads > 1 and watch.has_waited:
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
        stage = stack_stages(low, threads, counters, length=stop)
        stage.seek((positions.start * records,) + (0,) * low.num_flat_maps)
        outcomes: list[Outcome] = []
        while (outcome := stage.pull()) is not None:
            outcomes.append(outcome)
            if outcome.error is not None:
                threads.cancel()
                break
        joined = join_outcomes(outcomes)
        return replace(joined, spent=tuple(step.seconds for step in counters.steps))

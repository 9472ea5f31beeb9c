"""Stages run above the cut, in order; each pulls blocks from the stage below."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import final

from gristmill._base.threads.resumable_puller import Producer
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._metrics.counters import StepClock
from gristmill._metrics.profiler import traced
from gristmill._metrics.step_time import StepTime, begin_step, end_step
from gristmill.types import Cursor, Element


class Stage(ABC):
    """Returns the blocks of a stream one after the other."""

    @abstractmethod
    def pull(self) -> BlockResult | None:
        """Return the next block result, perhaps without elements; `None` at the end.

        After an error only `seek` may be called.
        """

    @property
    @abstractmethod
    def start(self) -> Cursor:
        """The cursor at the start of the stream."""

    @abstractmethod
    def seek(self, cursor: Cursor) -> Cursor:
        """Continue from a cursor, without prefetched blocks; return the cursor in local numbers."""

    @property
    @abstractmethod
    def needs_thread(self) -> bool:
        """Whether a background thread must pull it, which Ctrl-C never interrupts."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make a `pull` in another thread return soon; `seek` or `close` follows."""

    @abstractmethod
    def close(self) -> None:
        """End whatever runs for it. Any thread may call this, also while another one pulls."""

    @abstractmethod
    def dispose(self) -> None:
        """Release everything, after `close`. The caller is the only one that uses the stage."""


class SegmentStage(Stage):
    """A stage that can stop where nothing is under way, so that another one can continue there."""

    @abstractmethod
    def settle(self, num_missing: int = 0) -> Cursor | None:
        """Compute no more than what is under way and the next `num_missing` elements.

        Args:
            num_missing: How many further elements the stage above needs to complete one of its own.

        Returns:
            The cursor from which another stage can continue, if all that was read is returned.
            `None` as long as `pull` has to be called first. `seek` ends this mode.
        """


@final
class StageProducer(Producer[BlockResult, Cursor]):
    """A stage as the producer of a `ResumablePuller`."""

    def __init__(self, stage: Stage, digest: Callable[[Element], str] | None = None) -> None:
        self._stage = stage
        self._has_failed = False
        self.digest = digest
        """Computes the checksum of each element, if a ledger is kept: here, because a background
        thread does so while the consumer is busy, and before the consumer can change an element."""

    def produce(self) -> BlockResult:
        result = None if self._has_failed else self._stage.pull()
        if result is None:
            raise StopIteration
        self._has_failed = result.error is not None  # only `seek` may follow
        if self.digest is not None:
            rows = result.block.rows()
            result = replace(
                result,
                block=result.block.with_rows(rows),
                digests=tuple(map(self.digest, rows)),
            )
        return result

    def seek(self, position: Cursor) -> None:
        self._stage.seek(position)
        self._has_failed = False

    def interrupt(self) -> None:
        self._stage.interrupt()

    def close(self) -> None:
        self._stage.close()

    def dispose(self) -> None:
        self._stage.dispose()


def settle_below(parent: Stage, num_missing: int) -> Cursor | None:
    """Call `settle` of a stage of a segment."""
    assert isinstance(parent, SegmentStage), "a segment consists of such stages"
    return parent.settle(num_missing)


class UpperStage(Stage):
    """A stage that pulls from another one."""

    def __init__(self, parent: Stage) -> None:
        self.parent = parent

    @property
    def start(self) -> Cursor:
        return self.parent.start

    @property
    def needs_thread(self) -> bool:
        return self.parent.needs_thread

    def interrupt(self) -> None:
        self.parent.interrupt()

    def close(self) -> None:
        self.parent.close()

    def dispose(self) -> None:
        self.parent.dispose()


@final
class PullMeter:
    """What the pulls of the stages below a stage took, which are part of its own pulls."""

    def __init__(self) -> None:
        self._total = StepTime()

    def measure(self, stage: Stage) -> BlockResult | None:
        """Pull a stage, and add what that took."""
        begin = begin_step(None)
        try:
            return stage.pull()
        finally:
            self._total = self._total.plus(end_step(begin)[0])

    def take(self) -> StepTime:
        """Return what was added since the last call."""
        total, self._total = self._total, StepTime()
        return total


@final
class MeteredStage(UpperStage):
    """Another stage, whose pulls are measured."""

    def __init__(self, parent: Stage, meter: PullMeter) -> None:
        super().__init__(parent)
        self._meter = meter

    def pull(self) -> BlockResult | None:
        return self._meter.measure(self.parent)

    def seek(self, cursor: Cursor) -> Cursor:
        return self.parent.seek(cursor)


@final
class ClockedStage(UpperStage):
    """Another stage, whose work has a name in profiles and is counted.

    Args:
        parent: The stage.
        clock: Where to count it.
        below: Measures the pulls of the stages below it, which are not its own work.
    """

    def __init__(self, parent: Stage, clock: StepClock, below: PullMeter) -> None:
        super().__init__(parent)
        self._clock = clock
        self._below = below

    def pull(self) -> BlockResult | None:
        begin = begin_step(None)
        with traced(self._clock.name):
            result = self.parent.pull()
        step, _ = end_step(begin)
        own = step.minus(self._below.take())
        self._clock.add(own, span=(begin.at, step.elapsed_s))
        return result

    def seek(self, cursor: Cursor) -> Cursor:
        return self.parent.seek(cursor)


@final
class StepStage(UpperStage, SegmentStage):
    """Runs a step on each block from below."""

    def __init__(
        self, run: Callable[[Block], BlockResult], parent: Stage, clock: StepClock
    ) -> None:
        super().__init__(parent)
        self._run = run
        self._clock = clock
        self._skip = CursorFilter()

    def pull(self) -> BlockResult | None:
        result = self.parent.pull()
        if result is None:
            return None
        made = result.then(self._run)
        self._clock.add(made.step_times[-1])
        return self._skip.drop(made)

    def settle(self, num_missing: int = 0) -> Cursor | None:
        return settle_below(self.parent, num_missing)

    def seek(self, cursor: Cursor) -> Cursor:
        local = self.parent.seek(cursor)
        self._skip = CursorFilter(local)
        return local


@final
class CursorFilter:
    """Drops the elements before a local cursor: outputs of a flat map that were handed out."""

    def __init__(self, cursor: Cursor | None = None) -> None:
        self._cursor = cursor

    def drop(self, result: BlockResult) -> BlockResult:
        """Return the part of a block result after the cursor."""
        cursor, block = self._cursor, result.block
        if cursor is None:
            return result
        passed = block.lineage.num_until(cursor) if len(block) else 0
        if passed < len(block):
            self._cursor = None
        skips = tuple(skip for skip in result.skips if skip.cursor > cursor)
        return replace(result, block=block[passed:], skips=skips)

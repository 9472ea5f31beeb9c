"""Collect elements of a stream in buckets by length, and emit a bucket when it is full."""

from collections.abc import Callable
from typing import Any, NamedTuple, final

from gristmill._base.padding_count import take_padding
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import InputBuffer, Mark, StatefulStage
from gristmill._metrics.counters import StepClock
from gristmill._metrics.step_time import StepTime
from gristmill._plan.nodes.buckets import BucketStreamNode, HeldElementsNode
from gristmill.errors import StateError
from gristmill.types import Cursor, Element

MAX_GAP = 256
"""After a restart, held elements this close to each other are read in one pass. Reading elements
takes microseconds, a jump to another position up to milliseconds."""


class _Held(NamedTuple):
    """An element in a bucket: its number in the stream, and where it was read."""

    number: int
    mark: Mark
    offset: int
    element: Element


class _Snapshot(NamedTuple):
    """A state: the position in the parent, and what the buckets hold there."""

    mark: Mark
    offset: int
    number: int
    held: tuple[tuple[_Held, ...], ...]

    def state(self) -> Any:
        """Return it as a state: cursors and numbers."""
        runs: list[tuple[int, int, Cursor]] = []
        for number, mark, offset, _ in sorted(
            (one for bucket in self.held for one in bucket), key=lambda one: one.number
        ):
            if runs and sum(runs[-1][:2]) == number:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1, runs[-1][2])
            else:
                runs.append((number, 1, mark.after(offset)))
        return [self.mark.after(self.offset), self.number, [list(run) for run in runs]]


@final
class BucketStage(StatefulStage):
    """Emits a batch whenever a bucket is full, and the rest at the end of the stream."""

    def __init__(self, node: BucketStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self.clock = StepClock(node.label)
        """Where padding is counted; that of the iterator, once the stage is opened."""
        self._node = node
        self._buffer = self._inputs[0]
        self._held: list[list[_Held]] = [[] for _ in node.buckets.sizes]
        self._number = 0
        self._restored: Any = None

    def first_state(self) -> Any:
        return [self._buffer.stage.start, 0, []]

    def restore(self, state: Any) -> None:
        self._restored = state
        self._held = [[] for _ in self._node.buckets.sizes]

    def pull(self) -> BlockResult | None:
        if self._restored is not None:
            error = self._load(self._restored)
            if error is not None:
                restored = self._restored
                return self.emit([], lambda _: restored, error)
            self._restored = None
        before = self._snapshot(self._buffer.mark(), 0)
        if not self._buffer.fill():
            return self._finish(before)
        mark = self._buffer.mark()
        elements = self._buffer.take(self._buffer.count)
        rows: list[Element] = []
        snapshots = [before]
        error = self._place(elements, mark, rows, snapshots)
        return self.emit(rows, lambda count: snapshots[count].state(), error)

    def _place(
        self,
        elements: list[Element],
        mark: Mark,
        rows: list[Element],
        snapshots: list[_Snapshot],
    ) -> BaseException | None:
        """Put elements into buckets, and add a row for each that is full."""
        buckets, first = self._node.buckets, self._number
        lengths, failed = self._lengths_of(elements)
        numbers: list[int] = buckets.buckets_of(lengths).tolist()
        for offset, bucket in enumerate(numbers):
            self._number = first + offset + 1
            if bucket == len(buckets.sizes):
                if buckets.drop_longer:
                    continue
                return self._noted(buckets.too_long(lengths[offset]))
            held = self._held[bucket]
            held.append(_Held(first + offset, mark, offset, elements[offset]))
            if len(held) == buckets.sizes[bucket]:
                error = self._emit_bucket(bucket, rows)
                if error is not None:
                    return error
                snapshots.append(self._snapshot(mark, offset + 1))
        return failed

    def _lengths_of(self, elements: list[Element]) -> tuple[list[int], BaseException | None]:
        """Return the lengths of elements up to one without a length, and its error."""
        length_of = self._node.buckets.lengths_of
        try:
            return length_of(elements), None
        except Exception:
            lengths: list[int] = []
            for element in elements:
                try:
                    lengths += length_of([element])
                except Exception as error:
                    return lengths, self._noted(error)
            return lengths, None

    def _emit_bucket(self, bucket: int, rows: list[Element]) -> BaseException | None:
        """Add the batch of a bucket to `rows`, and empty the bucket."""
        elements = [one.element for one in self._held[bucket]]
        take_padding()
        try:
            rows.append(self._node.buckets.make(elements, bucket))
        except Exception as error:
            return self._noted(error)
        self._held[bucket] = []
        padding = take_padding()
        if padding is not None:
            self.clock.add(StepTime(num_values=padding[0], num_padding=padding[1]))
        return None

    def _finish(self, before: _Snapshot) -> BlockResult | None:
        """Emit what is left in the buckets, once."""
        error = self._buffer.error
        if error is not None:
            return self.emit([], lambda _: before.state(), error)
        if self._node.buckets.remainder == "drop" or not any(self._held):
            return None
        rows: list[Element] = []
        snapshots = [before]
        for bucket, held in enumerate(self._held):
            if held:
                error = self._emit_bucket(bucket, rows)
                if error is not None:
                    break
                snapshots.append(self._snapshot(self._buffer.mark(), 0))
        return self.emit(rows, lambda count: snapshots[count].state(), error)

    def _snapshot(self, mark: Mark, offset: int) -> _Snapshot:
        return _Snapshot(mark, offset, self._number, tuple(map(tuple, self._held)))

    def _noted(self, error: BaseException) -> BaseException:
        add_note_once(error, f"In {self._node.label}, added at {self._node.site}.")
        return error

    def _load(self, state: Any) -> BaseException | None:
        """Read the elements again that a state holds in buckets, and no others."""
        below, number, runs = state
        error = _read_runs(self._buffer, runs, self._hold)
        if error is None:
            self._number = number
            self._buffer.seek(below)
        return error

    def _hold(self, number: int, mark: Mark, element: Element) -> None:
        buckets = self._node.buckets
        bucket = int(buckets.buckets_of(buckets.lengths_of([element]))[0])
        if bucket == len(buckets.sizes) or len(self._held[bucket]) + 1 == buckets.sizes[bucket]:
            raise _unlike_state()
        self._held[bucket].append(_Held(number, mark, 0, element))


@final
class HeldElementsStage(StatefulStage):
    """Emits runs of elements of the parent. The state is the run, and how many of it came."""

    def __init__(self, node: HeldElementsNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._run = self._done = 0

    def first_state(self) -> Any:
        return [0, 0]

    def restore(self, state: Any) -> None:
        self._run, self._done = state

    def pull(self) -> BlockResult | None:
        if self._run >= len(self._node.runs):
            return None
        run, done = self._run, self._done
        count, cursor = self._node.runs[run]
        rows: list[Element] = []
        error = _read_runs(
            self._inputs[0], [(0, count, cursor)], lambda _, __, element: rows.append(element)
        )
        del rows[:done]
        if error is None:
            self._run, self._done = run + 1, 0

        def state_after(number: int) -> Any:
            is_done = done + number >= count
            return [run + 1, 0] if is_done else [run, done + number]

        return self.emit(rows, state_after, error)


def _read_runs(
    buffer: InputBuffer, runs: list[Any], take: Callable[[int, Mark, Element], None]
) -> BaseException | None:
    """Read runs of elements, each starting at its cursor, and return the error that stops it.

    Args:
        buffer: The stream.
        runs: For each run the number of its first element, their count, and the cursor before.
        take: Called with the number of an element, the mark before it, and the element.
    """
    position: int | None = None
    for number, count, cursor in runs:
        if position is None or number - position > MAX_GAP:
            buffer.seek(tuple(cursor))
            position = int(number)
        while position < number + count:
            if not buffer.fill():
                return buffer.error or _unlike_state()
            mark = buffer.mark()
            (element,) = buffer.take(1)
            if position >= number:
                try:
                    take(position, mark, element)
                except Exception as error:
                    return error
            position += 1
    return None


def _unlike_state() -> StateError:
    return StateError(
        "The state does not fit the data: it holds elements in buckets that the stream does not "
        "have there. Restore it into a pipeline over the same source."
    )

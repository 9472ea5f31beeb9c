"""Make batches: at any position over a dense parent, in order over a sparse one."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, final

from numpy.typing import NDArray

from gristmill._aligned import aligned_empty
from gristmill._columns import Columns, RaggedError
from gristmill._tree import map_leaves
from gristmill.batch import stack
from gristmill.errors import BatchError
from gristmill.execute._blame import blame
from gristmill.execute._block import Block, concatenate
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage, UpperStage
from gristmill.execute._track import Cursor
from gristmill.observe import StepClock, named
from gristmill.plan import BatchNode
from gristmill.types import Element


class SparseError(Exception):
    """An element is absent where each position was to hold one. Never reaches the user."""


def batch_reader(
    node: BatchNode, read_parent: Callable[[range], Outcome], allocate: Callable[..., NDArray[Any]]
) -> Callable[[range], Outcome]:
    """Give the function that reads whole batches, after one read of the parent for all of them."""
    run = named(node.label, partial(make_batches, node, allocate=allocate))
    total = node.parent.length()

    def read(positions: range) -> Outcome:
        start, stop = positions.start * node.size, positions.stop * node.size
        outcome = read_parent(range(start, min(stop, total)))
        if outcome.error:  # what is left over belongs to the batch that failed
            whole = len(outcome.block) - len(outcome.block) % node.size
            outcome = replace(outcome, block=outcome.block[:whole])
        return outcome.then(run)

    return read


def make_batches(
    node: BatchNode, block: Block, *, allocate: Callable[..., NDArray[Any]] = aligned_empty
) -> Outcome:
    """Stack every `size` elements of a block, and what is left at its end."""
    data = block.data if node.function is None else block.rows()
    batches: list[Element] = []
    error: BaseException | None = None
    last = 0
    for first in range(0, len(block), node.size):
        try:
            batches.append(make_batch(node, data[first : first + node.size], allocate))
        except Exception as raised:
            row = raised.row if isinstance(raised, BatchError) else 0
            error = blame(raised, node, block.track, first + row)
            last = min(first + node.size, len(block)) - 1
            break
    ends = range(node.size - 1, len(block) + node.size - 1, node.size)[: len(batches)]
    kept = block.generators
    if kept is not None:  # a batch goes on with the generator of its last element
        kept = [kept[min(end, len(block) - 1)] for end in ends]
    made = Block(batches, block.track.batched(node.size)[: len(batches)], kept)
    return Outcome(made, error, last)


def make_batch(
    node: BatchNode, part: list[Element] | Columns, allocate: Callable[..., NDArray[Any]]
) -> Element:
    """Make one batch of some elements."""
    if isinstance(part, Columns):
        return _gather(part, allocate)
    return stack(part, allocate) if node.function is None else node.function(part)


def _gather(part: Columns, allocate: Callable[..., NDArray[Any]]) -> Element:
    """Give columns as a batch; its texts are stacked as those of rows are."""
    try:
        gathered = part.gather(allocate)
        if not part.holds_objects:
            return gathered
        return map_leaves(lambda array: _stacked(array, allocate), gathered)
    except (BatchError, RaggedError):
        return stack(part.rows(), allocate)  # which names the leaf and the record


def _stacked(array: NDArray[Any], allocate: Callable[..., NDArray[Any]]) -> Any:
    return stack(array.tolist(), allocate) if array.dtype.hasobject else array


@final
class BatchStage(UpperStage):
    """Batches of what comes in order: keeps what did not fill the last one."""

    def __init__(self, node: BatchNode, parent: Stage, clock: StepClock) -> None:
        super().__init__(parent)
        self._node = node
        self._make = named(node.label, partial(make_batches, node))
        self._clock = clock
        self._pending: list[Block] = []

    def pull(self) -> Outcome | None:
        outcome = self.parent.pull()
        if outcome is not None and len(outcome.block):
            self._pending.append(outcome.block)
        count = sum(map(len, self._pending))
        is_last = outcome is None and not self._node.drop_remainder
        ready = count if is_last else count - count % self._node.size
        if not ready:
            return outcome if outcome is None else replace(outcome, block=Block.empty())
        start = time.perf_counter()
        block = concatenate(self._pending)
        self._pending = [block[ready:]] if ready < count else []
        outcome = Outcome(Block.empty()) if outcome is None else outcome
        made = replace(outcome, block=block[:ready]).then(self._make)
        self._clock.add(time.perf_counter() - start)
        return made

    def seek(self, cursor: Cursor) -> Cursor:
        self._pending = []
        return self.parent.seek(cursor)

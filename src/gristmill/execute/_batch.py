"""Make batches: at any position over a dense parent, in order over a sparse one."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, final

from gristmill._columns import Columns
from gristmill.batch import stack
from gristmill.errors import BatchError
from gristmill.execute._blame import blame
from gristmill.execute._block import Block, concatenate
from gristmill.execute._stage import Outcome, Stage, attempt
from gristmill.execute._track import Cursor
from gristmill.plan import BatchNode
from gristmill.types import Element


def batch_reader(
    node: BatchNode, read_parent: Callable[[range], Block]
) -> Callable[[range], Block]:
    """Give the function that reads whole batches, after one read of the parent for all of them."""
    total = node.parent.length()

    def read(positions: range) -> Block:
        start, stop = positions.start * node.size, positions.stop * node.size
        return make_batches(node, read_parent(range(start, min(stop, total))))

    return read


def make_batches(node: BatchNode, block: Block) -> Block:
    """Stack every `size` elements of a block, and what is left at its end."""
    if node.function is not None:
        block = block.with_data(block.rows())
    batches: list[Element] = []
    for first in range(0, len(block), node.size):
        try:
            batches.append(_make_batch(node, block.data[first : first + node.size]))
        except Exception as error:
            row = error.row if isinstance(error, BatchError) else 0
            blame(error, node, block.track, first + row)
            raise
    kept = block.generators
    if kept is not None:  # a batch goes on with the generator of its last element
        kept = [part[-1] for part in _parts(kept, node.size)]
    return Block(batches, block.track.batched(node.size), kept)


def _parts(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _make_batch(node: BatchNode, part: list[Element] | Columns) -> Element:
    if isinstance(part, Columns):
        return part.gather()
    return stack(part) if node.function is None else node.function(part)


@final
class BatchStage(Stage):
    """Batches over a sparse parent: keeps what did not fill the last one."""

    def __init__(self, node: BatchNode, parent: Stage) -> None:
        self._node = node
        self._parent = parent
        self._pending: list[Block] = []

    def pull(self) -> Outcome | None:
        size = self._node.size
        while True:
            outcome = self._parent.pull()
            if outcome is not None and len(outcome.block):
                self._pending.append(outcome.block)
            count = sum(map(len, self._pending))
            is_last = outcome is None and not self._node.drop_remainder
            ready = count if is_last else count - count % size
            if ready:
                break
            if outcome is None:
                return None
            if outcome.error:
                return Outcome(Block.empty(), outcome.error)
        block = concatenate(self._pending)
        self._pending = [block[ready:]] if ready < count else []
        made = attempt(partial(make_batches, self._node), block[:ready], step=size)
        return made.followed_by(outcome)

    def seek(self, cursor: Cursor) -> None:
        self._pending = []
        self._parent.seek(cursor)

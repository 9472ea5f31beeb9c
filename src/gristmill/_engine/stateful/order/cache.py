"""Cache the elements of a stream in memory, for later epochs."""

from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import Mark, StatefulStage
from gristmill._plan.nodes.stream import CacheNode
from gristmill.types import Element


@final
class CacheStage(StatefulStage):
    """Passes elements on and caches them; after a seek back, it emits the cached ones.

    The state is the cursor of the parent and the number of elements before it. If it continues from
    a position beyond the cached elements, as after a restart, it caches nothing until the next
    epoch, so that no element is read twice.
    """

    def __init__(self, node: CacheNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        del node
        self._buffer = self._inputs[0]
        self._cached: list[_CachedBlock] = []
        self._end: Mark = self._buffer.mark()  # of the cached elements
        self._num_cached = 0
        self._is_complete = False
        self._is_at_end = True  # whether the parent is at the end of the cached elements
        self._position = 0
        self._block = 0  # the next cached block to emit

    def first_state(self) -> Any:
        return [self._buffer.stage.start, 0]

    def restore(self, state: Any) -> None:
        below, self._position = state
        self._is_at_end = False
        self._block = next(
            (number for number, cached in enumerate(self._cached) if cached.end > self._position),
            len(self._cached),
        )
        if self._position > self._num_cached:
            self._buffer.seek(below)

    def pull(self) -> BlockResult | None:
        if self._block < len(self._cached):
            cached = self._cached[self._block]
            self._block += 1
            return self._emit_block(cached, self._position - cached.first)
        if self._is_complete and self._position == self._num_cached:
            return None
        is_caching = self._position == self._num_cached
        if is_caching and not self._is_at_end:
            self._buffer.seek(self._end.after())
            self._is_at_end = True
        if not self._buffer.fill():
            error = self._buffer.error
            self._is_complete = self._is_complete or (is_caching and error is None)
            return None if error is None else self.emit([], lambda _: None, error)
        mark = self._buffer.mark()
        block = _CachedBlock(self._position, mark, self._buffer.take(self._buffer.count))
        if is_caching:
            self._cached.append(block)
            self._block = len(self._cached)
            self._num_cached = block.end
            self._end = self._buffer.mark()
        return self._emit_block(block, 0)

    def _emit_block(self, cached: "_CachedBlock", offset: int) -> BlockResult:
        rows, mark, first = cached.rows[offset:], cached.mark, cached.first
        self._position = cached.end
        return self.emit(rows, lambda count: [mark.after(offset + count), first + offset + count])


@final
class _CachedBlock:
    """Consecutive elements starting at a position, and the mark before them."""

    __slots__ = ("first", "mark", "rows")

    def __init__(self, first: int, mark: Mark, rows: list[Element]) -> None:
        self.first = first
        self.mark = mark
        self.rows = rows

    @property
    def end(self) -> int:
        """The position after the last element."""
        return self.first + len(self.rows)

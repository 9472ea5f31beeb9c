"""Shared blocks: which blocks of a shared pool are kept, and for which readers.

Pure bookkeeping, without Ray or clocks, and without threads but for the event that a block sets. A
block is kept as long as there is memory for it, those that a reader needs next the longest.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

from gristmill._engine.executors.pools.task import Task

_KEPT_SHARE = 0.9
"""Share of the memory that stays in use when blocks are dropped."""


class BlockKey(NamedTuple):
    """The positions of a block, and the plan they belong to."""

    job: int
    start: int
    stop: int


@final
class SharedBlock:
    """A block that was requested, and is being computed or kept."""

    __slots__ = ("is_ready", "key", "parts", "task")

    def __init__(self, key: BlockKey) -> None:
        self.key = key
        self.task: Task | None = None
        """The task that computes it, once it is submitted."""
        self.parts: Sequence[Any] | None = None
        """What readers get, once it is computed."""
        self.is_ready = threading.Event()
        """Set when readers get it."""

    def set_parts(self, parts: Sequence[Any]) -> None:
        """Pass the parts of the block to the readers that wait for it."""
        self.parts = parts
        self.is_ready.set()

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that it occupies."""
        return 0 if self.task is None or self.parts is None else self.task.num_bytes


@final
class SharedBlocks:
    """The blocks of a shared pool, and the positions of its readers.

    Args:
        max_bytes: How much memory blocks may use while a reader is before them.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: dict[BlockKey, SharedBlock] = {}
        self._positions: dict[str, dict[int, int]] = {}
        self._num_bytes = 0
        self.num_computed = 0
        """Blocks that were computed so far."""

    def add_reader(self, reader: str) -> None:
        """Keep blocks for a reader, which is at the start."""
        self._positions.setdefault(reader, {})

    def remove_reader(self, reader: str) -> None:
        """Keep nothing for a reader any more."""
        self._positions.pop(reader, None)

    @property
    def readers(self) -> Sequence[str]:
        """The readers."""
        return list(self._positions)

    def request(self, reader: str, key: BlockKey) -> SharedBlock:
        """Return a block for a reader, which continues after it. It may have to be computed."""
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = SharedBlock(key)
        self._positions.setdefault(reader, {})[key.job] = key.stop
        return block

    def unsubmitted(self) -> Iterator[SharedBlock]:
        """Yield the blocks that nothing computes yet."""
        return (block for block in list(self._blocks.values()) if block.task is None)

    def pending(self) -> list[SharedBlock]:
        """Return the blocks that are being computed."""
        return [
            block
            for block in self._blocks.values()
            if block.task is not None and block.parts is None
        ]

    def complete(self, block: SharedBlock, parts: Sequence[Any]) -> None:
        """Note what readers get, and make room for it."""
        block.set_parts(parts)
        self._num_bytes += block.num_bytes
        self.num_computed += 1
        self._make_room()

    def fail(self, block: SharedBlock, error: bytes) -> None:
        """Pass an error to the readers that wait for a block. It is computed for later ones."""
        del self._blocks[block.key]
        block.set_parts([error])

    def forget(self, key: BlockKey) -> None:
        """Drop a block, because its memory was lost."""
        block = self._blocks.get(key)
        if block is not None and block.parts is not None:
            self._remove(block)

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that blocks occupy."""
        return self._num_bytes

    def _make_room(self) -> None:
        """Drop the blocks that no reader needs, the oldest first, then those that are needed last.

        Blocks that no reader needs are kept as long as there is room: another reader may join.
        """
        if self._num_bytes <= self._max_bytes:
            return
        kept = [block for block in self._blocks.values() if block.parts is not None]
        distances = {block.key: self._distance(block.key) for block in kept}
        unneeded = [block for block in kept if distances[block.key] is None]
        needed = [block for block in kept if distances[block.key] is not None]
        needed.sort(key=lambda block: distances[block.key] or 0, reverse=True)
        target = _KEPT_SHARE * self._max_bytes  # some more, as sorting them takes time
        for block in [*unneeded, *needed]:
            if self._num_bytes <= target:
                return
            self._remove(block)

    def _remove(self, block: SharedBlock) -> None:
        self._num_bytes -= block.num_bytes
        del self._blocks[block.key]

    def _distance(self, key: BlockKey) -> int | None:
        """Return how far the nearest reader is before a block; `None` if all are past it."""
        distances = [
            key.start - position
            for positions in self._positions.values()
            if (position := positions.get(key.job, 0)) <= key.start
        ]
        return min(distances, default=None)

"""Reply of a worker to a task, on leased shared memory."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from gristmill._engine.blocks.block import Block
from gristmill._engine.blocks.block_result import BlockResult, SkipEvent
from gristmill._engine.executors.ipc.remote_error import load_error
from gristmill._engine.executors.ipc.serialize import load
from gristmill._engine.executors.processes.messages import BlockContent, SentSkip


@final
class BlockReply:
    """A pickled block result and its buffers; loaded when the consumer collects it."""

    __slots__ = ("_buffers", "_content", "_error", "_step_seconds", "num_bytes")

    def __init__(
        self,
        content: bytes | NDArray[np.uint8],
        buffers: list[NDArray[np.uint8]],
        error: bytes | None,
        step_seconds: tuple[float, ...],
        *,
        num_bytes: int,
    ) -> None:
        self._content = content
        self._buffers = buffers
        self._error = error
        self._step_seconds = step_seconds
        self.num_bytes = num_bytes

    def decode(self) -> BlockResult:
        """Return the result; its arrays view the shared memory."""
        content: BlockContent = load(self._content, self._buffers)
        return BlockResult(
            Block(content.data, content.lineage, content.generators),
            None if self._error is None else load_error(self._error),
            skips=tuple(map(_load_skip, content.skips)),
            step_seconds=self._step_seconds,
            filter_counts=content.filter_counts,
            has_waited=content.has_waited,
        )


def _load_skip(skip: SentSkip) -> SkipEvent:
    error = load_error(skip.error)
    assert isinstance(error, Exception)
    return SkipEvent(skip.cursor, skip.record, error)

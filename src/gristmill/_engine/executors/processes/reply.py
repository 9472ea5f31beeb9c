"""Reply of a worker to a task, on leased shared memory."""

from typing import Any, final

from gristmill._engine.blocks.block import Block
from gristmill._engine.blocks.block_result import BlockResult, SkipEvent
from gristmill._engine.executors.ipc.remote_error import load_error
from gristmill._engine.executors.ipc.serialize import load


@final
class BlockReply:
    """A pickled block result and its buffers; loaded when the consumer collects it."""

    __slots__ = ("_buffers", "_error", "_payload", "_step_seconds", "num_bytes")

    def __init__(
        self,
        payload: Any,
        buffers: list[Any],
        error: bytes | None,
        step_seconds: tuple[float, ...],
        *,
        num_bytes: int,
    ) -> None:
        self._payload = payload
        self._buffers = buffers
        self._error = error
        self._step_seconds = step_seconds
        self.num_bytes = num_bytes

    def decode(self) -> BlockResult:
        """Return the result; its arrays view the shared memory."""
        data, lineage, generators, skips, filter_counts, has_waited = load(
            self._payload, self._buffers
        )
        return BlockResult(
            Block(data, lineage, generators),
            None if self._error is None else load_error(self._error),
            skips=tuple(_load_skip(*skip) for skip in skips),
            step_seconds=self._step_seconds,
            filter_counts=filter_counts,
            has_waited=has_waited,
        )


def _load_skip(cursor: Any, record: Any, error: bytes) -> SkipEvent:
    loaded = load_error(error)
    assert isinstance(loaded, Exception)
    return SkipEvent(cursor, record, loaded)

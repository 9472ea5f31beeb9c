"""Reply of an actor: a block in the object store, copied once when the consumer collects it."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.memory.aligned_alloc import aligned_empty
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.executors.pools.task import no_holder
from gristmill._engine.executors.ray.messages import BlockHeader
from gristmill._engine.executors.serialization.block_codec import decode_block
from gristmill._metrics.timeline import Work


@final
class ActorReply:
    """The header of a block, and its buffers in the object store.

    The memory of the store is read-only, and limited. So the arrays of the user are copies, and the
    store is free again as soon as the consumer has collected the block.

    Args:
        header: The header.
        buffers: The buffers, if they have arrived.
        recompute: Returns what counts instead of the result, if something is missing on all nodes.
    """

    __slots__ = ("__weakref__", "_buffers", "_header", "_recompute", "num_bytes")

    find_holder = staticmethod(no_holder)

    def __init__(
        self,
        header: BlockHeader,
        buffers: Sequence[NDArray[np.uint8]] | None = None,
        *,
        recompute: Callable[[BlockResult], BlockResult],
    ) -> None:
        self._header = header
        self._buffers = buffers
        self._recompute = recompute
        self.num_bytes = header.num_bytes

    @property
    def has_arrived(self) -> bool:
        """Whether the buffers are on this machine."""
        return self._buffers is not None

    def set_buffers(self, buffers: Sequence[NDArray[np.uint8]]) -> None:
        """Note that the buffers have arrived."""
        self._buffers = buffers

    @property
    def work(self) -> Sequence[Work]:
        """What the actor did, as the parent records it."""
        return self._header.times.in_parent()

    def decode(self) -> BlockResult:
        """Return the block result, in memory of its own."""
        assert self._buffers is not None
        header, buffers = self._header, list(self._buffers)
        content = buffers.pop() if header.content is None else header.content
        copies = [_copied(buffer) for buffer in buffers]
        result = decode_block(content, copies, header.error, header.times)
        return self._recompute(result) if header.missing else result


@final
class RemoteReply:
    """A block that stays where it was computed.

    Args:
        encoded: Its header, pickled.
        header: Its header.
        data: A reference to its buffers.
    """

    __slots__ = ("data", "encoded", "num_bytes", "seconds")

    find_holder = staticmethod(no_holder)

    def __init__(self, encoded: bytes, header: BlockHeader, data: Any) -> None:
        self.encoded = encoded
        self.data = data
        self.num_bytes = len(encoded) + header.num_bytes
        self.seconds = header.times.busy_s
        """How long it took to compute."""

    @property
    def work(self) -> Sequence[Work]:
        """Nothing: its readers record it."""
        return ()

    def decode(self) -> BlockResult:
        """Raise an error: only the readers decode the block."""
        raise AssertionError("a block of a shared pool is decoded by its readers")


def _copied(buffer: NDArray[np.uint8]) -> NDArray[Any]:
    copy = aligned_empty(buffer.shape, np.uint8)
    copy[...] = buffer
    return copy

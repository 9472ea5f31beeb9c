"""Read a slice of a user's own stream in a worker process of its own."""

from collections.abc import Callable
from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._plan.nodes.sliced_stream import SlicedStreamNode


@final
class SlicedStreamStage(StatefulStage):
    """Yields the elements of a slice, whose worker sends each with the state after it.

    The state is that of the user's iterator, in a list, which is empty at the start. To resume,
    another session begins in the worker from that state.
    """

    def __init__(
        self,
        node: SlicedStreamNode,
        open_slice: Callable[[SlicedStreamNode, list[Any]], Stage],
        *,
        num_flat_maps: int,
    ) -> None:
        super().__init__((), num_flat_maps=num_flat_maps)
        self._node = node
        self._open_slice = open_slice
        self._state: list[Any] = []
        self._stage = open_slice(node, [])

    def first_state(self) -> Any:
        return []

    def restore(self, state: Any) -> None:
        if state and isinstance(state[0], NotImplementedError):
            raise NotImplementedError(*state[0].args)
        self._stage.close()
        self._stage.dispose()
        self._state = list(state)
        self._stage = self._open_slice(self._node, self._state)

    def pull(self) -> BlockResult | None:
        result = self._stage.pull()
        if result is None:
            return None
        pairs = result.block.rows()
        states = [self._state, *([state] for _, state in pairs)]
        self._state = states[-1]
        return self.emit([element for element, _ in pairs], states.__getitem__, result.error)

    @property
    def needs_thread(self) -> bool:
        return True

    def interrupt(self) -> None:
        self._stage.interrupt()

    def close(self) -> None:
        self._stage.close()

    def dispose(self) -> None:
        self._stage.dispose()

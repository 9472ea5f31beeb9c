"""Run the iterator of a user's own `IterDataset`."""

import copy
import time
from collections.abc import Mapping
from typing import Any, Protocol, final, runtime_checkable

from gristmill._base.grain.context import update_context
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import StatefulStage
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from gristmill._plan.nodes.stream import CustomStreamNode
from gristmill.options import MultiprocessingOptions, WorkerOptions
from gristmill.types import Element


@runtime_checkable
class UsesWorkers(Protocol):
    """An iterator of gristmill, or one that a user derived from `DatasetIterator`.

    The method is private because users subclass iterators: a public name could collide with theirs.
    """

    def _use_workers(self, options: MultiprocessingOptions, worker: WorkerOptions) -> None:
        """Compute in worker processes what the iterator reads, starting at the current position."""
        ...


@final
class CustomStage(StatefulStage):
    """Takes elements from the user's iterator, with its state after each.

    If `get_state` is not implemented, its exception replaces the state, and is raised when the
    state is requested.
    """

    def __init__(self, node: CustomStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._iterator: Any = iter(node.dataset)
        self._state = self._first = self._current_state()
        self._has_ended = False

    def use_options(self, options: Mapping[str, Any]) -> None:
        """Let the user's iterator read the options of the whole pipeline."""
        update_context(getattr(self._iterator, "_ctx", None), options)

    def use_workers(self, options: MultiprocessingOptions, worker: WorkerOptions) -> None:
        """Compute in worker processes what the user's iterator reads, before the first element."""
        if isinstance(self._iterator, UsesWorkers):
            private: Any = self._iterator
            private._use_workers(options, worker)  # noqa: SLF001 - the only caller

    def first_state(self) -> Any:
        return self._first

    def _current_state(self) -> Any:
        try:
            return copy.deepcopy(self._iterator.get_state())
        except NotImplementedError as error:
            return error.with_traceback(None)  # its frames keep the caller alive

    def restore(self, state: Any) -> None:
        self._has_ended = False
        if isinstance(state, NotImplementedError):
            if state is not self._state:
                raise NotImplementedError(*state.args)
            return  # the iterator is already there
        self._state = copy.deepcopy(state)
        self._iterator.set_state(copy.deepcopy(state))

    def pull(self) -> BlockResult | None:
        if self._has_ended:
            return None
        rows: list[Element] = []
        states = [self._state]
        error: BaseException | None = None
        until = time.perf_counter() + DEFAULT_POLICY.inline_block_s
        while not self._has_ended and error is None:
            try:
                rows.append(next(self._iterator))
                states.append(self._current_state())
            except StopIteration:
                self._has_ended = True
            except BaseException as raised:
                error = raised
            if time.perf_counter() >= until:
                break
        rows = rows[: len(states) - 1]
        self._state = states[-1]
        return self.emit(rows, states.__getitem__, error)

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

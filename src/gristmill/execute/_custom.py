"""Run an `IterDataset` of the user's own: its iterator, a few elements at a time."""

import copy
import time
from typing import Any, final

from gristmill.execute._executor import BLOCK_SECONDS
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import StatefulStage
from gristmill.plan import CustomStreamNode
from gristmill.types import Element


@final
class CustomStage(StatefulStage):
    """Takes elements from the user's iterator, with its state after each.

    Where it has none to tell, what it raised instead stands for the state: who asks gets that.
    """

    def __init__(self, node: CustomStreamNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._iterator: Any = iter(node.dataset)
        self._state = self._first = self._tell()
        self._has_ended = False

    def first_state(self) -> Any:
        return self._first

    def _tell(self) -> Any:
        try:
            return copy.deepcopy(self._iterator.get_state())
        except NotImplementedError as error:
            return error.with_traceback(None)  # its frames hold whoever iterates

    def restore(self, state: Any) -> None:
        self._has_ended = False
        if isinstance(state, NotImplementedError):
            if state is not self._state:
                raise NotImplementedError(*state.args)
            return  # it stands there already
        self._state = copy.deepcopy(state)
        self._iterator.set_state(copy.deepcopy(state))

    def pull(self) -> Outcome | None:
        if self._has_ended:
            return None
        rows: list[Element] = []
        states = [self._state]
        error: BaseException | None = None
        until = time.perf_counter() + BLOCK_SECONDS
        while not self._has_ended and error is None:
            try:
                rows.append(next(self._iterator))
                states.append(self._tell())
            except StopIteration:
                self._has_ended = True
            except BaseException as raised:
                error = raised
            if time.perf_counter() >= until:
                break
        rows = rows[: len(states) - 1]
        self._state = states[-1]
        return self.give(rows, states.__getitem__, error)

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

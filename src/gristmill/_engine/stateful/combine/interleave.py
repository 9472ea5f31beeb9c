"""Interleave streams: a cycle of open datasets that emit one element each in turn."""

from collections.abc import Callable
from itertools import chain
from typing import Any, final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import InputBuffer, Mark, StatefulStage
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.combine_streams import InterleaveNode
from gristmill.errors import StateError


@final
class InterleaveStage(StatefulStage):
    """Takes one element of each open dataset in turn.

    When a dataset ends, its turn is over, and at the next turn of its slot the first dataset that
    was not yet opened takes its slot. No more datasets are open than there are slots. The state is
    the slot whose turn it is, the number of opened datasets, and for each slot the number of its
    dataset and the cursor in it.
    """

    def __init__(
        self, node: InterleaveNode, open_stage: Callable[[Node], Stage], *, num_flat_maps: int
    ) -> None:
        super().__init__((), num_flat_maps=num_flat_maps)
        self._node = node
        self._open_stage = open_stage
        self._slots: list[_OpenDataset | None] = [None] * min(node.cycle, node.count)
        self._turn = 0
        self._num_opened = 0
        self._is_closed = False

    def first_state(self) -> Any:
        return [0, 0, [None] * len(self._slots)]

    def restore(self, state: Any) -> None:
        turn, num_opened, slots = state
        if len(slots) != len(self._slots):
            raise StateError(
                f"The state has a cycle of {len(slots)} datasets, this pipeline one of "
                f"{len(self._slots)}. Keep `cycle_length`, and at least as many datasets."
            )
        for slot_index, saved in enumerate(slots):
            if saved is None:
                self._close_slot(slot_index)
            else:
                number, cursor = saved
                self._open_slot(slot_index, number)
                slot = self._slots[slot_index]
                if slot is not None:
                    slot.buffer.seek(cursor)
        self._turn, self._num_opened = turn, num_opened

    def pull(self) -> BlockResult | None:
        while any(self._slots) or self._has_more:
            slot = self._slots[self._turn]
            if slot is None and self._has_more:
                number, self._num_opened = self._num_opened, self._num_opened + 1
                try:
                    self._open_slot(self._turn, number)
                except Exception as error:
                    add_note_once(error, f"In {self._node.label}, at dataset {number}.")
                    return self.emit([], lambda _: None, error)
            elif slot is None:
                self._advance_turn()
            elif slot.buffer.fill():
                return self._emit_rounds()
            elif slot.buffer.error is not None:
                return self.emit([], lambda _: None, slot.buffer.error)
            else:
                self._close_slot(self._turn)
                self._advance_turn()
        return None

    @property
    def needs_thread(self) -> bool:
        return any(stage.needs_thread for stage in self._stages())

    def interrupt(self) -> None:
        for stage in self._stages():
            stage.interrupt()

    def close(self) -> None:
        self._is_closed = True
        for stage in self._stages():
            stage.close()

    def dispose(self) -> None:
        for stage in self._stages():
            stage.dispose()

    @property
    def _has_more(self) -> bool:
        return self._num_opened < self._node.count

    def _stages(self) -> list[Stage]:
        return [slot.buffer.stage for slot in list(self._slots) if slot is not None]

    def _advance_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self._slots)

    def _emit_rounds(self) -> BlockResult:
        """Emit as many elements as possible without pulling, starting at the current turn."""
        marks = tuple(slot and slot.mark() for slot in self._slots)
        num_opened = self._num_opened
        slot_indices, end = self._ready_slots()
        ready = [slot.buffer for slot_index in slot_indices if (slot := self._slots[slot_index])]
        rounds = 1 if end is not None else min(buffer.count for buffer in ready)
        rows = list(chain.from_iterable(zip(*(one.take(rounds) for one in ready), strict=True)))
        self._turn = slot_indices[0] if end is None else end
        end_turn = self._turn

        def state_after(count: int) -> Any:
            full, more = divmod(count, len(slot_indices))
            taken = {
                slot_index: full + (turn < more) for turn, slot_index in enumerate(slot_indices)
            }
            slots = [
                None if mark is None else [mark[0], mark[1].after(taken.get(slot_index, 0))]
                for slot_index, mark in enumerate(marks)
            ]
            return [end_turn if count == len(rows) else slot_indices[more], num_opened, slots]

        return self.emit(rows, state_after)

    def _ready_slots(self) -> tuple[list[int], int | None]:
        """Return the slots with buffered elements, from the current turn, and the first without.

        Slots that stay empty are skipped. `None` instead of a slot without elements: a full round.
        """
        found: list[int] = []
        for step in range(len(self._slots)):
            slot_index = (self._turn + step) % len(self._slots)
            slot = self._slots[slot_index]
            if slot is None and not self._has_more:
                continue
            if slot is None or not slot.buffer.count:
                return found, slot_index
            found.append(slot_index)
        return found, None

    def _open_slot(self, slot_index: int, number: int) -> None:
        """Open a dataset in a slot of the cycle, if a dataset of that number exists."""
        slot = self._slots[slot_index]
        if slot is not None and slot.number == number:
            return
        self._close_slot(slot_index)
        node = self._node.node_at(number)
        if node is None:
            return
        stage = self._open_stage(node)
        self._slots[slot_index] = _OpenDataset(number, InputBuffer(stage))
        if self._is_closed:  # by another thread in the meantime
            stage.close()

    def _close_slot(self, slot_index: int) -> None:
        slot, self._slots[slot_index] = self._slots[slot_index], None
        if slot is not None:
            slot.buffer.stage.close()
            slot.buffer.stage.dispose()


@final
class _OpenDataset:
    """An open dataset."""

    __slots__ = ("buffer", "number")

    def __init__(self, number: int, buffer: InputBuffer) -> None:
        self.number = number
        self.buffer = buffer

    def mark(self) -> tuple[int, Mark]:
        """Return the number of the dataset and the current mark."""
        return self.number, self.buffer.mark()

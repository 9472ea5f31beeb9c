"""Interleave streams: a cycle of open ones, each giving an element in turn."""

from collections.abc import Callable
from itertools import chain
from typing import Any, final

from gristmill.errors import StateError
from gristmill.execute._blame import add_note_once
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import Intake, Mark, StatefulStage
from gristmill.plan import InterleaveNode, Node


@final
class InterleaveStage(StatefulStage):
    """Takes one element of each open dataset in turn.

    Where one has ended its turn is over, and at the next the first that was not yet open takes the
    slot. So no more are open than there are slots. The state is whose turn it is, how many were
    opened, and for each slot the number of its dataset and the cursor there.
    """

    def __init__(
        self, node: InterleaveNode, open_stage: Callable[[Node], Stage], *, num_flat_maps: int
    ) -> None:
        super().__init__((), num_flat_maps=num_flat_maps)
        self._node = node
        self._open_stage = open_stage
        self._slots: list[_Slot | None] = [None] * min(node.cycle, node.count)
        self._turn = 0
        self._num_opened = 0
        self._is_closed = False

    def first_state(self) -> Any:
        return [0, 0, [None] * len(self._slots)]

    def restore(self, state: Any) -> None:
        turn, num_opened, slots = state
        if len(slots) != len(self._slots):
            raise StateError(
                f"The state is of {len(slots)} datasets in a cycle, here are {len(self._slots)}. "
                "Keep `cycle_length`, and at least as many datasets."
            )
        for place, saved in enumerate(slots):
            if saved is None:
                self._shut(place)
            else:
                number, cursor = saved
                self._open(place, number)
                slot = self._slots[place]
                if slot is not None:
                    slot.intake.seek(cursor)
        self._turn, self._num_opened = turn, num_opened

    def pull(self) -> Outcome | None:
        while any(self._slots) or self._has_more:
            slot = self._slots[self._turn]
            if slot is None and self._has_more:
                number, self._num_opened = self._num_opened, self._num_opened + 1
                try:
                    self._open(self._turn, number)
                except Exception as error:
                    add_note_once(error, f"In {self._node.label}, at dataset {number}.")
                    return self.give([], lambda _: None, error)
            elif slot is None:
                self._pass_on()
            elif slot.intake.fill():
                return self._give_rounds()
            elif slot.intake.error is not None:
                return self.give([], lambda _: None, slot.intake.error)
            else:
                self._shut(self._turn)
                self._pass_on()
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
        return [slot.intake.stage for slot in list(self._slots) if slot is not None]

    def _pass_on(self) -> None:
        self._turn = (self._turn + 1) % len(self._slots)

    def _give_rounds(self) -> Outcome:
        """Give as many elements as can be without looking for more, from the turn on."""
        marks = tuple(slot and slot.mark() for slot in self._slots)
        num_opened = self._num_opened
        places, end = self._ready()
        ready = [slot.intake for place in places if (slot := self._slots[place])]
        rounds = 1 if end is not None else min(intake.count for intake in ready)
        rows = list(chain.from_iterable(zip(*(one.take(rounds) for one in ready), strict=True)))
        self._turn = places[0] if end is None else end
        end_turn = self._turn

        def state_after(count: int) -> Any:
            full, more = divmod(count, len(places))
            taken = {place: full + (turn < more) for turn, place in enumerate(places)}
            slots = [
                None if mark is None else [mark[0], mark[1].after(taken.get(place, 0))]
                for place, mark in enumerate(marks)
            ]
            return [end_turn if count == len(rows) else places[more], num_opened, slots]

        return self.give(rows, state_after)

    def _ready(self) -> tuple[list[int], int | None]:
        """Give the places with elements at hand, from the turn on, and the first without.

        Places that stay empty are passed over. `None` for the first without: a full round.
        """
        found: list[int] = []
        for step in range(len(self._slots)):
            place = (self._turn + step) % len(self._slots)
            slot = self._slots[place]
            if slot is None and not self._has_more:
                continue
            if slot is None or not slot.intake.count:
                return found, place
            found.append(place)
        return found, None

    def _open(self, place: int, number: int) -> None:
        """Have a dataset at a place of the cycle, if there is one of that number."""
        slot = self._slots[place]
        if slot is not None and slot.number == number:
            return
        self._shut(place)
        node = self._node.node_at(number)
        if node is None:
            return
        stage = self._open_stage(node)
        self._slots[place] = _Slot(number, Intake(stage))
        if self._is_closed:  # by another thread, meanwhile
            stage.close()

    def _shut(self, place: int) -> None:
        slot, self._slots[place] = self._slots[place], None
        if slot is not None:
            slot.intake.stage.close()
            slot.intake.stage.dispose()


@final
class _Slot:
    """A dataset that is open."""

    __slots__ = ("intake", "number")

    def __init__(self, number: int, intake: Intake) -> None:
        self.number = number
        self.intake = intake

    def mark(self) -> tuple[int, Mark]:
        """Give which it is and where it stands."""
        return self.number, self.intake.mark()

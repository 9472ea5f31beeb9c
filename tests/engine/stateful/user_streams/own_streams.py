"""Streams with `set_slice`, in a module that workers import quickly."""

import os
from typing import Any

import gristmill as gm


class NumbersIterator:
    """The numbers of a slice; its state is how many were taken."""

    def __init__(self, values: range) -> None:
        super().__init__()
        self._values = values
        self._taken = 0

    def __next__(self) -> int:
        if self._taken == len(self._values):
            raise StopIteration
        self._taken += 1
        return self._values[self._taken - 1]

    def get_state(self) -> dict[str, int]:
        return {"taken": self._taken}

    def set_state(self, state: dict[str, int]) -> None:
        self._taken = state["taken"]


class OurIterator(NumbersIterator, gm.DatasetIterator[int]):
    pass


class OurNumbers(gm.IterDataset[int]):
    def __init__(self, stop: int) -> None:
        super().__init__()
        self._values = range(stop)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        self._values = self._values[sl]

    def __iter__(self) -> Any:
        return OurIterator(self._values)


class OneArgument(OurNumbers):
    def set_slice(self, sl: slice) -> None:  # type: ignore[override]
        self._values = self._values[sl]


class Process(OurNumbers):
    """Yields the process that reads."""

    def __iter__(self) -> Any:
        return ProcessIterator(self._values)


class ProcessIterator(OurIterator):
    def __next__(self) -> int:
        super().__next__()
        return os.getpid()

"""Records that take their time without taking the processor."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._mnist import RecordSource

READ_S = 0.002  # a read from a disk or a near object store
STEP_S = 0.001
SLOW_STEP_S = 0.050
SLOW_EVERY = 100  # records: one of so many is slow, at a place of its own
NUM_STEPS = 6_400


class WaitingSource(RecordSource):
    """MNIST from a place where every record is waited for."""

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        time.sleep(READ_S)
        return super().__getitem__(index)


def slow_steps(num_records: int) -> frozenset[int]:
    """Which records are slow: one in each hundred, so that a part of an epoch is like the whole."""
    hundreds = np.arange(0, num_records, SLOW_EVERY)
    places = np.random.default_rng(0).integers(SLOW_EVERY, size=len(hundreds))
    return frozenset((hundreds + places).tolist())


_SLOW = slow_steps(NUM_STEPS)


def take_time(record: Any) -> Any:
    """A step that sleeps for as long as this record takes, and changes nothing.

    It sleeps rather than computes: two workers then overlap fully even where the consumer shares
    two cores with them, and all that is measured is how the work is handed out.
    """
    time.sleep(SLOW_STEP_S if int(record) in _SLOW else STEP_S)
    return record


class Steps:
    """The numbers of the records, each taking its time."""

    def __len__(self) -> int:
        return NUM_STEPS

    def __getitem__(self, index: int) -> int:
        return int(take_time(index))

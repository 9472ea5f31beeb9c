"""Records that take time without using the CPU."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._mnist import RecordSource

READ_S = 0.002  # a read from a disk or a nearby object store
STEP_S = 0.001
SLOW_STEP_S = 0.050
SLOW_EVERY = 100  # records: one of this many is slow, at a random position
NUM_STEPS = 6_400


class WaitingSource(RecordSource):
    """MNIST from a source that waits for every record."""

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        time.sleep(READ_S)
        return super().__getitem__(index)


def slow_steps(num_records: int) -> frozenset[int]:
    """Return the slow records: one in each hundred, so that all sections of an epoch are alike."""
    hundreds = np.arange(0, num_records, SLOW_EVERY)
    offsets = np.random.default_rng(0).integers(SLOW_EVERY, size=len(hundreds))
    return frozenset((hundreds + offsets).tolist())


_SLOW = slow_steps(NUM_STEPS)


def take_time(record: Any) -> Any:
    """Sleep for as long as this record takes, and return it unchanged.

    It does not compute, so two workers overlap fully even if the consumer shares two cores with
    them. The row then measures only how the work is distributed.
    """
    time.sleep(SLOW_STEP_S if int(record) in _SLOW else STEP_S)
    return record


class Steps:
    """The numbers of the records, each of which takes its time."""

    def __len__(self) -> int:
        return NUM_STEPS

    def __getitem__(self, index: int) -> int:
        return int(take_time(index))

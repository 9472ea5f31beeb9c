"""Records of 150 kB in memory, the size of a typical input image."""

import numpy as np
from numpy.typing import NDArray

SHAPE = (224, 224, 3)
RECORD_BYTES = 224 * 224 * 3
BATCH_SIZE = 256  # 38.5 MB
POOL_SIZE = 64  # distinct records; with 9.6 MB larger than most caches
NUM_RECORDS = 1_000 * BATCH_SIZE

Images = NDArray[np.uint8]


def make_pool(size: int = POOL_SIZE) -> Images:
    """Return random images. The first byte of each is its number."""
    pool = np.random.default_rng(0).integers(0, 256, (size, *SHAPE), dtype=np.uint8)
    pool[:, 0, 0, 0] = np.arange(size) % 256
    return pool


class PoolSource:
    """Arrays that exist already, repeated: reading one takes almost no time."""

    def __init__(self, pool: Images, num_records: int = NUM_RECORDS) -> None:
        self._records = list(pool)
        self._num_records = num_records

    def __len__(self) -> int:
        return self._num_records

    def __getitem__(self, index: int) -> Images:
        return self._records[index % len(self._records)]

    def __repr__(self) -> str:
        return f"PoolSource(<{self._num_records} records>)"


def numbers(batch: Images) -> NDArray[np.uint8]:
    """Return the byte of each record that identifies it."""
    return batch[:, 0, 0, 0]

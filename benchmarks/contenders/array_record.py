"""The library of ArrayRecord, without a loader."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from benchmarks._files import NUM_RECORDS, NUM_SHARDS, shards


def read(folder: Path, *, size: int) -> Callable[[], Iterator[list[bytes]]]:
    """Read shuffled records, `size` at a time, with one call per file."""
    readers = [
        ArrayRecordReader(path, options="readahead_buffer_size:0", file_reader_buffer_size=32768)
        for path in shards(folder, "array_record")
    ]
    per_shard = NUM_RECORDS // NUM_SHARDS

    def start() -> Iterator[list[bytes]]:
        order = np.random.default_rng(0).permutation(NUM_RECORDS)
        for first in range(0, NUM_RECORDS, size):
            files, within = np.divmod(order[first : first + size], per_shard)
            batch: list[bytes] = []
            for number, reader in enumerate(readers):
                batch += reader.read(within[files == number].tolist())
            yield batch

    return start

"""The workloads of the tuner's matrix."""

import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gristmill

WORKLOADS = {
    "tiny": "60,000 small records in memory, batch 128",
    "columns": "1M rows of 6 columns, shuffled, batch 1,024",
    "gil_bound": "a map of 100 us in pure Python, batch 32",
    "decode": "a map of 1 ms that releases the interpreter lock, batch 32",
    "waiting_reads": "reads that sleep for 2 ms, batch 32",
    "cold_files": "files of 64 kB whose first read is slow and later ones are not, batch 16",
    "bursts": "a map that is slow for 200 records of each 1,000, batch 16",
    "long_bursts": "reads of which 100 of each 100,000 wait for 5 ms, batch 128",
    "huge_batches": "arrays of 150 kB in batches of 256",
    "few_records": "8 records of 20 ms each",
    "slow_consumer": "tiny records and a consumer that takes 5 ms for each batch",
}


class Records:
    """A number for each index; reading one takes almost no time."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return index

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<{self._count} records>)"


class WaitingRecords(Records):
    """Records that wait."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return index


class BurstRecords(Records):
    """Records of which some wait, one after the other, for half a second together."""

    def __getitem__(self, index: int) -> Any:
        if index % 100_000 < 100:
            time.sleep(0.005)
        return index


class Files(Records):
    """Files whose first read in a process takes 5 ms, as from a cold disk."""

    def __init__(self, folder: str, count: int) -> None:
        super().__init__(count)
        self._folder = folder
        self._is_warm = bytearray(count)

    def __getitem__(self, index: int) -> Any:
        if not self._is_warm[index]:
            time.sleep(0.005)
            self._is_warm[index] = 1
        path = os.path.join(self._folder, f"{index % 64}.bin")
        return np.frombuffer(Path(path).read_bytes(), np.uint8)


class Images(Records):
    """Arrays that exist already."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._images = np.random.default_rng(0).integers(0, 256, (16, 224, 224, 3), np.uint8)

    def __getitem__(self, index: int) -> Any:
        return self._images[index % 16]


def spin(seconds: float) -> None:
    """Compute in pure Python."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Spin(gristmill.Map):
    """Holds the interpreter lock for 100 us."""

    def map(self, element: Any) -> Any:
        spin(0.0001)
        return element


class Burst(gristmill.Map):
    """Takes 1 ms for some of the records, in a row, and no time for the others."""

    def map(self, element: Any) -> Any:
        if element % 1_000 < 200:
            spin(0.001)
        return element


class Decode(gristmill.Map):
    """Decompresses for about 1 ms without the interpreter lock."""

    def __init__(self) -> None:
        noise = np.random.default_rng(0).integers(0, 16, 150_000, np.uint8)
        self._compressed = zlib.compress(noise.tobytes(), 1)

    def map(self, element: Any) -> Any:
        return len(zlib.decompress(self._compressed)) + element


class Slow(gristmill.Map):
    """Takes 20 ms without the interpreter lock."""

    def map(self, element: Any) -> Any:
        time.sleep(0.02)
        return element


def open_workload(
    name: str, folder: Path, *, num_threads: int | None, worker_count: int | None
) -> tuple[Any, Callable[[Any], int]]:
    """Return a loader, and a function that consumes an element and returns how many it holds.

    Files are written to `folder`.
    """
    source, transforms, batch_size = _parts(name, folder)
    options = None if num_threads is None else gristmill.ReadOptions(num_threads=num_threads)
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(
            len(source),
            shard_options=gristmill.NoSharding(),
            shuffle=name == "columns",
            num_epochs=1,
            seed=0,
        ),
        operations=[*transforms, gristmill.Batch(batch_size)],
        worker_count=worker_count,
        read_options=options,
    )
    return loader, _consume_slowly if name == "slow_consumer" else _count


def _parts(name: str, folder: Path) -> tuple[Any, list[Any], int]:
    if name == "tiny":
        return Records(60_000), [], 128
    if name == "columns":
        rng = np.random.default_rng(0)
        columns = {f"x{number}": rng.random(1_000_000, np.float32) for number in range(6)}
        return gristmill.ArraySource(columns), [], 1_024
    if name in ("gil_bound", "decode"):
        return Records(100_000), [Spin() if name == "gil_bound" else Decode()], 32
    if name == "waiting_reads":
        return WaitingRecords(100_000), [], 32
    if name == "cold_files":
        _write_files(folder)
        return Files(str(folder), 512), [], 16
    if name == "bursts":
        return Records(100_000), [Burst()], 16
    if name == "long_bursts":
        return BurstRecords(10_000_000), [], 128
    if name == "huge_batches":
        return Images(256 * 40), [], 256
    if name == "few_records":
        return Records(8), [Slow()], 1
    return Records(60_000), [], 128


def _write_files(folder: Path) -> None:
    content = np.random.default_rng(0).bytes(65_536)
    for number in range(64):
        (folder / f"{number}.bin").write_bytes(content)


def _count(element: Any) -> int:
    leaf = next(iter(element.values())) if isinstance(element, dict) else element
    return len(leaf)


def _consume_slowly(element: Any) -> int:
    time.sleep(0.005)
    return len(element)

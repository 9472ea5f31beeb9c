"""Subclasses of the library's own datasets that override what reads them, and steps above them."""

import json
import tempfile
from pathlib import Path
from typing import Any

import grain
import numpy as np
from grain._src.python.dataset.sources import tfrecord_dataset

from gristmill._data.sources.records.crc32c import masked_crcs

files: Any = tfrecord_dataset
experimental: Any = grain.experimental


class StoredReader(files._TFRecordReader):
    """Opens an address instead of a path, as programs for stores do."""

    def __init__(self, address: str) -> None:
        self._reader = open(address.removeprefix("store://"), "rb")  # noqa: SIM115


class StoredIterator(files._TFRecordDatasetIterator):
    def __init__(self, address: str) -> None:
        grain.DatasetIterator.__init__(self)
        self._reader = StoredReader(address)


class StoredDataset(experimental.TFRecordIterDataset):
    def __iter__(self) -> Any:
        return StoredIterator(self._path)


class First(experimental.ZipIterDataset):
    def __iter__(self) -> Any:
        return self._parents[0].__iter__()


class Sums(experimental.ZipMapDataset):
    def __getitem__(self, index: Any) -> Any:
        return sum(super().__getitem__(index))


class Negated(experimental.WindowShuffleMapDataset):
    def __getitem__(self, index: Any) -> Any:
        return -super().__getitem__(index)


class Shorter(experimental.ZipMapDataset):
    def __len__(self) -> int:
        return 3


def write_records(path: Path, num_records: int) -> str:
    """Write a TFRecord file, and return its address."""
    with path.open("wb") as file:
        for number in range(num_records):
            record = str(number).encode() * (number + 1)
            length = len(record).to_bytes(8, "little")
            for content in (length, record):
                file.write(content + masked_crcs([content]).astype("<u4").tobytes())
    return f"store://{path}"


def rest_after(ds: Any, num_before: int) -> list[Any]:
    """Return the elements after a state, from an iterator that was restored from it."""
    iterator = ds.__iter__()
    for _ in range(num_before):
        next(iterator)
    restored = ds.__iter__()
    restored.set_state(json.loads(json.dumps(iterator.get_state())))
    return list(restored)


def damaged(path: Path, keep: slice) -> str:
    """Return the type of the error of a damaged file."""
    path.write_bytes(path.read_bytes()[keep])
    try:
        return str(len(list(StoredDataset(f"store://{path}"))))
    except ValueError:
        return "ValueError"


if __name__ == "__main__":
    numbers: Any = grain.MapDataset.range(6)
    stream = numbers.to_iter_dataset()
    with tempfile.TemporaryDirectory() as folder:
        addresses = [write_records(Path(folder, f"{n}.tfrecord"), n + 2) for n in range(3)]
        opened: Any = grain.MapDataset.source(addresses)
        opened = opened.map(StoredDataset)
        records = experimental.InterleaveIterDataset(opened, cycle_length=2)
        shuffled = experimental.WindowShuffleIterDataset(records, window_size=3, seed=1)
        found: dict[str, Any] = {
            "file": list(StoredDataset(addresses[0])),
            "step above a file": list(StoredDataset(addresses[0]).map(len)),
            "interleaved files": list(records.map(bytes.decode)),
            "shuffled files": list(shuffled),
            "rest of a file": rest_after(StoredDataset(addresses[2]), 2),
            "rest of files": rest_after(records.batch(2), 2),
            "mixed files": list(grain.IterDataset.mix([records, records.map(bytes.upper)])),
            "cut off": damaged(Path(folder, "2.tfrecord"), slice(0, -1)),
            "cut off in a length": damaged(Path(folder, "1.tfrecord"), slice(0, 30)),
        }
    found |= {
        "stream": list(First([stream, stream])),
        "step above a stream": list(First([stream, stream]).map(lambda x: x)),
        "sums": list(Sums([numbers, numbers]).map(lambda x: x)),
        "shuffled sums": list(Sums([numbers, numbers]).shuffle(seed=3).repeat(2)),
        "one sum": Sums([numbers, numbers])[4],
        "negated": list(Negated(numbers, window_size=3, seed=1).batch(2)),
        "shorter": list(Shorter([numbers, numbers]).repeat(2)),
    }
    print(
        json.dumps(
            found,
            default=lambda value: (
                np.asarray(value).tolist() if not isinstance(value, bytes) else value.decode()
            ),
        )
    )

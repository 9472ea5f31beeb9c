"""A pipeline built as MaxText builds its own: Hugging Face streams, one for each reading thread.

The source is endless by its length and raises `StopIteration` at the end of its streams. It finds
its stream by the name of the thread that reads. Documents are packed by an operation of the loader.
"""

import threading
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import datasets as typed_datasets
import grain.python as grain
import numpy as np

from clients._digest import report

datasets: Any = typed_datasets

LENGTH = 64
VOCABULARY = 251


class StreamSource(grain.RandomAccessDataSource[Any]):
    """Documents of a Hugging Face stream, in the order in which they are asked for."""

    def __init__(self, stream: Any, num_threads: int) -> None:
        self._num_threads = num_threads
        self._streams = [iter(stream.shard(num_threads, number)) for number in range(num_threads)]

    def __len__(self) -> int:
        return 10_000_000_000

    def __getitem__(self, index: Any) -> Any:
        prefix, _, number = threading.current_thread().name.rpartition("_")
        if prefix != "grain-prefetch":
            raise RuntimeError(f"read by the thread {prefix!r}")
        return next(self._streams[int(number)])


class Tokenize(grain.MapTransform):
    """A stand-in for a tokenizer."""

    def map(self, element: Any) -> Any:
        tokens = np.frombuffer(element["text"].encode(), np.uint8).astype(np.int32) % VOCABULARY
        return {"inputs": tokens[:LENGTH], "targets": tokens[:LENGTH]}


class Shift(grain.MapTransform):
    """Shift the inputs, which a model for next tokens needs."""

    def map(self, element: Any) -> Any:
        return element | {"inputs": np.concatenate([[0], element["inputs"][:-1]]).astype(np.int32)}


class Pad(grain.MapTransform):
    """Pad a document to the length of a row."""

    def map(self, element: Any) -> Any:
        return {name: np.pad(row, (0, LENGTH - len(row))) for name, row in element.items()}


class Rename(grain.MapTransform):
    """Rename what packing adds."""

    def map(self, element: Any) -> Any:
        data, segments, positions = element if isinstance(element, tuple) else (element, {}, {})
        renamed = {f"{name}_segmentation": ids for name, ids in segments.items()}
        return data | renamed | {f"{name}_position": ids for name, ids in positions.items()}


def batches(*, packs: bool, drops: bool) -> Iterator[Any]:
    """Yield the batches of one way to train."""
    words = ["lorem ", "ipsum ", "dolor ", "sit ", "amet "]
    texts = ["".join(words[: number % 5 + 1]) * (number % 3 + 1) for number in range(3001)]
    stream = datasets.Dataset.from_dict({"text": texts}).to_iterable_dataset()
    source = StreamSource(stream, num_threads=1)
    lengths = {"inputs": LENGTH, "targets": LENGTH}
    batch: list[Any] = [Pad(), grain.Batch(16, drop_remainder=drops)]
    if packs:
        batch = [grain.experimental.PackAndBatchOperation(batch_size=16, length_struct=lengths)]
    loader = grain.DataLoader(
        data_source=source,
        operations=[Tokenize(), Shift(), *batch, Rename()],
        sampler=grain.IndexSampler(
            num_records=len(source),
            num_epochs=1,
            shard_options=grain.ShardOptions(0, 1, drop_remainder=False),
            shuffle=False,
            seed=0,
        ),
        worker_count=0,
        read_options=grain.ReadOptions(num_threads=1, prefetch_buffer_size=8),
    )
    yield from loader


def all_batches() -> Iterator[Any]:
    """Yield the batches of every way to train."""
    for packs, drops in ((True, False), (False, False), (False, True)):
        yield from batches(packs=packs, drops=drops)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Grain's operations are deprecated, and MaxText uses them
    report(all_batches(), datasets=version("datasets"))

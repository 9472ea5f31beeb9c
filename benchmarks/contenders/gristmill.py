"""gristmill: the same programs as for Grain, and programs over columns."""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gristmill
from benchmarks import _jpeg
from benchmarks._jpeg import CROP, HEIGHT, WIDTH, JpegSource
from benchmarks._mnist import BATCH_SIZE, Mnist, RecordSource
from benchmarks.contenders import _grain_api, _grain_datasets
from benchmarks.rows.integers import BATCH_SIZE as INTEGERS_BATCH_SIZE
from gristmill._api.monitoring.monitor import read_records
from gristmill.transforms import DecodeImage

mnist = partial(_grain_api.mnist, gristmill)
integers = partial(_grain_api.integers, gristmill)
billion = partial(_grain_api.billion, gristmill)
shuffled_integers = partial(_grain_datasets.shuffled_integers, gristmill)
endless = partial(_grain_datasets.endless, gristmill)
mixed_integers = partial(_grain_datasets.mixed_integers, gristmill)
mixed_streams = partial(_grain_datasets.mixed_streams, gristmill)
packing = partial(_grain_datasets.packing, gristmill)


def columns(data: Mnist, *, shuffle: bool) -> Callable[[], Any]:
    """Read MNIST as two arrays."""
    source = gristmill.ArraySource((data.images, data.labels))
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(
            num_records=len(source),
            shard_options=gristmill.NoSharding(),
            shuffle=shuffle,
            num_epochs=1,
            seed=0,
        ),
        operations=[gristmill.Batch(BATCH_SIZE)],
    )
    return lambda: iter(loader)


class AddOneToColumns(gristmill.Map):
    """Adds one to an element, or to a column of elements."""

    def map(self, element: Any) -> Any:
        return element + 1

    def map_batch(self, batch: NDArray[Any]) -> NDArray[Any]:
        return batch + 1


def integer_columns(count: int) -> Callable[[], Any]:
    """Read the integers as an array, with a transform of whole columns."""
    loader = gristmill.DataLoader(
        data_source=gristmill.ArraySource(np.arange(count)),
        sampler=gristmill.SequentialSampler(
            num_records=count, shard_options=gristmill.NoSharding()
        ),
        operations=[AddOneToColumns(), gristmill.Batch(INTEGERS_BATCH_SIZE)],
    )
    return lambda: iter(loader)


def watched_integers(count: int) -> Callable[[], Any]:
    """Read the integers as `integers` does, while a client reads the monitor once a second."""
    os.environ["GRISTMILL_MONITOR"] = "1"
    start = integers(count)
    threading.Thread(target=_read_monitor, daemon=True).start()
    return start


def recorded_mnist(
    data: Mnist, *, provenance: bool = False, ledger: bool = False, step_ms: float = 0.0
) -> Callable[[], Any]:
    """Read MNIST as `mnist` does, in order, with provenance or a ledger, and training steps."""
    loader = gristmill.load(
        RecordSource(data), num_epochs=1, batch_size=BATCH_SIZE, provenance=provenance
    )

    def start() -> Any:
        iterator = iter(loader)
        if ledger:
            iterator.keep_ledger(tempfile.mkdtemp())
        return _with_steps(iterator, step_ms / 1e3) if step_ms else iterator

    return start


def _with_steps(batches: Iterator[Any], step_s: float) -> Iterator[Any]:
    for batch in batches:
        time.sleep(step_s)
        yield batch


def _read_monitor() -> None:
    while True:
        read_records(os.getpid())
        time.sleep(1.0)


_decode = DecodeImage(key=None)


def center_crop(record: tuple[bytes, int]) -> dict[str, Any]:
    """Decode a JPEG file, and cut out its centre."""
    jpeg, label = record
    top, left = (HEIGHT - CROP) // 2, (WIDTH - CROP) // 2
    return {"image": _decode.decode(jpeg, lambda *_: (top, left, CROP, CROP)), "label": label}


def _shuffled_batches(dataset: gristmill.MapDataset[Any]) -> Callable[[], Any]:
    batches = dataset.shuffle(seed=0).batch(_jpeg.BATCH_SIZE)
    return lambda: iter(batches)


def cached_jpeg(
    source: JpegSource, *, is_filled: bool = False, on_disk: bool = True
) -> Callable[[], Any]:
    """Decode JPEG files, and keep the crops in a cache, which may be filled before the epoch."""
    folder = tempfile.TemporaryDirectory()
    decoded = gristmill.MapDataset.source(source).map(center_crop)
    batches = _shuffled_batches(decoded.cache(folder.name if on_disk else None))
    if is_filled:
        for _ in batches():
            pass

    def start() -> Iterator[Any]:
        yield from batches()
        folder.name  # noqa: B018 - the folder exists as long as the cache is read

    return start


def jpeg_array(source: JpegSource) -> Callable[[], Any]:
    """Read the crops as an array in memory."""
    images = np.stack([center_crop(source[i])["image"] for i in range(len(source))])
    arrays = gristmill.ArraySource({"image": images, "label": np.arange(len(source))})
    return _shuffled_batches(gristmill.MapDataset.source(arrays))

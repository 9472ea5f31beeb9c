"""The programs with workers or reading threads that Grain and gristmill share."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _jpeg, _large, _waits
from benchmarks._mnist import BATCH_SIZE, Mnist, RecordSource, RepeatedSource
from benchmarks._samples import Samples
from benchmarks.contenders._grain_api import read_options
from benchmarks.rows import stragglers as stragglers_row
from benchmarks.rows import waiting_reads as waiting_row

Start = Callable[[], Any]


def loader(
    grain: Any,
    source: Any,
    operations: list[Any],
    *,
    worker_count: int,
    shuffle: bool = False,
    num_epochs: int = 1,
    num_threads: int | None = None,
) -> Start:
    """Return a loader over the whole source."""
    made = grain.DataLoader(
        data_source=source,
        sampler=grain.samplers.IndexSampler(
            num_records=len(source),
            shard_options=grain.sharding.NoSharding(),
            shuffle=shuffle,
            num_epochs=num_epochs,
            seed=0,
        ),
        operations=operations,
        worker_count=worker_count,
        read_options=read_options(grain, num_threads),
    )
    return lambda: iter(made)


def mnist(grain: Any, data: Mnist, *, repeated: bool = True, **options: Any) -> Start:
    """Read MNIST by record, repeated or once."""
    source = RepeatedSource(data) if repeated else RecordSource(data)
    return loader(grain, source, [grain.transforms.Batch(BATCH_SIZE)], **options)


def jpeg(grain: Any, source: _jpeg.JpegSource, **options: Any) -> Start:
    """Decode JPEG files, with a crop from the random generator of the record."""
    from benchmarks import _pillow

    class Augment(grain.transforms.RandomMap):
        def random_map(self, element: tuple[bytes, int], rng: np.random.Generator) -> Any:
            return _pillow.augment(element, rng)

    operations = [Augment(), grain.transforms.Batch(_jpeg.BATCH_SIZE)]
    return loader(grain, source, operations, **options)


def large_batches(
    grain: Any, pool: _large.Images, *, num_records: int = _large.NUM_RECORDS, **options: Any
) -> Start:
    """Batch arrays that exist already."""
    operations = [grain.transforms.Batch(_large.BATCH_SIZE)]
    return loader(grain, _large.PoolSource(pool, num_records), operations, **options)


def strings(grain: Any, records: list[str], **options: Any) -> Start:
    """Read a Python list of strings, in lists."""
    return loader(grain, records, [grain.transforms.Batch(BATCH_SIZE, batch_fn=list)], **options)


def samples(grain: Any, source: Samples, **options: Any) -> Start:
    """Read a dataset that lists its samples."""
    return loader(grain, source, [grain.transforms.Batch(BATCH_SIZE)], **options)


def stragglers(grain: Any, **options: Any) -> Start:
    """Map numbers with a step that sometimes takes long."""

    class TakeTime(grain.transforms.Map):
        def map(self, element: int) -> int:
            return _waits.take_time(element)

    source = grain.sources.RangeDataSource(0, _waits.NUM_STEPS, 1)
    operations = [TakeTime(), grain.transforms.Batch(stragglers_row.BATCH_SIZE)]
    return loader(grain, source, operations, **options)


def waiting_reads(grain: Any, data: Mnist, **options: Any) -> Start:
    """Read MNIST from a source that waits."""
    operations = [grain.transforms.Batch(waiting_row.BATCH_SIZE)]
    return loader(grain, _waits.WaitingSource(data), operations, **options)


def memory(grain: Any, source: Any, *, batch_size: int, **options: Any) -> Start:
    """Read a source in memory, shuffled, for two epochs, so that workers run after the first."""
    operations = [grain.transforms.Batch(batch_size)]
    return loader(grain, source, operations, shuffle=True, num_epochs=2, **options)

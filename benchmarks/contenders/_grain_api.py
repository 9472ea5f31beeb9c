"""The programs that Grain and gristmill share: the same calls on either module."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._files import BATCH_SIZE as FILES_BATCH_SIZE
from benchmarks._files import shards
from benchmarks._mnist import BATCH_SIZE, Mnist, RecordSource
from benchmarks.rows.integers import BATCH_SIZE as INTEGERS_BATCH_SIZE

Start = Callable[[], Any]


def read_options(grain: Any, num_threads: int | None) -> Any:
    """Return options with a number of threads, or None for the default."""
    return None if num_threads is None else grain.ReadOptions(num_threads=num_threads)


def mnist(grain: Any, data: Mnist, *, shuffle: bool, num_threads: int | None = None) -> Start:
    """Batch a per-record source, in order or shuffled."""
    source = RecordSource(data)
    sampler = grain.samplers.IndexSampler(
        num_records=len(source),
        shard_options=grain.sharding.NoSharding(),
        shuffle=shuffle,
        num_epochs=1,
        seed=0,
    )
    loader = grain.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[grain.transforms.Batch(BATCH_SIZE)],
        worker_count=0,
        read_options=read_options(grain, num_threads),
    )
    return lambda: iter(loader)


def records(grain: Any, folder: Path, *, num_threads: int | None = None) -> Start:
    """Read the records of ArrayRecord files, shuffled, in lists."""
    source = grain.sources.ArrayRecordDataSource(shards(folder, "array_record"))
    sampler = grain.samplers.IndexSampler(len(source), shuffle=True, num_epochs=1, seed=0)
    loader = grain.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[grain.transforms.Batch(FILES_BATCH_SIZE, batch_fn=list)],
        read_options=read_options(grain, num_threads),
    )
    return lambda: iter(loader)


def integers(grain: Any, count: int, *, num_threads: int | None = None) -> Start:
    """Add one to a range, and batch."""

    class AddOne(grain.transforms.Map):
        def map(self, element: int) -> int:
            return element + 1

    loader = grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, count, 1),
        sampler=grain.samplers.SequentialSampler(
            num_records=count, shard_options=grain.sharding.NoSharding()
        ),
        operations=[AddOne(), grain.transforms.Batch(INTEGERS_BATCH_SIZE)],
        worker_count=0,
        read_options=read_options(grain, num_threads),
    )
    return lambda: iter(loader)


def billion(grain: Any, count: int, *, batch_size: int, num_threads: int | None = None) -> Start:
    """Return a function that builds a loader over a shuffled range."""

    def build() -> Any:
        return grain.DataLoader(
            data_source=grain.sources.RangeDataSource(0, count, 1),
            sampler=grain.samplers.IndexSampler(
                num_records=count,
                shard_options=grain.sharding.NoSharding(),
                shuffle=True,
                num_epochs=1,
                seed=0,
            ),
            operations=[grain.transforms.Batch(batch_size)],
            worker_count=0,
            read_options=read_options(grain, num_threads),
        )

    return build

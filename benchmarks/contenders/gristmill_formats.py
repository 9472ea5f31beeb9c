"""gristmill over files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gristmill
from benchmarks._files import BATCH_SIZE, shards
from benchmarks.contenders import _grain_api
from gristmill import sources

_SOURCES: dict[str, Callable[..., Any]] = {
    "array_record": sources.ArrayRecordDataSource,
    "tfrecord": sources.TFRecordSource,
    "tar": sources.TarSource,
}


def records(folder: Path, *, ending: str) -> _grain_api.Start:
    """The records of a format, shuffled, as bytes."""
    source = _SOURCES[ending](shards(folder, ending))
    transformations = [_bytes_of_tar] if ending == "tar" else []
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(len(source), shuffle=True, seed=0, num_epochs=1),
        operations=[*transformations, gristmill.Batch(BATCH_SIZE, batch_fn=list)],
    )
    return lambda: iter(loader)


def _bytes_of_tar(record: dict[str, Any]) -> bytes:
    return record["bin"]


def parquet(path: str, folder: Path) -> _grain_api.Start:
    """The rows of a table, shuffled and batched."""
    del folder
    dataset = gristmill.MapDataset.source(sources.ParquetSource(path)).shuffle(seed=0)
    batches = dataset.batch(BATCH_SIZE)
    return lambda: iter(batches.to_iter_dataset())

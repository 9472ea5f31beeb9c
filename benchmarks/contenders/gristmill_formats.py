"""gristmill, reading files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gristmill
from benchmarks._files import BATCH_SIZE, ROW_GROUP, shards
from benchmarks.contenders import _grain_api
from gristmill import sources

_SOURCES: dict[str, Callable[..., Any]] = {
    "array_record": sources.ArrayRecordDataSource,
    "tfrecord": sources.TFRecordSource,
    "tar": sources.TarSource,
}


def records(folder: Path, *, ending: str) -> _grain_api.Start:
    """Read the records of a format, shuffled, as bytes."""
    source = _SOURCES[ending](shards(folder, ending))
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(len(source), shuffle=True, seed=0, num_epochs=1),
        operations=[gristmill.Batch(BATCH_SIZE, batch_fn=_bins if ending == "tar" else list)],
    )
    return lambda: iter(loader)


def _bins(records: Sequence[dict[str, Any]]) -> list[bytes]:
    return [record["bin"] for record in records]


def parquet(path: str, folder: Path) -> _grain_api.Start:
    """Shuffle and batch the rows of a table, after decoding all row groups."""
    del folder
    source = sources.ParquetSource(path)
    source.__getitems__(range(0, len(source), ROW_GROUP // 2))
    batches = gristmill.MapDataset.source(source).shuffle(seed=0).batch(BATCH_SIZE)
    return lambda: iter(batches.to_iter_dataset())

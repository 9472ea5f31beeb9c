"""gristmill: the same programs as for Grain, and programs over columns."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gristmill
from benchmarks._mnist import BATCH_SIZE, Mnist
from benchmarks.contenders import _grain_api, _grain_datasets
from benchmarks.rows.integers import BATCH_SIZE as INTEGERS_BATCH_SIZE

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

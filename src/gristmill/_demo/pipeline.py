"""The data pipeline of the demo, from arrays in memory to batches for JAX. Read this first."""

import numpy as np
from numpy.typing import NDArray

from gristmill import ArraySource, Batch, DataLoader, IndexSampler, NoSharding
from gristmill.transforms import Map

Pixels = NDArray[np.uint8]
Example = tuple[NDArray[np.float32], NDArray[np.uint8]]


class FlattenAndCast(Map):
    """Turns an image into one row of floats, the input of a dense layer.

    `map` is all that Grain requires: it transforms one record. `map_batch` does the same for many
    records at once, as arrays with an additional first axis, and makes the demo fast.

    >>> flat, label = FlattenAndCast().map((np.zeros((28, 28), np.uint8), np.uint8(7)))
    >>> flat.shape, flat.dtype.name
    ((784,), 'float32')
    """

    def map(self, element: tuple[Pixels, np.uint8]) -> tuple[NDArray[np.float32], np.uint8]:
        image, label = element
        return image.ravel().astype(np.float32), label

    def map_batch(self, columns: tuple[Pixels, NDArray[np.uint8]]) -> Example:
        """Transform a block of records like `map` transforms one."""
        images, labels = columns
        return images.reshape(len(images), -1).astype(np.float32), labels


def batches(
    images: Pixels, labels: Pixels, *, batch_size: int, shuffle: bool = False, seed: int = 0
) -> DataLoader:
    """Return a loader of one epoch, in batches of images and labels.

    The last batch may be smaller. The order depends on `seed` alone, and iterating again yields
    the same batches.

    >>> images, labels = np.zeros((5, 28, 28), np.uint8), np.arange(5, dtype=np.uint8)
    >>> [(x.shape, y.tolist()) for x, y in batches(images, labels, batch_size=3)]
    [((3, 784), [0, 1, 2]), ((2, 784), [3, 4])]
    """
    source = ArraySource((images, labels))
    sampler = IndexSampler(
        num_records=len(source),
        shard_options=NoSharding(),
        shuffle=shuffle,
        num_epochs=1,
        seed=seed,
    )
    return DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[FlattenAndCast(), Batch(batch_size)],
        worker_count=0,
    )

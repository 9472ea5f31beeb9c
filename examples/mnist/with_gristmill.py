"""gristmill alone, over arrays in memory."""

import numpy as np

import gristmill
from mnist.contender import Contender


class FlattenAndCast(gristmill.Map):
    """Flattens images to rows of floats; `map_batch` does so for many records at a time."""

    def map(self, record):
        """Convert one image and its label."""
        image, label = record
        return image.ravel().astype(np.float32), label

    def map_batch(self, columns):
        """Convert many images and their labels."""
        images, labels = columns
        return images.reshape(len(images), -1).astype(np.float32), labels


def contenders(data, *, batch_size, workers, **_):
    """Return the loader over the arrays themselves."""
    source = gristmill.ArraySource((data.train_images, data.train_labels))
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.SequentialSampler(num_records=len(source)),
        operations=[FlattenAndCast(), gristmill.Batch(batch_size)],
        worker_count=workers,
    )
    return [Contender("gristmill", lambda: loader)]

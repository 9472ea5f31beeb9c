"""A loop in Python, as one writes it without a loader, and gristmill over the same records."""

import numpy as np

import gristmill
from mnist.contender import Contender

LOOP = "Python loop"


class Records:
    """Reads images as rows of floats, and their labels, by index."""

    def __init__(self, images, labels):
        self._images = images
        self._labels = labels

    def __len__(self):
        return len(self._images)

    def __getitem__(self, index):
        return self._images[index].ravel().astype(np.float32), int(self._labels[index])


def contenders(data, *, batch_size, workers, **_):
    """Return the loop, and gristmill over the records that it reads."""
    records = Records(data.train_images, data.train_labels)

    def loop():
        for start in range(0, len(records), batch_size):
            stop = min(start + batch_size, len(records))
            images, labels = zip(*[records[index] for index in range(start, stop)], strict=True)
            yield np.stack(images), np.array(labels)

    loader = gristmill.DataLoader(
        data_source=records,
        sampler=gristmill.SequentialSampler(num_records=len(records)),
        operations=[gristmill.Batch(batch_size)],
        worker_count=workers,
    )
    return [
        Contender(LOOP, loop),
        Contender("gristmill over records", lambda: loader, peer=LOOP),
    ]

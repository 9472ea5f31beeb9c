"""Grain: a data source, its DataLoader and MapDataset, and gristmill over the same two."""

import grain.python

import gristmill
from mnist.contender import Contender
from mnist.source import Source

LOADER = "Grain DataLoader"
DATASET = "Grain MapDataset"


def contenders(data, *, batch_size, workers, **_):
    """Return the loaders of Grain and of gristmill, over one source.

    Grain has no workers here: with workers its batches hold other images than without.
    """
    source = Source(data.train_images, data.train_labels)
    dataset = grain.MapDataset.source(source)

    def loader(library, worker_count):  # the same program with either library
        return library.DataLoader(
            data_source=source,
            sampler=library.SequentialSampler(
                num_records=len(source), shard_options=library.NoSharding()
            ),
            operations=[library.Batch(batch_size)],
            worker_count=worker_count,
        )

    def ours_over_dataset():
        return (
            gristmill.MapDataset.source(dataset)
            .batch(batch_size)
            .to_iter_dataset()
            .mp_prefetch(gristmill.MultiprocessingOptions(num_workers=workers))
        )

    return [
        Contender(LOADER, lambda: loader(grain.python, 0)),
        Contender("gristmill DataLoader", lambda: loader(gristmill.python, workers), peer=LOADER),
        Contender(DATASET, lambda: dataset.batch(batch_size)),
        Contender("gristmill over MapDataset", ours_over_dataset, peer=DATASET),
    ]

"""Hugging Face: a Dataset of images, its `iter`, and gristmill over the same dataset."""

import datasets
from PIL import Image

import gristmill
from mnist.contender import Contender

PEER = "Hugging Face iter"


def mnist(images, labels):
    """Return a dataset like `load_dataset("mnist")["train"]`: images stored as PNG, and classes."""
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)}
    )
    columns = {"image": [Image.fromarray(image) for image in images], "label": labels}
    return datasets.Dataset.from_dict(columns, features=features)


def contenders(data, *, batch_size, workers, **_):
    """Return the loaders of Hugging Face and of gristmill, over one dataset object."""
    dataset = mnist(data.train_images, data.train_labels).with_format("numpy")

    def theirs():
        for batch in dataset.iter(batch_size):
            yield batch["image"], batch["label"]

    ours = (
        gristmill.from_huggingface(dataset)
        .batch(batch_size)
        .map(lambda batch: (batch["image"], batch["label"]))
        .to_iter_dataset()
        .mp_prefetch(gristmill.MultiprocessingOptions(num_workers=workers))
    )
    return [
        Contender(PEER, theirs),
        Contender("gristmill.from_huggingface", lambda: ours, peer=PEER),
    ]

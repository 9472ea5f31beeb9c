"""PyTorch: a map-style dataset like torchvision's, its DataLoader, and gristmill over it."""

import warnings

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate

import gristmill
from mnist.contender import Contender

PEER = "PyTorch DataLoader"

# PyTorch forks its workers, and JAX warns about that, though they do not use it.
warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)


class MNIST(Dataset):
    """Like `torchvision.datasets.MNIST`, but from arrays: PIL images through a transform."""

    def __init__(self, images, labels, transform=None):
        self.data = torch.tensor(images)
        self.targets = torch.tensor(labels, dtype=torch.int64)
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image = Image.fromarray(self.data[index].numpy())
        if self.transform is not None:
            image = self.transform(image)
        return image, int(self.targets[index])


class FlattenAndCast:
    """Converts a PIL image to a row of floats."""

    def __call__(self, image):
        return np.ravel(np.array(image, dtype=np.float32))


def numpy_collate(items):
    """Collate as PyTorch does, and return the tensors as NumPy arrays."""
    images, labels = default_collate(items)
    return images.numpy(), labels.numpy()


def contenders(data, *, batch_size, workers, **_):
    """Return the loaders of PyTorch and of gristmill, over one dataset object."""
    dataset = MNIST(data.train_images, data.train_labels, transform=FlattenAndCast())
    theirs = DataLoader(
        dataset, batch_size=batch_size, collate_fn=numpy_collate, num_workers=workers
    )
    ours = (
        gristmill.from_torch(dataset)
        .batch(batch_size)
        .to_iter_dataset()
        .mp_prefetch(gristmill.MultiprocessingOptions(num_workers=workers))
    )
    return [
        Contender(PEER, lambda: theirs),
        Contender("gristmill.from_torch", lambda: ours, peer=PEER),
    ]

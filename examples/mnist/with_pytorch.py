"""PyTorch: a map-style dataset like torchvision's, its DataLoader, and gristmill over the same."""

import warnings

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate

import gristmill
from mnist.contender import Contender

PEER = "PyTorch DataLoader"

# PyTorch forks its workers, and JAX, which is not used in them, warns of that.
warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)


class MNIST(Dataset):
    """What `torchvision.datasets.MNIST` is, from arrays: PIL images through a transform."""

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
    """A PIL image as one row of floats."""

    def __call__(self, picture):
        return np.ravel(np.array(picture, dtype=np.float32))


def numpy_collate(items):
    """PyTorch's own collate, its tensors then seen as NumPy arrays."""
    images, labels = default_collate(items)
    return images.numpy(), labels.numpy()


def contenders(data, *, batch_size, workers, **_):
    """Give PyTorch's loader and ours, over one dataset object."""
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

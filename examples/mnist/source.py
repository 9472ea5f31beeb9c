"""A data source as users of Grain write it, which reads one record at a time."""

import numpy as np
from PIL import Image


class Source:
    """Reads images as rows of floats, and their labels, by index."""

    def __init__(self, images, labels):
        self._images = images
        self._labels = labels

    def __len__(self):
        return len(self._images)

    def __getitem__(self, index):
        image = Image.fromarray(self._images[index])
        return np.ravel(np.array(image, dtype=np.float32)), int(self._labels[index])

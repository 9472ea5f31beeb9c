"""A data source as Grain's users write it: one record at a time."""

import numpy as np
from PIL import Image


class Source:
    """Random access to images as rows of floats, and their labels."""

    def __init__(self, images, labels):
        self._images = images
        self._labels = labels

    def __len__(self):
        return len(self._images)

    def __getitem__(self, index):
        image = Image.fromarray(self._images[index])
        return np.ravel(np.array(image, dtype=np.float32)), int(self._labels[index])

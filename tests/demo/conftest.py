"""A tiny data set in the format of MNIST, written by the tests themselves."""

import struct
from pathlib import Path

import numpy as np
import pytest


def idx_bytes(array: np.ndarray) -> bytes:
    """Spelt out here, so that the reader is not tested against its own writer."""
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def mnist_directory(tmp_path: Path) -> Path:
    """Four plain idx files: 60 images to train and 20 to test, each digit a stripe of its own."""
    for prefix, count in (("train", 60), ("t10k", 20)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.zeros((count, 28, 28), np.uint8)
        images[np.arange(count), 2 * labels + 4] = 255
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return tmp_path

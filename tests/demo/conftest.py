"""A tiny dataset in the format of MNIST, written by the tests."""

import struct
from pathlib import Path

import numpy as np
import pytest


def idx_bytes(array: np.ndarray) -> bytes:
    """Return an array in idx format, without the writer that belongs to the tested reader."""
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def mnist_directory(tmp_path: Path) -> Path:
    """Four plain idx files: 60 training and 20 test images, with another stripe for each digit."""
    for prefix, count in (("train", 60), ("t10k", 20)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.zeros((count, 28, 28), np.uint8)
        images[np.arange(count), 2 * labels + 4] = 255
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return tmp_path

"""MNIST as four arrays, from the packaged sample or from the original idx files.

GristmillError
└── MnistError (ValueError)                      what was read is not MNIST
    └── MnistNotFoundError (FileNotFoundError)   a file or the directory is not there
"""

import gzip
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from gristmill.demo._idx import parse_idx
from gristmill.errors import GristmillError

SAMPLE_NAME: Final = "mnist_sample.idx.gz"
FILE_NAMES: Final = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_NUM_AXES: Final = (3, 1, 3, 1)
_EXPECTED: Final = (
    f"Expected these four files, each as it is or with .gz at the end: {', '.join(FILE_NAMES)}. "
    "Leave the directory out to use the sample that comes with gristmill."
)


class MnistError(GristmillError, ValueError):
    """What was read is not MNIST."""


@final
class MnistNotFoundError(MnistError, FileNotFoundError):
    """A file of MNIST, or the directory, is not there."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Mnist:
    """Handwritten digits, as unsigned bytes: images of shape (n, 28, 28), labels 0 to 9.

    >>> load_mnist().test_labels[:5].tolist()
    [7, 2, 1, 0, 4]
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]

    def __repr__(self) -> str:  # the default would print the pixels
        return f"Mnist(<{len(self.train_labels)} to train, {len(self.test_labels)} to test>)"


def load_mnist(directory: Path | None = None) -> Mnist:
    """Read MNIST into memory, as read-only arrays in the order of the files.

    Args:
        directory: Where the four idx files are, compressed with gzip or not. `None` reads the
            sample in the package: the first images of each file, of which `MNIST.md` says more.

    >>> load_mnist()
    Mnist(<9600 to train, 2000 to test>)
    """
    return _load_sample() if directory is None else _load_directory(directory)


def _load_sample() -> Mnist:
    """Unpack the one file that holds all four arrays, one idx file after another."""
    packed = resources.files("gristmill.demo").joinpath(SAMPLE_NAME)
    remedy = "It is a part of gristmill: reinstall the package."
    if not packed.is_file():
        raise MnistNotFoundError(f"The packaged sample {SAMPLE_NAME} is missing. {remedy}")
    data = _unpack(packed.read_bytes(), name=SAMPLE_NAME, remedy=remedy)
    arrays: list[NDArray[np.uint8]] = []
    end = 0
    for num_axes in _NUM_AXES:
        try:
            array, end = parse_idx(data, num_axes=num_axes, start=end)
        except ValueError as error:
            raise MnistError(f"{SAMPLE_NAME} is damaged: {error}. {remedy}") from error
        arrays.append(array)
    return _assemble(arrays, names=(SAMPLE_NAME,) * 4)


def _load_directory(directory: Path) -> Mnist:
    if not directory.exists():
        raise MnistNotFoundError(f"The directory {str(directory)!r} does not exist. {_EXPECTED}")
    if not directory.is_dir():
        raise MnistError(f"{str(directory)!r} is a file, not a directory. {_EXPECTED}")
    paths = [_find(directory, name) for name in FILE_NAMES]  # all, before the first is read
    arrays = [_read(path, num_axes) for path, num_axes in zip(paths, _NUM_AXES, strict=True)]
    return _assemble(arrays, names=tuple(map(str, paths)))


def _find(directory: Path, name: str) -> Path:
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    raise MnistNotFoundError(
        f"Neither {name} nor {name}.gz is in the directory {str(directory)!r}. {_EXPECTED}"
    )


def _read(path: Path, num_axes: int) -> NDArray[np.uint8]:
    remedy = "Copy or download the file again."
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = _unpack(data, name=str(path), remedy=remedy)
    try:
        array, end = parse_idx(data, num_axes=num_axes)
    except ValueError as error:
        kind = "images" if num_axes == 3 else "labels"
        raise MnistError(
            f"{str(path)!r} is not an idx file of {kind}: {error}. {remedy}"
        ) from error
    if end != len(data):
        raise MnistError(
            f"{str(path)!r} has {len(data) - end} bytes after the {end} that its header announces. "
            f"{remedy}"
        )
    return array


def _unpack(packed: bytes, *, name: str, remedy: str) -> bytes:
    try:
        return gzip.decompress(packed)
    except EOFError as error:
        raise MnistError(f"{name!r} is truncated: its gzip stream has no end. {remedy}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise MnistError(f"{name!r} is not intact gzip: {error}. {remedy}") from error


def _assemble(arrays: list[NDArray[np.uint8]], *, names: tuple[str, ...]) -> Mnist:
    """Check that images and labels belong together, and name them."""
    for first in (0, 2):
        images, labels = arrays[first : first + 2]
        images_name, labels_name = names[first : first + 2]
        if images.shape[1:] != (28, 28):
            raise MnistError(
                f"{images_name!r} has images of shape {images.shape[1:]}, expected (28, 28). "
                "Give the files of MNIST itself, or of a data set of the same shape."
            )
        if len(images) != len(labels):
            raise MnistError(
                f"{images_name!r} has {len(images)} images and {labels_name!r} has {len(labels)} "
                "labels; each image needs one. Give two files of the same data set."
            )
        if len(labels) == 0:
            raise MnistError(f"{images_name!r} has no images. Give a file with one at least.")
        if labels.max() > 9:
            raise MnistError(
                f"{labels_name!r} has the label {labels.max()}, expected 0 to 9. "
                "Give a data set of ten classes."
            )
    train_images, train_labels, test_images, test_labels = arrays
    return Mnist(
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
    )

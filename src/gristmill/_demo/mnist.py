"""Load MNIST as four arrays, from the packaged sample or from the original idx files.

GristmillError
└── MnistError (ValueError)                      the files are not MNIST
    └── MnistNotFoundError (FileNotFoundError)   a file or the folder does not exist
"""

import gzip
import io
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from gristmill._demo.idx import parse_idx
from gristmill.errors import GristmillError

SAMPLE_NAME: Final = "mnist_sample.idx.gz"
FILE_NAMES: Final = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_NUM_AXES: Final = (3, 1, 3, 1)
_MAX_BYTES: Final = 2**28
"""More than any variant of MNIST has. A small file could unpack to gigabytes."""
_EXPECTED: Final = (
    f"Expected these four files, plain or with the suffix .gz: {', '.join(FILE_NAMES)}. "
    "Leave `directory` out to use the sample that ships with gristmill."
)


class MnistError(GristmillError, ValueError):
    """The files are not MNIST."""


@final
class MnistNotFoundError(MnistError, FileNotFoundError):
    """A file of MNIST, or its folder, does not exist."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Mnist:
    """Images of handwritten digits and their labels, as arrays of unsigned bytes.

    >>> load_mnist().test_labels[:5].tolist()
    [7, 2, 1, 0, 4]

    Attributes:
        train_images: The images to train on, of shape (n, 28, 28).
        train_labels: Their labels, from 0 to 9.
        test_images: The images to test on, of shape (n, 28, 28).
        test_labels: Their labels, from 0 to 9.
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
        directory: The folder of the four idx files, compressed with gzip or not. `None` loads the
            packaged sample: the first images of each file, as described in `MNIST.md`.

    Raises:
        MnistNotFoundError: If a file does not exist.
        MnistError: If a file is damaged or is not MNIST.

    >>> load_mnist()
    Mnist(<9600 to train, 2000 to test>)
    """
    return _load_sample() if directory is None else _load_directory(directory)


def _load_sample() -> Mnist:
    """Decompress the file that holds the four arrays, one idx file after another."""
    packed = resources.files("gristmill._demo").joinpath(SAMPLE_NAME)
    remedy = "Reinstall gristmill, which contains it."
    if not packed.is_file():
        raise MnistNotFoundError(f"The packaged sample {SAMPLE_NAME} is missing. {remedy}")
    data = _decompress(packed.read_bytes(), name=SAMPLE_NAME, remedy=remedy)
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
        raise MnistNotFoundError(f"The folder {str(directory)!r} does not exist. {_EXPECTED}")
    if not directory.is_dir():
        raise MnistError(f"{str(directory)!r} is a file, not a folder. {_EXPECTED}")
    paths = [_find(directory, name) for name in FILE_NAMES]  # all, before reading the first
    arrays = [_read(path, num_axes) for path, num_axes in zip(paths, _NUM_AXES, strict=True)]
    return _assemble(arrays, names=tuple(map(str, paths)))


def _find(directory: Path, name: str) -> Path:
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    raise MnistNotFoundError(
        f"Neither {name} nor {name}.gz is in the folder {str(directory)!r}. {_EXPECTED}"
    )


def _read(path: Path, num_axes: int) -> NDArray[np.uint8]:
    remedy = "Copy or download the file again."
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = _decompress(data, name=str(path), remedy=remedy)
    try:
        array, end = parse_idx(data, num_axes=num_axes)
    except ValueError as error:
        kind = "images" if num_axes == 3 else "labels"
        raise MnistError(
            f"{str(path)!r} is not an idx file of {kind}: {error}. {remedy}"
        ) from error
    if end != len(data):
        raise MnistError(
            f"{str(path)!r} has {len(data) - end} bytes after the {end} that its header declares. "
            f"{remedy}"
        )
    return array


def _decompress(packed: bytes, *, name: str, remedy: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            data = stream.read(_MAX_BYTES + 1)
    except EOFError as error:
        raise MnistError(f"{name!r} is truncated: its gzip stream has no end. {remedy}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise MnistError(f"{name!r} is not a valid gzip file: {error}. {remedy}") from error
    if len(data) > _MAX_BYTES:
        raise MnistError(f"{name!r} unpacks to more than {_MAX_BYTES:,} bytes. {remedy}")
    return data


def _assemble(arrays: list[NDArray[np.uint8]], *, names: tuple[str, ...]) -> Mnist:
    """Check that images and labels match, and return them as a dataset."""
    for first in (0, 2):
        images, labels = arrays[first : first + 2]
        images_name, labels_name = names[first : first + 2]
        if images.shape[1:] != (28, 28):
            raise MnistError(
                f"{images_name!r} has images of shape {images.shape[1:]}, expected (28, 28). "
                "Pass the files of MNIST, or of a dataset of the same shape."
            )
        if len(images) != len(labels):
            raise MnistError(
                f"{images_name!r} has {len(images)} images and {labels_name!r} has {len(labels)} "
                "labels; each image needs one label. Pass two files of the same dataset."
            )
        if len(labels) == 0:
            raise MnistError(f"{images_name!r} has no images. Pass a file with at least one.")
        if labels.max() > 9:
            raise MnistError(
                f"{labels_name!r} has the label {labels.max()}, expected 0 to 9. "
                "Pass a dataset with ten classes."
            )
    train_images, train_labels, test_images, test_labels = arrays
    return Mnist(
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
    )

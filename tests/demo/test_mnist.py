import gzip
import struct
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from gristmill._demo.mnist import (
    FILE_NAMES,
    SAMPLE_NAME,
    Mnist,
    MnistError,
    MnistNotFoundError,
    load_mnist,
)
from gristmill.errors import GristmillError

TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = FILE_NAMES


def compress(directory: Path) -> None:
    for name in FILE_NAMES:
        plain = directory / name
        (directory / f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()


@pytest.fixture(scope="module")
def sample() -> Mnist:
    return load_mnist()


def test_the_sample_has_images_and_labels_of_the_right_shape_and_type(sample: Mnist):
    assert sample.train_images.shape == (9_600, 28, 28)
    assert sample.train_labels.shape == (9_600,)
    assert sample.test_images.shape == (2_000, 28, 28)
    assert sample.test_labels.shape == (2_000,)
    for array in (
        sample.train_images, sample.train_labels, sample.test_images, sample.test_labels
    ):  # fmt: skip
        assert array.dtype == np.uint8


def test_the_sample_has_every_digit_about_equally_often(sample: Mnist):
    for labels in (sample.train_labels, sample.test_labels):
        shares = np.bincount(labels, minlength=10) / len(labels)
        assert len(shares) == 10
        assert shares.min() > 0.08
        assert shares.max() < 0.12


def test_the_sample_starts_like_mnist(sample: Mnist):
    assert sample.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert sample.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert sample.train_images.max() == 255
    assert (sample.train_images.reshape(-1, 784).max(axis=1) > 128).all()  # no image is blank


def test_the_sample_is_small_enough_to_ship():
    packed = resources.files("gristmill._demo").joinpath(SAMPLE_NAME).read_bytes()
    assert len(packed) <= 2_000_000


def test_loading_the_sample_imports_neither_jax_nor_rich():
    program = (
        "import sys; from gristmill.demo import load_mnist; load_mnist(); "
        "sys.exit(bool({'jax', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("compressed", [False, True])
def test_idx_files_are_read_plain_and_compressed(mnist_directory: Path, compressed: bool):
    if compressed:
        compress(mnist_directory)

    data = load_mnist(mnist_directory)

    assert repr(data) == "Mnist(<60 to train, 20 to test>)"
    assert data.train_images.shape == (60, 28, 28)
    assert data.train_labels.tolist() == 6 * list(range(10))
    assert data.test_labels.tolist() == 2 * list(range(10))
    assert (data.test_images[13, 10] == 255).all()  # the stripe of the digit 3
    assert data.test_images[13].sum() == 28 * 255


def test_a_missing_folder_is_named_with_the_expected_files(tmp_path: Path):
    with pytest.raises(MnistNotFoundError, match="does not exist") as caught:
        load_mnist(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(caught.value)
    assert all(name in str(caught.value) for name in FILE_NAMES)
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, GristmillError)


def test_a_file_in_place_of_the_folder_is_named(mnist_directory: Path):
    with pytest.raises(MnistError, match="is a file, not a folder"):
        load_mnist(mnist_directory / TRAIN_IMAGES)


@pytest.mark.parametrize("missing", FILE_NAMES)
def test_a_missing_file_is_named_with_all_four(mnist_directory: Path, missing: str):
    (mnist_directory / missing).unlink()
    with pytest.raises(MnistNotFoundError, match=rf"Neither {missing} nor {missing}\.gz") as caught:
        load_mnist(mnist_directory)
    assert str(mnist_directory) in str(caught.value)
    assert all(name in str(caught.value) for name in FILE_NAMES)


def test_a_truncated_gzip_file_is_named(mnist_directory: Path):
    compress(mnist_directory)
    path = mnist_directory / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(MnistError, match=r"truncated.*Copy or download") as caught:
        load_mnist(mnist_directory)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage", ["start", "middle", "checksum"])
def test_a_corrupt_gzip_file_is_named(mnist_directory: Path, damage: str):
    compress(mnist_directory)
    path = mnist_directory / f"{TRAIN_LABELS}.gz"
    packed = bytearray(path.read_bytes())
    where = {"start": slice(0, 2), "middle": slice(10, 14), "checksum": slice(-8, -4)}[damage]
    packed[where] = bytes(0xFF ^ byte for byte in packed[where])
    path.write_bytes(packed)
    with pytest.raises(MnistError, match=r"not a valid gzip file.*Copy or download") as caught:
        load_mnist(mnist_directory)
    assert str(path) in str(caught.value)


def test_an_empty_gzip_file_is_named(mnist_directory: Path):
    compress(mnist_directory)
    path = mnist_directory / f"{TEST_LABELS}.gz"
    path.write_bytes(b"")
    with pytest.raises(MnistError, match="ends inside its header") as caught:
        load_mnist(mnist_directory)
    assert str(path) in str(caught.value)


def test_labels_in_place_of_images_are_detected_by_the_magic_number(mnist_directory: Path):
    path = mnist_directory / TEST_IMAGES
    path.write_bytes((mnist_directory / TEST_LABELS).read_bytes())
    with pytest.raises(
        MnistError, match=r"not an idx file of images.*00000801, not 00000803"
    ) as caught:
        load_mnist(mnist_directory)
    assert str(path) in str(caught.value)


def test_a_truncated_plain_file_is_named_with_the_sizes(mnist_directory: Path):
    path = mnist_directory / TEST_IMAGES
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MnistError, match=r"declares 15680 bytes of shape .*15679 follow"):
        load_mnist(mnist_directory)


def test_bytes_after_the_end_are_not_ignored(mnist_directory: Path):
    path = mnist_directory / TEST_IMAGES
    path.write_bytes(path.read_bytes() + b"\0\0\0")
    with pytest.raises(MnistError, match="has 3 bytes after the 15696 that its header declares"):
        load_mnist(mnist_directory)


def test_images_of_another_size_are_named(mnist_directory: Path):
    header = struct.pack(">4I", 0x0803, 20, 14, 56)
    path = mnist_directory / TEST_IMAGES
    path.write_bytes(header + path.read_bytes()[16:])
    with pytest.raises(MnistError, match=r"of shape \(14, 56\), expected \(28, 28\)"):
        load_mnist(mnist_directory)


def test_images_and_labels_must_have_the_same_length(mnist_directory: Path):
    (mnist_directory / TRAIN_LABELS).write_bytes((mnist_directory / TEST_LABELS).read_bytes())
    with pytest.raises(MnistError, match=r"has 60 images and .* has 20 labels") as caught:
        load_mnist(mnist_directory)
    assert str(mnist_directory / TRAIN_IMAGES) in str(caught.value)
    assert str(mnist_directory / TRAIN_LABELS) in str(caught.value)


def test_a_file_without_images_is_named(mnist_directory: Path):
    (mnist_directory / TEST_IMAGES).write_bytes(struct.pack(">4I", 0x0803, 0, 28, 28))
    (mnist_directory / TEST_LABELS).write_bytes(struct.pack(">2I", 0x0801, 0))
    with pytest.raises(MnistError, match="has no images"):
        load_mnist(mnist_directory)


def test_a_label_that_is_not_a_digit_is_named(mnist_directory: Path):
    path = mnist_directory / TRAIN_LABELS
    path.write_bytes(path.read_bytes()[:-1] + bytes([10]))
    with pytest.raises(MnistError, match="has the label 10, expected 0 to 9"):
        load_mnist(mnist_directory)

"""Make the MNIST sample that ships in `gristmill.demo` from the original files.

    python scripts/make_mnist_sample.py DIR src/gristmill/_demo/mnist_sample.idx.gz

DIR contains the four idx files. The sample has the first images of each, unchanged and in order:
four idx files, one after another, in one gzip stream without a time stamp. The output is
reproducible with the same files and the same version of zlib.
"""

import argparse
import gzip
import hashlib
import io
import sys
from pathlib import Path

from gristmill._demo.idx import format_idx
from gristmill._demo.mnist import MnistError, load_mnist

MAX_BYTES = 1_900_000  # the limit for the size of the wheel


def pack(directory: Path, *, num_train: int, num_test: int) -> bytes:
    """Return the sample as the bytes of a gzip file."""
    full = load_mnist(directory)
    for flag, count, labels in (
        ("--train", num_train, full.train_labels),
        ("--test", num_test, full.test_labels),
    ):
        if not 1 <= count <= len(labels):
            raise MnistError(f"`{flag}` must be from 1 to {len(labels)}, got {count}.")
    packed = io.BytesIO()
    # gzip instead of xz: 18% larger here, but some builds of Python lack `lzma`.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as file:
        file.write(format_idx(full.train_images[:num_train]))
        file.write(format_idx(full.train_labels[:num_train]))
        file.write(format_idx(full.test_images[:num_test]))
        file.write(format_idx(full.test_labels[:num_test]))
    return packed.getvalue()


def main() -> int:
    """Write the sample and print its size and checksum."""
    parser = argparse.ArgumentParser(description="Make the MNIST sample of gristmill.")
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="the folder of the four idx files"
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="the file to write")
    parser.add_argument(
        "--train",
        type=int,
        default=9_600,
        help="the number of training images (default: %(default)s)",
    )
    parser.add_argument(
        "--test", type=int, default=2_000, help="the number of test images (default: %(default)s)"
    )
    options = parser.parse_args()
    try:
        packed = pack(options.directory, num_train=options.train, num_test=options.test)
    except (MnistError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if len(packed) > MAX_BYTES:
        sys.stderr.write(
            f"The sample has {len(packed):,} bytes, and at most {MAX_BYTES:,} are allowed. "
            "Choose fewer images with `--train` or `--test`.\n"
        )
        return 2
    options.out.write_bytes(packed)
    sys.stdout.write(
        f"{options.out}: {options.train:,} training and {options.test:,} test images, "
        f"{len(packed):,} bytes, sha256 {hashlib.sha256(packed).hexdigest()}\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

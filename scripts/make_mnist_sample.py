"""Cut the sample of MNIST that ships in `gristmill.demo` from the original files.

    python scripts/make_mnist_sample.py DIR src/gristmill/demo/mnist_sample.idx.gz

DIR holds the four idx files. The sample is the first images of each, unchanged and in order: four
idx files, one after another, in one gzip stream without a time stamp. The same files and the same
zlib give the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import sys
from pathlib import Path

from gristmill.demo import MnistError, load_mnist
from gristmill.demo._idx import format_idx

MAX_BYTES = 1_900_000  # what the sample may add to the wheel


def pack(directory: Path, *, num_train: int, num_test: int) -> bytes:
    """Give the sample as the bytes of a gzip file."""
    full = load_mnist(directory)
    for name, wanted, labels in (
        ("--train", num_train, full.train_labels),
        ("--test", num_test, full.test_labels),
    ):
        if not 1 <= wanted <= len(labels):
            raise MnistError(f"`{name}` must be from 1 to {len(labels)}, got {wanted}.")
    packed = io.BytesIO()
    # gzip rather than xz: 18% larger here, but some builds of Python come without `lzma`.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as file:
        file.write(format_idx(full.train_images[:num_train]))
        file.write(format_idx(full.train_labels[:num_train]))
        file.write(format_idx(full.test_images[:num_test]))
        file.write(format_idx(full.test_labels[:num_test]))
    return packed.getvalue()


def main() -> int:
    """Write the sample and say what it is."""
    parser = argparse.ArgumentParser(description="Cut the sample of MNIST that gristmill ships.")
    parser.add_argument("directory", metavar="DIR", type=Path, help="holds the four idx files")
    parser.add_argument("out", metavar="OUT", type=Path, help="the file to write")
    parser.add_argument("--train", type=int, default=9_600, help="training images (%(default)s)")
    parser.add_argument("--test", type=int, default=2_000, help="test images (%(default)s)")
    options = parser.parse_args()
    try:
        packed = pack(options.directory, num_train=options.train, num_test=options.test)
    except (MnistError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if len(packed) > MAX_BYTES:
        sys.stderr.write(
            f"The sample takes {len(packed):,} bytes, at most {MAX_BYTES:,} may ship. "
            "Ask for fewer images with `--train` or `--test`.\n"
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

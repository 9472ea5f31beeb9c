"""The records of the row `jpeg`. They are written once and loaded by each process."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NUM_FILES = 256
NUM_RECORDS = 16_384  # each file many times
BATCH_SIZE = 32
WIDTH, HEIGHT, CROP = 500, 400, 224  # the typical size in ImageNet; the usual crop


@dataclass(frozen=True)
class JpegSource:
    """Records that are the bytes of a file, with the number of the record as the label."""

    files: list[bytes]
    num_records: int = NUM_RECORDS

    def __len__(self) -> int:
        return self.num_records

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return self.files[index % len(self.files)], int(index)

    def __repr__(self) -> str:
        return f"JpegSource(<{len(self.files)} files>)"


def prepare(folder: Path) -> str:
    """Write the files to `folder`, and return a description of them."""
    pillow: Any = importlib.import_module(
        "benchmarks._pillow"
    )  # so that --help works without Pillow
    files = [pillow.make_jpeg(number) for number in range(NUM_FILES)]
    np.save(folder / "jpeg_sizes.npy", [len(file) for file in files])
    (folder / "jpeg_files.bin").write_bytes(b"".join(files))
    mean_kb = sum(map(len, files)) / len(files) / 1e3
    return f"{NUM_FILES} synthetic files of {WIDTH}x{HEIGHT}, {mean_kb:.0f} kB on average"


def load(folder: Path) -> JpegSource:
    """Read the files that `prepare` wrote."""
    ends = np.cumsum(np.load(folder / "jpeg_sizes.npy")).tolist()
    packed = (folder / "jpeg_files.bin").read_bytes()
    return JpegSource([packed[a:b] for a, b in zip([0, *ends], ends, strict=False)])

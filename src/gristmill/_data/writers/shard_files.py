"""Make the files of a shard durable, and recognise them when a conversion is resumed."""

import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias, cast

ShardFiles: TypeAlias = dict[str, list[int]]
"""The size and the CRC-32 of each file of a shard, by its name."""

_BUFFER_BYTES = 4 * 2**20


def seal_files(paths: Iterable[Path]) -> ShardFiles:
    """Write files to the disk, and return their sizes and checksums.

    A shard counts as complete from the moment its plan names it. After a power failure the plan
    must not name a file whose content was still in memory.
    """
    sealed: ShardFiles = {}
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sealed[path.name] = _measure(path)
    return sealed


def sync_folder(folder: Path) -> None:
    """Write the names of the files in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_intact(folder: Path, files: object) -> bool:
    """Return whether a folder has the files of a shard, with the same content as when written.

    Args:
        folder: The folder of the shards.
        files: What `seal_files` returned, as it was read from a file that anyone may have edited.
    """
    if not isinstance(files, Mapping) or not files:
        return False
    expected = cast("Mapping[str, object]", files)
    present = set(os.listdir(folder))
    try:
        return all(
            name in present and _measure(folder / name) == measured
            for name, measured in expected.items()
        )
    except OSError:
        return False


def _measure(path: Path) -> list[int]:
    """Return the size of a file and its CRC-32. A link is an error."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    size = checksum = 0
    with open(descriptor, "rb", buffering=0) as file:
        while data := file.read(_BUFFER_BYTES):
            size += len(data)
            checksum = zlib.crc32(data, checksum)
    return [size, checksum]

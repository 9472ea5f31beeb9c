"""Decide whether to trust a saved index: its owner, its bounds, and the content it is for."""

import os
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gristmill._io.byte_ranges import sample_ranges
from gristmill._io.file import File, FileRef
from gristmill.types import AnyArray

Arrays = Mapping[str, AnyArray]


def identity_of(file: File) -> str:
    """Return a string that differs for another local file of the same size and modification time.

    It has the inode, the time of the last change of the inode, which no program can set, and a
    checksum of some samples of the content. For a file in a store it is empty: the version that the
    store reports is better than that.
    """
    ref = file.ref
    if not ref.is_local:
        return ""
    found = os.stat(ref.path)
    samples = b"".join(file.read(*sample_ranges(ref.size)))
    return f"{found.st_ino} {found.st_ctime_ns} {zlib.crc32(samples)}"


def is_trusted(path: Path, ref: FileRef) -> bool:
    """Return whether a user that can write the index can also write the file itself."""
    if not ref.is_local:
        return True  # in the cache folder of this user
    index, data = os.lstat(path), os.stat(ref.path)
    is_open = bool(index.st_mode & ~data.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return index.st_uid in (os.geteuid(), 0, data.st_uid) and not is_open


def are_spans(arrays: Arrays, size: int) -> bool:
    """Return whether an index has the `starts` and `stops` of records of a file, and only these.

    They are in the order of the file and do not overlap.

    Args:
        arrays: The arrays of the index.
        size: The number of bytes of the file.
    """
    return set(arrays) == {"starts", "stops"} and is_in_order(
        arrays["starts"], arrays["stops"], size
    )


def is_in_order(starts: AnyArray, stops: AnyArray, size: int) -> bool:
    """Return whether ranges `[start, stop)` follow each other within a file of `size` bytes."""
    if not (is_of_offsets(starts) and is_of_offsets(stops) and starts.shape == stops.shape):
        return False
    is_ordered = not ((starts > stops).any() or (stops[:-1] > starts[1:]).any())
    return is_ordered and (not len(stops) or int(stops[-1]) <= size)


def is_of_offsets(array: AnyArray) -> bool:
    """Return whether an array can be offsets or counts: integers from 0 in one dimension."""
    return array.ndim == 1 and array.dtype == np.int64 and not (array < 0).any()

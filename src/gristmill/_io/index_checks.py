"""Decide whether to trust a saved index: its owner, its bounds, and the content it is for."""

import os
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gristmill._io.file import File, FileRef
from gristmill.types import AnyArray

_NUM_PROBES = 16
_PROBE_BYTES = 4096

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
    starts = sorted({ref.size * number // _NUM_PROBES for number in range(_NUM_PROBES)})
    starts.append(max(0, ref.size - _PROBE_BYTES))
    stops = [min(start + _PROBE_BYTES, ref.size) for start in starts]
    samples = b"".join(file.read(starts, stops))
    return f"{found.st_ino} {found.st_ctime_ns} {zlib.crc32(samples)}"


def is_trusted(path: Path, ref: FileRef) -> bool:
    """Return whether a user that can write the index can also write the file itself."""
    if not ref.is_local:
        return True  # in the cache folder of this user
    index, data = os.lstat(path), os.stat(ref.path)
    is_open = bool(index.st_mode & ~data.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return index.st_uid in (os.geteuid(), 0, data.st_uid) and not is_open


def are_within(arrays: Arrays, size: int) -> bool:
    """Return whether the offsets of an index lie within a file of `size` bytes."""
    if "starts" not in arrays:
        return True
    starts = arrays["starts"]
    if "stops" in arrays:
        stops = arrays["stops"]
    elif "lengths" in arrays and _are_offsets(arrays["lengths"]):
        lengths = arrays["lengths"]
        if lengths.shape != starts.shape or not _are_offsets(starts) or (lengths > size).any():
            return False
        stops = starts + lengths
    else:
        return False
    if not (_are_offsets(starts) and _are_offsets(stops) and starts.shape == stops.shape):
        return False
    if (starts > stops).any() or (stops > size).any():
        return False
    return "edges" not in arrays or _are_groups_within(arrays, len(starts))


def _are_groups_within(arrays: Arrays, count: int) -> bool:
    """Check the index of a tar file: groups of members, with names in tables of strings."""
    try:
        edges, extensions = arrays["edges"], arrays["extensions"]
        tables = [("key_names", "key_stops"), ("extension_names", "extension_stops")]
        are_tables = [_is_table(arrays[names], arrays[stops]) for names, stops in tables]
        num_extensions = len(arrays["extension_stops"])
    except (KeyError, TypeError):
        return False
    return (
        all(are_tables)
        and _are_offsets(edges)
        and _are_offsets(extensions)
        and len(extensions) == count
        and len(edges) > 0
        and int(edges[-1]) == count
        and not (np.diff(edges) < 0).any()
        and not (extensions >= num_extensions).any()
    )


def _is_table(names: AnyArray, stops: AnyArray) -> bool:
    is_bytes = names.ndim == 1 and names.dtype == np.uint8
    is_sorted = _are_offsets(stops) and not (np.diff(stops) < 0).any()
    return is_bytes and is_sorted and (not len(stops) or int(stops[-1]) <= len(names))


def _are_offsets(array: AnyArray) -> bool:
    return array.ndim == 1 and array.dtype == np.int64 and not (array < 0).any()

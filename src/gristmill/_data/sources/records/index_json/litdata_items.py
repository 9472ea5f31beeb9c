"""Read the items of LitData's chunks, compressed or not.

A chunk of compressed groups begins with a magic string instead of the number of items:

head     magic, version and flags (2 bytes each), items, items of a group, groups (4 bytes each)
offsets  4 per item, and 4 for the end of the last one, in the uncompressed items
groups   for each the first item, the number of items (4 bytes each), the offset of the compressed
         bytes in the file (8 bytes), their number, and that of the uncompressed ones (4 bytes each)
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from gristmill._base.extras import load_extra
from gristmill._data.sources.tables.chunk_cache import ChunkCache
from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill.errors import CorruptFileError
from gristmill.types import Indices

_CACHE_BYTES = 2**27
"""Memory in each process for groups that were decompressed."""

_MAX_BYTES = 2**30
"""The size limit of an item or a group, because a few bytes can expand to any size."""

_GROUPS_MAGIC = b"LDFZ01\0\0"
_HEAD = struct.Struct("<8s2H3I")
_GROUP = np.dtype(
    [("first", "<u4"), ("count", "<u4"), ("at", "<u8"), ("size", "<u4"), ("raw", "<u4")]
)


class _ItemOffsets(NamedTuple):
    """Where the items of a chunk are."""

    offsets: Indices
    groups: Any
    """An array of `_GROUP`; `None` if the items are not in groups."""


@final
class ItemFiles:
    """The stored items of some chunks, as bytes. Threads may share it.

    Args:
        files: The chunks.
        counts: The number of items in each.
        are_items_compressed: Whether each item is compressed by itself.
    """

    def __init__(
        self, files: OpenFiles, counts: Sequence[int], *, are_items_compressed: bool
    ) -> None:
        self._files = files
        self._counts = counts
        self._are_items_compressed = are_items_compressed
        self._layouts: dict[int, _ItemOffsets] = {}
        self._groups = ChunkCache[bytes](_CACHE_BYTES)

    def path_of(self, number: int) -> str:
        """Return the path of a chunk."""
        return self._files.refs[number].path

    def read(self, number: int, within: Indices) -> list[bytes]:
        """Return some items of a chunk.

        Args:
            number: The number of the chunk.
            within: The numbers of the items in it.
        """
        file = self._files[number]
        layout = self._layouts.get(number)
        if layout is None:
            layout = self._layouts[number] = _read_layout(file, self._counts[number])
        starts, stops = layout.offsets[within], layout.offsets[within + 1]
        if layout.groups is None:
            data = file.read(starts, stops)
            return list(map(_decompress, data)) if self._are_items_compressed else data
        firsts = layout.groups["first"]
        items: list[bytes] = []
        for start, stop, group in zip(
            starts.tolist(),
            stops.tolist(),
            (np.searchsorted(firsts, within, side="right") - 1).tolist(),
            strict=True,
        ):
            data = self._group(number, group, layout.groups[group])
            base = int(layout.offsets[firsts[group]])
            items.append(data[start - base : stop - base])
        return items

    def _group(self, number: int, group: int, spec: Any) -> bytes:
        def load() -> tuple[bytes, int]:
            start = int(spec["at"])
            data = self._files[number].read_one(start, start + int(spec["size"]))
            raw = _decompress(data)
            if len(raw) != spec["raw"]:
                raise ValueError("a group of items has another size than the chunk announces")
            return raw, len(raw)

        return self._groups.get(number << 32 | group, load)


def _read_layout(file: File, count: int) -> _ItemOffsets:
    """Read where the items of a chunk are."""
    size = file.ref.size
    head = file.read_one(0, min(_HEAD.size, size))
    try:
        if head.startswith(_GROUPS_MAGIC):
            return _read_groups(file, count, head)
        start, stop = 4, 4 * (count + 2)
        if stop > size or struct.unpack_from("<I", head)[0] != count:
            raise ValueError("it does not hold the items that the index announces")
        offsets = _read_offsets(file, start, stop)
        if offsets[0] < stop or offsets[-1] > size:
            raise ValueError("an item is outside of it")
        return _ItemOffsets(offsets, None)
    except (ValueError, struct.error) as error:
        raise CorruptFileError(
            f"The chunk is damaged: {error}. Copy it again.", path=file.ref.path, offset=0
        ) from None


def _read_groups(file: File, count: int, head: bytes) -> _ItemOffsets:
    _, version, _, num_items, _, num_groups = _HEAD.unpack(head)
    start = _HEAD.size + 4 * (count + 1)
    stop = start + _GROUP.itemsize * num_groups
    if version != 1 or num_items != count or not num_groups or stop > file.ref.size:
        raise ValueError("it does not hold the items that the index announces")
    offsets = _read_offsets(file, _HEAD.size, start)
    groups = np.frombuffer(file.read_one(start, stop), _GROUP)
    firsts, counts = groups["first"].astype(np.int64), groups["count"].astype(np.int64)
    ends = groups["at"].astype(float) + groups["size"]  # the offset may have all of its 64 bits
    sizes = offsets[np.minimum(firsts + counts, count)] - offsets[np.minimum(firsts, count)]
    if (
        not np.array_equal(firsts, np.cumsum(counts) - counts)
        or counts.sum() != count
        or (ends > file.ref.size).any()
        or not np.array_equal(sizes, groups["raw"])
    ):
        raise ValueError("its groups are not where they should be")
    return _ItemOffsets(offsets, groups)


def _read_offsets(file: File, start: int, stop: int) -> Indices:
    offsets = np.frombuffer(file.read_one(start, stop), "<u4").astype(np.int64)
    if (np.diff(offsets) < 0).any():
        raise ValueError("its offsets decrease")
    return offsets


def _decompress(data: bytes) -> bytes:
    """Decompress one frame of Zstandard, which states its size."""
    zstandard = load_extra("zstandard", extra="zstd", wanted_by="Reading Zstandard files")
    try:
        if not 0 <= zstandard.frame_content_size(data) <= _MAX_BYTES:
            raise ValueError("a compressed item states no size, or one above the limit of 1 GiB")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise ValueError(f"it cannot be decompressed: {error}") from None

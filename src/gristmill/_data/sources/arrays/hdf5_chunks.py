"""Decode the chunks of HDF5 datasets within the bounds that their headers announce.

libhdf5 does not compare the size of a stored chunk, or what it decompresses to, with the size that
the dataset announces. It reads the memory behind a short one, and decompresses a long one to its
end. So the chunks of common filters are decoded here, and the sizes of others are checked before
libhdf5 reads them.
"""

import itertools
import zlib
from typing import Any, final

import numpy as np

from gristmill._base.memory.aligned_alloc import mapped_empty
from gristmill.types import AnyArray

_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
"""The filters of libhdf5 that are known here. The others check what they decompress."""

_CHECKSUM_BYTES = 4


@final
class ChunkReader:
    """Reads the chunks of one dataset.

    Args:
        h5py: The module.
        dataset: A dataset that is stored in chunks.
    """

    def __init__(self, h5py: Any, dataset: Any) -> None:
        self._dataset = dataset
        kind = dataset.id.get_type()
        self._num_bytes = kind.get_size()
        for length in dataset.chunks:
            self._num_bytes *= length
        # Other types, such as those with padding, differ in memory from what is stored.
        self._is_plain = dataset.dtype.kind in "iufS" and kind.equal(
            h5py.h5t.py_create(dataset.dtype)
        )
        plan = dataset.id.get_create_plist()
        self._filters = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
        self._is_checked = bool(self._filters)

    def read(self, start: int, stop: int) -> AnyArray | None:
        """Return the items `[start, stop)`, or `None` if libhdf5 should read them.

        Raises:
            ValueError: The size of a chunk is wrong.
        """
        dataset = self._dataset
        shape, chunks = dataset.shape, dataset.chunks
        if not all(shape):
            return None
        self._check_storage()
        grid = [range(start - start % chunks[0], stop, chunks[0])]
        grid += [range(0, size, step) for size, step in zip(shape[1:], chunks[1:], strict=True)]
        out: AnyArray | None = None
        is_decoded = True
        for corner in itertools.product(*grid):
            chunk = self._decode(corner)
            if chunk is None:
                is_decoded = False
            elif is_decoded:
                if out is None:
                    out = mapped_empty((stop - start, *shape[1:]), dataset.dtype)
                first = max(start, corner[0])
                last = min(stop, corner[0] + chunks[0])
                target = (slice(first - start, last - start), *map(slice, corner[1:], shape[1:]))
                part = out[target][tuple(map(slice, (None, *chunks[1:])))]
                sizes = (last - first, *part.shape[1:])
                begin = first - corner[0]
                part[...] = chunk[(slice(begin, begin + sizes[0]), *map(slice, sizes[1:]))]
        return out if is_decoded else None

    def _check_storage(self) -> None:
        """Raise if chunks without filters, whose sizes cannot be seen one by one, are too short."""
        if not self._is_checked:
            stored = self._dataset.id.get_storage_size()
            expected = self._dataset.id.get_num_chunks() * self._num_bytes
            if stored != expected:
                raise ValueError(f"the chunks hold {stored:,} bytes instead of {expected:,}")
            self._is_checked = True

    def _decode(self, corner: tuple[int, ...]) -> AnyArray | None:
        """Return a chunk, or `None` if it is absent or can only be decoded by libhdf5."""
        try:
            mask, data = self._dataset.id.read_direct_chunk(corner)
        except Exception:  # it is absent; otherwise libhdf5 fails again, with the reason
            return None
        used = [code for number, code in enumerate(self._filters) if not mask >> number & 1]
        has_checksum = _FLETCHER32 in used
        if used[-1:] == [_FLETCHER32]:
            used.pop()
            data = data[:-_CHECKSUM_BYTES]
        if used[-1:] == [_DEFLATE]:
            used.pop()
            data = self._inflate(data)
        if not all(code in (_SHUFFLE, _FLETCHER32) for code in used):
            return None
        expected = self._num_bytes + _CHECKSUM_BYTES * (_FLETCHER32 in used)
        if len(data) != expected:
            raise ValueError(f"a chunk holds {len(data):,} bytes instead of {expected:,}")
        if has_checksum or not self._is_plain or len(used) > 1:
            return None
        dtype, chunks = self._dataset.dtype, self._dataset.chunks
        if used:
            planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
            data = np.ascontiguousarray(planes.T)
        return np.frombuffer(data, dtype).reshape(chunks)

    def _inflate(self, data: bytes) -> bytes:
        """Return what deflate has compressed, and no more than one byte more than announced."""
        decoder = zlib.decompressobj()
        return decoder.decompress(data, self._num_bytes + _CHECKSUM_BYTES + 1)

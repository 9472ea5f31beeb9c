"""A source over Zarr groups and arrays."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from gristmill._addresses import strip_credentials
from gristmill._base.extras import load_extra
from gristmill._base.memory.aligned_alloc import as_mapped
from gristmill._data.sources.arrays.chunked import (
    DEFAULT_CACHE_BYTES,
    Arrays,
    ChunkedArray,
    ChunkedSource,
    check_arrays,
    select_arrays,
)
from gristmill._data.sources.arrays.zarr_codecs import bound_codecs
from gristmill._data.sources.arrays.zarr_stores import OpenStore, find_store
from gristmill._data.sources.tables.columns import as_names
from gristmill.errors import CorruptFileError, FileError, FormatError, MissingFileError
from gristmill.options import StorageOptions
from gristmill.types import AnyArray, AnyDType

_MAX_METADATA_BYTES = 2**28
_MAX_CHUNK_BYTES = 2**30
"""What a chunk may have if the size of its items is not known."""

_MAX_EXPANSION = 8
"""How many times as large as its items a chunk may be before a codec: filters may store other
types."""


@final
class ZarrSource(ChunkedSource):
    """Random access to the arrays of a Zarr group: records are dicts of their items.

    Only the chunks that are read are loaded, and each process keeps the most recently used ones.
    In shuffled order, chunks of few records are much faster than large ones. An array in a
    subgroup is named by its path, such as `"train/image"`. If `path` is a single array, it is named
    `"array"`. A chunk that is missing has the fill value of its array, as always in Zarr.

    >>> import tempfile, zarr
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     group = zarr.open_group(folder, mode="w")
    ...     _ = group.create_array("x", data=np.arange(6).reshape(3, 2))
    ...     ZarrSource(folder)[1]
    {'x': array([2, 3])}

    Args:
        path: A folder, or its URL, which zarr and fsspec read.
        columns: The names of the arrays to read, by default all. They must have the same length.
        cache_bytes: How much memory each process uses for chunks.
        storage: How files in a store are read, but for the cache: chunks are not stored on disk.

    Raises:
        MissingFileError: If there is no such folder.
        MissingExtraError: If zarr is not installed.
        FormatError: When records are first read, if the folder is not an array or group of Zarr.
        CorruptFileError: When records are read, if a chunk is damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        storage: StorageOptions | None = None,
    ) -> None:
        load_extra("zarr", extra="zarr", wanted_by="`ZarrSource`")
        name: str = os.fspath(path)
        self._path = os.path.expanduser(name).removeprefix("file://")
        self._columns = as_names(columns)
        self._storage = storage or StorageOptions()
        if "://" not in self._path and not os.path.isdir(self._path):
            raise MissingFileError("There is no such folder. Check the path.", path=self._path)
        super().__init__(cache_bytes)

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        name = strip_credentials(self._path).rstrip("/").rpartition("/")[2]
        selected = "" if self._columns is None else f", columns={self._columns}"
        return f"ZarrSource({name!r}{selected})"

    def _open_files(self) -> list[tuple[str, Arrays]]:
        zarr: Any = load_extra("zarr", extra="zarr", wanted_by="`ZarrSource`")
        found: dict[str, ChunkedArray] = {}
        try:
            open_store = find_store(zarr, self._path, self._storage)
            opened = zarr.open(open_store(_MAX_METADATA_BYTES), mode="r")
            if isinstance(opened, zarr.Array):
                found["array"] = _as_array(zarr, opened, "array", self._path, open_store)
            else:
                for name, member in opened.members(max_depth=None):
                    if isinstance(member, zarr.Array):
                        found[name] = _as_array(zarr, member, name, self._path, open_store)
        except FileError:
            raise
        except Exception as error:  # zarr and its codecs raise many kinds
            raise FormatError(
                f"The folder cannot be opened as Zarr: {str(error).rstrip('.')}. Check the path.",
                path=self._path,
            ) from _cause(error, self._path)
        selected = select_arrays(dict(sorted(found.items())), self._columns, self._path)
        check_arrays(selected, self._path)
        return [(self._path, selected)]


@final
@dataclass(frozen=True)
class _ZarrArray:
    array: Any
    name: str
    path: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> AnyDType:
        return self.array.dtype

    @property
    def chunk_rows(self) -> int | None:
        return self.array.chunks[0] if self.array.shape else None

    def read(self, start: int, stop: int) -> AnyArray:
        try:
            return as_mapped(self.array[start:stop])
        except FileError:
            raise
        except Exception as error:  # as above
            raise CorruptFileError(
                f"The items {start:,} to {stop:,} of {self.name!r} cannot be read: "
                f"{str(error).rstrip('.')}. Copy the folder again.",
                path=self.path,
            ) from _cause(error, self.path)


def _cause(error: Exception, path: str) -> Exception | None:
    """Return an error of zarr, unless it may show the credentials of an address."""
    return None if "://" in path else error


def _as_array(zarr: Any, array: Any, name: str, path: str, open_store: OpenStore) -> _ZarrArray:
    """Return an array whose files and chunks may be no larger than its shape allows."""
    description = array.metadata.to_dict()
    codecs = [*(description.get("filters") or ()), description.get("compressor")]
    if "pickle" in [codec.get("id") for codec in codecs if codec]:  # Zarr 3 has no pickles
        raise FormatError(
            f"The array {name!r} is pickled, which is not read, because unpickling can run any "
            "code. Write it with another codec, such as `vlen-utf8`.",
            path=path,
        )

    def max_bytes(shape: tuple[int, ...]) -> int:
        if array.dtype.kind in "OT":
            return _MAX_CHUNK_BYTES
        return _MAX_EXPANSION * math.prod(shape) * array.dtype.itemsize + 2**16

    store = open_store(max_bytes(array.shards or array.chunks))
    bounded = zarr.Array.from_dict(
        zarr.storage.StorePath(store, array.path), bound_codecs(zarr, array, max_bytes)
    )
    return _ZarrArray(bounded, name, path)

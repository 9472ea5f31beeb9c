"""A source over HDF5 files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

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
from gristmill._data.sources.arrays.hdf5_chunks import ChunkReader
from gristmill._data.sources.tables.columns import as_names
from gristmill._io.file import File, describe_files
from gristmill._io.open_files import open_file
from gristmill._io.paths import Paths, find_files
from gristmill.errors import CorruptFileError, FormatError, GristmillError
from gristmill.options import StorageOptions
from gristmill.types import AnyArray, AnyDType


@final
class Hdf5Source(ChunkedSource):
    """Random access to the datasets in HDF5 files: records are dicts of their items.

    Only the chunks that are read are loaded, and each process keeps the most recently used ones.
    In shuffled order, chunks of few records are much faster than large ones. A dataset in a group
    is named by its path, such as `"train/image"`. Strings are `str`. Links to other files, and
    datasets that are stored in other files, are not followed.

    >>> import h5py, tempfile
    >>> import numpy as np
    >>> with tempfile.NamedTemporaryFile(suffix=".h5") as file:
    ...     with h5py.File(file.name, "w") as written:
    ...         written["x"] = np.arange(6).reshape(3, 2)
    ...         written["y"] = np.array([7, 8, 9])
    ...     Hdf5Source(file.name)[1]
    {'x': array([2, 3]), 'y': np.int64(8)}

    Args:
        paths: A path, a URL, a pattern with `*`, or a list of them. All files must hold the same
            datasets.
        columns: The names of the datasets to read, by default all. They must have the same length.
        cache_bytes: How much memory each process uses for chunks.
        storage: How files in a store are fetched. They are downloaded to a cache folder first.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        MissingExtraError: If h5py is not installed.
        FormatError: When records are first read, if a file is not an HDF5 file with arrays of
            records.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        storage: StorageOptions | None = None,
    ) -> None:
        load_extra("h5py", extra="hdf5", wanted_by="`Hdf5Source`")
        self._columns = as_names(columns)
        self._refs = find_files(paths, storage)
        super().__init__(cache_bytes)

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        selected = "" if self._columns is None else f", columns={self._columns}"
        return f"Hdf5Source({describe_files(self._refs)}{selected})"

    def _open_files(self) -> list[tuple[str, Arrays]]:
        return [(ref.path, _find_datasets(open_file(ref), self._columns)) for ref in self._refs]


@final
@dataclass(frozen=True)
class _Dataset:
    """A dataset of an open file."""

    dataset: Any
    file: File
    is_string: bool
    chunks: ChunkReader | None
    lock: Any
    """h5py's own lock. Its functions take it one by one, and libhdf5, which is not thread-safe,
    crashed when several threads read chunks."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dataset.shape

    @property
    def dtype(self) -> AnyDType:
        return self.dataset.dtype

    @property
    def chunk_rows(self) -> int | None:
        return None if self.dataset.chunks is None else self.dataset.chunks[0]

    def read(self, start: int, stop: int) -> AnyArray:
        self.file.check_unchanged()
        try:
            with self.lock:
                dataset = self.dataset.asstr() if self.is_string else self.dataset
                found = None if self.chunks is None else self.chunks.read(start, stop)
                items = as_mapped(dataset[start:stop]) if found is None else found
        except GristmillError:
            raise
        except Exception as error:  # h5py raises many kinds
            raise CorruptFileError(
                f"The items {start:,} to {stop:,} of {self.dataset.name!r} cannot be read: "
                f"{error}. Copy the file again.",
                path=self.file.ref.path,
            ) from error
        self.file.check_unchanged()  # again, as it may have changed during the read
        return items


def _find_datasets(file: File, columns: Sequence[str] | None) -> Arrays:
    h5py: Any = load_extra("h5py", extra="hdf5", wanted_by="`Hdf5Source`")
    path = file.ref.path
    found: dict[str, ChunkedArray] = {}
    try:
        # Not from a file object: while h5py reads one it holds a lock, for which any other thread
        # waits in which the garbage collector frees an object of h5py, also the one that downloads.
        local_path = file.local_path()

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.shape is not None:
                found[name] = _as_array(h5py, item, file)

        with _lock_of(h5py):
            h5py.File(local_path, "r").visititems(visit)
    except GristmillError:
        raise
    except Exception as error:  # as above
        raise FormatError(
            f"The file cannot be opened as HDF5: {error}. Check the path, or copy it again.",
            path=path,
        ) from error
    selected = select_arrays(found, columns, path)
    check_arrays(selected, path, file.ref.size)
    return selected


def _lock_of(h5py: Any) -> Any:
    return h5py._objects.phil  # noqa: SLF001 - there is no public name


def _as_array(h5py: Any, dataset: Any, file: File) -> ChunkedArray:
    if dataset.is_virtual or dataset.external:
        raise FormatError(
            f"The data of {dataset.name!r} are in other files. Pass those files.",
            path=file.ref.path,
        )
    kind = h5py.check_string_dtype(dataset.dtype)
    chunks = None if dataset.chunks is None else ChunkReader(h5py, dataset)
    return _Dataset(dataset, file, kind is not None and kind.length is None, chunks, _lock_of(h5py))

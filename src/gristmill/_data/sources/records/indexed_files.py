"""Files whose records are located by an index that is built on first use."""

import threading
from collections.abc import Callable, Mapping
from typing import SupportsIndex, TypeAlias, final

from gristmill._base.progress import progress
from gristmill._data.sources.record_location import RecordLocation
from gristmill._data.sources.record_locator import RecordLocator
from gristmill._io.decompress import open_decompressed
from gristmill._io.file import File, describe_files
from gristmill._io.index import load_index
from gristmill._io.index_checks import are_spans
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import Paths, find_files
from gristmill.options import StorageOptions
from gristmill.types import AnyArray

Index: TypeAlias = dict[str, AnyArray]
"""The index of a file: arrays by name."""


@final
class IndexedFiles:
    """Files of records, their indexes, and the locations of their records.

    All indexes are loaded or built on first use. A pickled copy contains the indexes that are
    loaded, so that other processes do not load them again. Compressed files are decompressed once,
    into the cache folder; all offsets are those of the decompressed bytes.

    Args:
        paths: The paths that the user passed to the source.
        storage: How files in a store are read.
        kind: The kind of index, which is part of the name and the header of its file.
        build: Builds the index of a file.
        count_by: The name of an array in the index that has one item per record.
        fits: Returns whether arrays can be an index of this kind, of a file of some size.
    """

    def __init__(
        self,
        paths: Paths,
        storage: StorageOptions | None,
        *,
        kind: str,
        build: Callable[[File], Mapping[str, AnyArray]],
        count_by: str,
        fits: Callable[[Mapping[str, AnyArray], int], bool] = are_spans,
    ) -> None:
        self.files = OpenFiles(find_files(paths, storage), open_decompressed)
        self._kind = kind
        self._build = build
        self._count_by = count_by
        self._fits = fits
        self._loaded: tuple[RecordLocator, list[Index]] | None = None
        self._lock = threading.Lock()

    @property
    def locator(self) -> RecordLocator:
        """The locations of the records in the files."""
        return self._load()[0]

    def index(self, number: int) -> Index:
        """Return the index of a file."""
        return self._load()[1][number]

    def location(self, index: SupportsIndex, start_name: str | None = None) -> RecordLocation:
        """Return where a record is stored.

        Args:
            index: The index of the record.
            start_name: The array of an index with the byte at which each record starts, if any.
        """
        number, within = self.locator.locate(index)
        offset = None if start_name is None else int(self.index(number)[start_name][within])
        return RecordLocation(self.files.refs[number].address, within, offset)

    def describe(self) -> str:
        """Return a short description of the files that does not depend on their folder."""
        return describe_files(self.files.refs)

    def _load(self) -> tuple[RecordLocator, list[Index]]:
        if self._loaded is None:
            with self._lock:  # one thread loads the indexes while the others wait
                if self._loaded is None:
                    self._loaded = self._load_all()
        return self._loaded

    def _load_all(self) -> tuple[RecordLocator, list[Index]]:
        indexes: list[Index] = []
        total = sum(ref.size for ref in self.files.refs)
        with progress("Indexing", total=total, unit="B") as advance:
            for number, ref in enumerate(self.files.refs):
                file = self.files[number]
                indexes.append(load_index(file, self._kind, self._build, self._fits))
                advance(ref.size)
        return RecordLocator([len(index[self._count_by]) for index in indexes]), indexes

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

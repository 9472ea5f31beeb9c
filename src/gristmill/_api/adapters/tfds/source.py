"""Random access source over the decoded records of a TFDS split."""

from collections.abc import Sequence
from typing import SupportsIndex, final

import numpy as np

from gristmill._api.adapters.tfds.decode import DecodedRecords, RecordDecoder
from gristmill._api.adapters.tfds.record_cache import RecordCache
from gristmill._api.adapters.tfds.records import SplitRecords
from gristmill._base.indices import as_indices, check_indices
from gristmill._base.trees.columns import Columns
from gristmill.errors import CorruptFileError
from gristmill.types import Element, Indices, Span


@final
class TfdsSource:
    """Reads the records of a split by index, in the order of its files.

    If all values have one shape and dtype, and the split takes at most 256 MB, decoded records are
    cached in memory. Each process caches the records that it reads itself.

    Args:
        records: Reads the serialized records.
        decoder: Decodes them.
        description: Names the split in checkpoints.
    """

    def __init__(self, records: SplitRecords, decoder: RecordDecoder, description: str) -> None:
        self._records = records
        self._decoder = decoder
        self._description = description
        self._reset_cache()

    def _reset_cache(self) -> None:
        self._cache = RecordCache.for_records(self._decoder.layout, len(self._records))

    @property
    def is_columnar(self) -> bool:
        """Whether records fit into columns: numbers of one shape, and strings."""
        return self._decoder.layout.is_columnar

    def read_columns(self, indices: Span) -> Columns | list[Element]:
        """Return many records as columns, or as rows if some do not match their features."""
        wanted = as_indices(indices)
        check_indices(wanted, len(self))
        if self._cache is not None and self._fill(self._cache, indices, wanted):
            return Columns.of(self._decoder.layout.build(self._cache.columns), indices)
        decoded = self._decode(wanted)
        if decoded.irregular or not self.is_columnar:
            return decoded.rows(self._decoder.layout)
        return Columns.of(self._decoder.layout.build(decoded.columns), range(len(wanted)))

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self.__getitems__([index.__index__()])[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        span = indices if isinstance(indices, range) else as_indices(indices)
        columns = self.read_columns(span)
        return columns if isinstance(columns, list) else columns.rows()

    def __repr__(self) -> str:
        return self._description

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_cache"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._reset_cache()

    def _fill(self, cache: RecordCache, indices: Span, wanted: Indices) -> bool:
        """Decode and cache missing records, and return whether all wanted records are cached."""
        if not len(cache.find_missing(wanted)):
            return True
        with cache.fill_lock:
            missing = cache.find_missing(wanted)
            if not len(missing):
                return True
            reads = missing
            if isinstance(indices, range) and indices.step > 0:
                reads = cache.add_read_ahead(missing, indices.step)
            try:
                decoded = self._decode(reads)
            except Exception:
                if len(reads) == len(missing):
                    raise
                # The damaged record may be one that was only read ahead.
                reads, decoded = missing, self._decode(missing)
            is_regular = np.ones(len(reads), np.bool_)
            is_regular[list(decoded.irregular)] = False
            cache.store(reads, decoded.columns, is_regular)
            return bool(is_regular.all()) or not len(cache.find_missing(wanted))

    def _decode(self, wanted: Indices) -> DecodedRecords:
        records = self._records.read(wanted)
        return self._decoder.decode(
            records, lambda row, error: self._make_error(int(wanted[row]), error)
        )

    def _make_error(self, index: int, error: Exception) -> Exception:
        """Return an error that names the record and the file that TFDS could not decode."""
        path, record = self._records.locate(index)
        if isinstance(error, ImportError | NotImplementedError):
            error.add_note(f"TFDS raised it for record {record:,} of {path}.")
            return error
        return CorruptFileError(
            f"TFDS could not decode the record: {type(error).__name__}: {error}\nIf it is damaged, "
            "prepare the dataset again.",
            path=path,
            record=record,
        )

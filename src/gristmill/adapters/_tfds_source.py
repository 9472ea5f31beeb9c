"""The records of a split of a TFDS dataset, decoded."""

from collections.abc import Sequence
from typing import Any, SupportsIndex, final

import numpy as np

from gristmill._columns import Columns
from gristmill._span import as_indices
from gristmill.adapters._tfds_decode import Decoded, Decoder
from gristmill.adapters._tfds_kept import KeptRecords
from gristmill.adapters._tfds_records import SplitRecords
from gristmill.errors import CorruptFileError
from gristmill.types import Element, Indices, Span


@final
class TfdsSource:
    """Random access to the records of a split, in the order of its files.

    Where all values have one shape and type and the split takes at most 256 MB, what was decoded
    is kept in memory. Each process keeps what it has read itself.
    """

    def __init__(self, records: SplitRecords, decoder: Decoder, told: str) -> None:
        self._records = records
        self._decoder = decoder
        self._told = told
        self._forget()

    def _forget(self) -> None:
        self._kept = KeptRecords.for_records(self._decoder.layout, len(self._records))

    @property
    def is_columnar(self) -> bool:
        """Whether records go into columns: numbers of one shape, and texts."""
        return self._decoder.layout.is_columnar

    def read_columns(self, indices: Span) -> Columns | list[Element]:
        """Give many records as columns, or as rows if some are not as the features promise."""
        wanted = self._checked(indices)
        if self._kept is not None and self._fill(self._kept, indices, wanted):
            return Columns.of(self._decoder.layout.build(self._kept.columns), indices)
        made = self._decode(wanted)
        if made.misfits or not self.is_columnar:
            return made.rows(self._decoder.layout)
        return Columns.of(self._decoder.layout.build(made.columns), range(len(wanted)))

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self.__getitems__([index.__index__()])[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        span = indices if isinstance(indices, range) else as_indices(indices)
        made = self.read_columns(span)
        return made if isinstance(made, list) else made.rows()

    def __repr__(self) -> str:
        return self._told

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def _checked(self, indices: Span | Sequence[int]) -> Indices:
        wanted = as_indices(indices)
        for index in (int(wanted.min()), int(wanted.max())) if len(wanted) else ():
            if not 0 <= index < len(self):
                raise IndexError(f"`index` must be in [0, {len(self)}), got {index}.")
        return wanted

    def _fill(self, kept: KeptRecords, indices: Span, wanted: Indices) -> bool:
        """Decode and keep what is missing, and tell whether all that is wanted is kept."""
        if not len(kept.missing(wanted)):
            return True
        with kept.filling:
            missing = kept.missing(wanted)
            if not len(missing):
                return True
            more = missing
            if isinstance(indices, range) and indices.step > 0:
                more = kept.worth_reading(missing, indices.step)
            try:
                made = self._decode(more)
            except Exception:
                if len(more) == len(missing):
                    raise
                more, made = missing, self._decode(missing)  # what nobody asked for may be damaged
            is_there = np.ones(len(more), np.bool_)
            is_there[list(made.misfits)] = False
            kept.keep(more, made.columns, is_there)
            return bool(is_there.all()) or not len(kept.missing(wanted))

    def _decode(self, wanted: Indices) -> Decoded:
        records = self._records.read(wanted)
        return self._decoder.decode(
            records, lambda place, error: self._explain(int(wanted[place]), error)
        )

    def _explain(self, index: int, error: Exception) -> Exception:
        """Give the error that says which record of which file TFDS could not decode."""
        path, record = self._records.place(index)
        if isinstance(error, ImportError | NotImplementedError):
            error.add_note(f"TFDS raised it for record {record:,} of {path}.")
            return error
        return CorruptFileError(
            f"TFDS could not decode the record: {type(error).__name__}: {error}\nIf it is damaged, "
            "prepare the dataset anew.",
            path=path,
            record=record,
        )

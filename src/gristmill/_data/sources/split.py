"""One part of a split of a source, as a source."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex, cast, final

from gristmill._base.indices import check_index
from gristmill._base.trees.columns import Columns, SupportsColumns
from gristmill._data.sampling.splits import SplitPart
from gristmill.types import (
    Element,
    RandomAccessDataSource,
    Span,
    SupportsCollate,
    SupportsGetItems,
)

_MAX_SHOWN = 100
"""The longest `repr` of a source that is shown as part of this one's."""


@final
class SplitSource:
    """The records of one part of a split. `gristmill.split` and `gristmill.k_fold` return them.

    It reads as its source does: many records in one call, and columns, if the source can.

    >>> from gristmill import split
    >>> train, test = split([10, 11, 12, 13], [0.75, 0.25], seed=0)
    >>> len(train), len(test)
    (3, 1)

    Args:
        source: The source that was split.
        part: The part.
    """

    def __init__(self, source: RandomAccessDataSource[Element], part: SplitPart) -> None:
        self._source = source
        self._part = part

    def __len__(self) -> int:
        return len(self._part)

    def __getitem__(self, index: SupportsIndex) -> Element:
        offset = check_index(index, len(self))
        return self._source[int(self._part.keys(range(offset, offset + 1))[0])]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Element]:
        """Return many records.

        Args:
            indices: Their indices in the part.
        """
        for index in indices:
            check_index(index, len(self))
        keys: list[int] = self._part.keys(cast(Any, indices)).tolist()
        source = self._source
        if isinstance(source, SupportsGetItems):
            return cast("SupportsGetItems[Element]", source).__getitems__(keys)
        return [source[key] for key in keys]

    def __iter__(self) -> Iterator[Element]:
        return map(self.__getitem__, range(len(self)))

    @property
    def is_columnar(self) -> bool:
        """Whether the loader reads whole columns instead of records."""
        return isinstance(self._source, SupportsColumns) and self._source.is_columnar

    def read_columns(self, indices: Span) -> Columns | list[Element]:
        """Return many records as columns.

        Args:
            indices: Their indices in the part, all of them in bounds.
        """
        return cast(SupportsColumns, self._source).read_columns(self._part.keys(indices))

    @property
    def collate(self) -> Callable[[Sequence[Element]], Element] | None:
        """The source's own function for batching its elements, if it has one."""
        return self._source.collate if isinstance(self._source, SupportsCollate) else None

    def __repr__(self) -> str:  # part of checkpoints: no data, and no addresses
        source = self._source
        shown = "" if isinstance(source, list | tuple) else repr(source)
        if not shown or " at 0x" in shown or len(shown) > _MAX_SHOWN:
            shown = type(source).__name__
        return f"SplitSource({shown}, {self._part})"

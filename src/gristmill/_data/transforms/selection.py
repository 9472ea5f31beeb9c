"""The base class for selecting elements from several datasets."""

from abc import ABC, abstractmethod


class DatasetSelectionMap(ABC):
    """Maps each index of a combined dataset to a dataset and an index in it.

    It is called in any order and in any process, so it must be deterministic.

    >>> class Alternate(DatasetSelectionMap):
    ...     def __len__(self):
    ...         return 6
    ...
    ...     def __getitem__(self, index):
    ...         return index % 2, index // 2
    >>> Alternate()[3]
    (1, 1)
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of elements of the combined dataset."""

    @abstractmethod
    def __getitem__(self, index: int) -> tuple[int, int]:
        """Return the number of a dataset, and an index in it."""

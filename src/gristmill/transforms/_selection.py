"""What users derive a choice among datasets from."""

from abc import ABC, abstractmethod


class DatasetSelectionMap(ABC):
    """Says, for each index of a combined dataset, which dataset it comes from, and from where.

    It is asked in any order and in any process, so it must always say the same.

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
        """Count the elements of the combined dataset."""

    @abstractmethod
    def __getitem__(self, index: int) -> tuple[int, int]:
        """Give the number of a dataset, and an index in it."""

"""The rows of a dataset of Hugging Face that a function of the user makes (`set_transform`)."""

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex, final

from gristmill._span import as_indices
from gristmill.adapters._hf_values import to_numpy
from gristmill.errors import SourceError
from gristmill.types import Element, Span


@final
class TransformedSource:
    """Random access to rows as HF makes them: it gives blocks of rows to the user's function."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        function = dataset.format["format_kwargs"].get("transform")
        name = getattr(function, "__qualname__", type(function).__qualname__)
        told = name.rpartition("<locals>.")[2][:80]
        self._told = f"HuggingFaceDataset(<{len(dataset)} rows>, transform={told})"

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int] | Span) -> list[Element]:
        numbers = as_indices(indices).tolist()
        for number in (min(numbers), max(numbers)) if numbers else ():
            if not 0 <= number < len(self):
                raise IndexError(f"`index` must be in [0, {len(self)}), got {number}.")
        rows: list[Any] = self._dataset.__getitems__(numbers) if numbers else []
        if len(rows) != len(numbers):
            raise SourceError(
                f"The transform of the dataset made {len(rows)} rows of {len(numbers)}. It must "
                "make one of each; use `flat_map` for more, and `filter` for less."
            )
        return [to_numpy(row) for row in rows]

    def __repr__(self) -> str:  # goes into checkpoints
        return self._told

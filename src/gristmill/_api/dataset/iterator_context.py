"""What all iterators of a pipeline share: the `_ctx` of iterators that are written for Grain."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

from gristmill._api.dataset.options import DatasetOptions
from gristmill._base.grain.mode import is_grain_mode


@final
@dataclass(frozen=True, kw_only=True)
class MultiprocessingContext:
    """The slice of a user's stream that an iterator reads: number `process_index` of them."""

    process_index: int = 0
    process_count: int = 1


@final
@dataclass(kw_only=True)
class IteratorContext:
    """The `_ctx` of an iterator. Its options are those of the pipeline when an element is read."""

    dataset_options: DatasetOptions = field(default_factory=DatasetOptions)
    mp_context: MultiprocessingContext = MultiprocessingContext()
    is_dataloader_pipeline: bool = False

    def merge(self, other: "IteratorContext") -> None:
        """Add the options of another context, with lower priority.

        Args:
            other: The context of another iterator in the same process.

        Raises:
            ValueError: It is the context of another process.
        """
        self.dataset_options = self.dataset_options.merge(other.dataset_options)
        if self.mp_context != other.mp_context:
            raise ValueError(
                "Cannot merge contexts from different worker processes: "
                f"{self.mp_context} and {other.mp_context}. Merge those of one process."
            )
        self.is_dataloader_pipeline |= other.is_dataloader_pipeline


def new_iterator_context() -> Any:
    """Return a context. It is Grain's, once that is imported, so that Grain can merge it."""
    base = None if is_grain_mode() else sys.modules.get("grain._src.python.dataset.base")
    return getattr(base, "IteratorContext", IteratorContext)()


def shared_context(iterators: Sequence[Any]) -> Any:
    """Return the merged context of some iterators, which all of them have from then on."""
    merged, *others = [iterator._ctx for iterator in iterators]  # noqa: SLF001 - as in Grain
    for other in others:
        merged.merge(other)
    below = list(iterators[1:])
    while below:
        iterator = below.pop()
        iterator._ctx = merged  # noqa: SLF001 - as above
        below.extend(iterator._parents)  # noqa: SLF001 - as above
    return merged

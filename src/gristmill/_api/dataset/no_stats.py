"""What Grain's base classes offer subclasses for statistics, as calls that do nothing.

Grain's own steps use the same names of the datasets and iterators below them, in programs in which
a dataset of gristmill is passed to a function or class that is written for Grain.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, TypeVar, final

T = TypeVar("T")

_NO_TIMER: AbstractContextManager[None] = nullcontext()


@final
class _NoConfig:
    """The `_config` of `NoStats`, which the statistics of a step of Grain read."""

    iter_weakref: ClassVar[None] = None


@final
class NoStats:
    """The `_stats` of a dataset or iterator: users' classes for Grain report to it.

    gristmill measures each step itself, so these calls return their arguments.
    """

    output_spec: ClassVar[None] = None
    _config: ClassVar[_NoConfig] = _NoConfig()
    _is_output: ClassVar[bool] = False  # read by Grain's decorator of `__next__`

    def record_self_time(
        self, *, num_elements: int = 1, offset_ns: float = 0
    ) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        del num_elements, offset_ns
        return _NO_TIMER

    def record_output_spec(self, element: T) -> T:
        """Return the element."""
        return element

    def record_output_spec_for_batch(self, elements: Sequence[T]) -> Sequence[T]:
        """Return the elements."""
        return elements

    def record_bytes_consumed(self, element: T) -> T:
        """Return the element."""
        return element

    def record_bytes_produced(self, element: T) -> T:
        """Return the element."""
        return element

    def report(self) -> None:
        """Do nothing."""


NO_STATS = NoStats()


class SupportsStats:
    """Base of datasets and iterators, with the names that subclasses written for Grain use."""

    _stats: Any = NO_STATS

    def _initialize_stats(self, execution_tracking_mode: object = None) -> Any:
        """Return `_stats`. Grain calls it to start measuring."""
        del execution_tracking_mode
        return self._stats

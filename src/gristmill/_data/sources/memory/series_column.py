"""A column of a frame whose values are taken as Python objects."""

from collections.abc import Callable
from typing import Any, final

from gristmill.types import Element, Span


@final
class SeriesColumn:
    """A column of any values. Those that are null are `None`."""

    def __init__(
        self, series: Any, take: Callable[[Any, Any], list[Element]], dtype: object
    ) -> None:
        self._series = series
        self._take = take
        self.dtype = dtype

    def take(self, indices: Span) -> list[Element]:
        """Return the values at some indices."""
        return self._take(self._series, indices)

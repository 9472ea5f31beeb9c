"""The records of a file that is read from front to back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final

from gristmill._plan.nodes.stream import StatefulNode
from gristmill.types import Element

Records: TypeAlias = tuple[Sequence[Element], Callable[[int], Any]]
"""Some records, and a function that tells the place after the first so many of them."""


class RecordStream(Protocol):
    """Records from front to back, from any place on; a place is a few integers."""

    @property
    def start(self) -> Any:
        """The place before the first record."""
        ...

    def read_from(self, place: Any, /) -> Iterator[Records]:
        """Give the records from a place on, some at a time."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class RecordStreamNode(StatefulNode):
    """The records of a stream."""

    stream: RecordStream

    @property
    def label(self) -> str:
        return repr(self.stream)

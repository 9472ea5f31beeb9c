"""Adapts an iterable of another library to a stream that can be stopped and resumed."""

import copy
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, final, runtime_checkable

from gristmill.errors import StateError
from gristmill.types import Element

Item = TypeVar("Item")

Position: TypeAlias = list[str | int | None]
"""A position in an iterable: a state of it as JSON or None, and the number of items after it."""

_MAX_CHUNK_ITEMS, _MAX_CHUNK_SECONDS = 256, 0.01
"""Items are read in chunks of at most this many, and for at most about this long."""


@runtime_checkable
class SupportsStateDict(Protocol):
    """An iterable that can save the position of its last iterator and restore the next one."""

    def __iter__(self) -> Iterator[Element]: ...

    def state_dict(self) -> dict[str, object]: ...

    def load_state_dict(self, state: dict[str, object], /) -> None: ...


@final
class IterableStream(Generic[Item]):
    """Reads the items of an iterable from any position.

    If the iterable has `state_dict` and `load_state_dict`, its state is saved after each chunk,
    and resuming reads few items again. If not, resuming reads and discards all items up to the
    position.

    Args:
        iterable: The iterable. One that has a state is copied for each iterator, so that iterators
            do not change each other's position.
        convert: Converts an item to an element.
        description: Names the iterable in error messages and in checkpoints, so it must be the
            same in each run.
        collate: Makes a batch of a list of elements, in place of the default.
    """

    def __init__(
        self,
        iterable: Iterable[Item],
        *,
        convert: Callable[[Item], Element],
        description: str,
        collate: Callable[[Sequence[Element]], Element] | None = None,
    ) -> None:
        self._iterable = iterable
        self._convert = convert
        self._description = description
        self.collate = collate

    @property
    def start(self) -> Position:
        """The position before the first item."""
        return [None, 0]

    def read_from(
        self, position: Sequence[Any], /
    ) -> Iterator[tuple[list[Element], Callable[[int], Position]]]:
        """Yield the elements after a position in chunks.

        Each chunk comes with a function that returns the position after its first `n` elements.
        An error of the iterable is raised after the elements before it.
        """
        state, num_skipped = position
        iterable, items = self._open(state, num_skipped)
        has_ended = False
        while not has_ended:
            elements: list[Element] = []
            error: Exception | SystemExit | None = None
            deadline = time.perf_counter() + _MAX_CHUNK_SECONDS
            try:
                while len(elements) < _MAX_CHUNK_ITEMS and time.perf_counter() < deadline:
                    elements.append(self._convert(next(items)))
            except StopIteration:
                has_ended = True
            except (Exception, SystemExit) as raised:
                error = raised
            if elements:
                yield elements, _position_after(state, num_skipped)
            if error is not None:
                raise error
            num_skipped += len(elements)
            if isinstance(iterable, SupportsStateDict) and not has_ended:
                state, num_skipped = _to_json(iterable.state_dict(), self._description), 0

    def _open(self, state: str | None, num_skipped: int) -> tuple[Iterable[Item], Iterator[Item]]:
        """Return the iterable, or a copy of it, and an iterator that starts at the position."""
        iterable = self._iterable
        if isinstance(iterable, SupportsStateDict):
            iterable = copy.deepcopy(iterable)
            if state is not None:
                iterable.load_state_dict(json.loads(state))
        elif state is not None:
            raise StateError(
                f"The state was saved when {self._description} had a `state_dict`, and it has none "
                "now. Resume with the dataset that the state was saved with."
            )
        items = iter(iterable)
        if sum(1 for _ in islice(items, num_skipped)) < num_skipped:
            raise StateError(
                f"The state is after item {num_skipped:,} of {self._description}, which has fewer "
                "items. Resume with the dataset that the state was saved with."
            )
        return iterable, items

    def __repr__(self) -> str:
        return self._description


def _position_after(state: str | None, num_skipped: int) -> Callable[[int], Position]:
    return lambda count: [state, num_skipped + count]


def _to_json(state: dict[str, object], description: str) -> str:
    """Serialize a state to a JSON string, so that its keys do not matter to the checkpoint."""
    try:
        return json.dumps(state)
    except (TypeError, ValueError) as error:
        raise StateError(
            f"The `state_dict` of {description} cannot be serialized as JSON: {error}. Let it "
            "return only numbers, strings, lists and dicts."
        ) from None

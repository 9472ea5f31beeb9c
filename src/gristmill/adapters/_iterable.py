"""Another library's iterable as a stream that can be stopped and gone on with."""

import copy
import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, final, runtime_checkable

from gristmill.errors import StateError
from gristmill.types import Element

_MOST, _SECONDS = 256, 0.01
"""Items are taken up to so many or for so long in one go."""


@runtime_checkable
class SupportsStateDict(Protocol):
    """An iterable that can tell where its last iterator stands, and have the next go on there."""

    def __iter__(self) -> Iterator[Any]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


@final
class IterableStream:
    """The items of an iterable; a place is a state of it, and how many came after that.

    Where the iterable has `state_dict`, its state is asked for now and then, and going on takes few
    items anew. Where it has not, going on takes all items anew, up to the place.

    Args:
        iterable: What is iterated over; each time a copy of it, if it keeps a state.
        convert: What makes an element of an item.
        told: What it is, for people and for checkpoints.
        collate: How its elements are batched, if in a way of their own.
    """

    def __init__(
        self,
        iterable: Any,
        *,
        convert: Callable[[Any], Element],
        told: str,
        collate: Callable[[Sequence[Element]], Element] | None = None,
    ) -> None:
        self._iterable = iterable
        self._convert = convert
        self._told = told
        self.collate = collate

    @property
    def start(self) -> list[Any]:
        """The beginning."""
        return [None, 0]

    def read_from(
        self, place: Sequence[Any]
    ) -> Iterator[tuple[list[Element], Callable[[int], Any]]]:
        """Give the items from a place on."""
        state, skipped = place
        iterable, items = self._open(state, skipped)
        has_ended = False
        while not has_ended:
            rows: list[Element] = []
            error: Exception | None = None
            until = time.perf_counter() + _SECONDS
            try:
                while len(rows) < _MOST and time.perf_counter() < until:
                    rows.append(self._convert(next(items)))
            except StopIteration:
                has_ended = True
            except Exception as raised:
                error = raised
            if rows:
                yield rows, _places(state, skipped)
            if error is not None:
                raise error
            skipped += len(rows)
            if isinstance(iterable, SupportsStateDict) and not has_ended:
                state, skipped = _written(iterable.state_dict(), self._told), 0

    def _open(self, state: str | None, skipped: int) -> tuple[Any, Iterator[Any]]:
        """Begin at a place."""
        iterable: Any = self._iterable
        if isinstance(iterable, SupportsStateDict):
            iterable = copy.deepcopy(iterable)
            if state is not None:
                iterable.load_state_dict(json.loads(state))
        elif state is not None:
            raise StateError(
                f"The state tells of {self._told} with a `state_dict`, which it has no more."
            )
        items: Iterator[Any] = iter(iterable)
        if sum(1 for _ in islice(items, skipped)) < skipped:
            raise StateError(
                f"The state is after item {skipped:,} of {self._told}, which has ended before. "
                "Go on with the dataset that the state was made with."
            )
        return iterable, items

    def __repr__(self) -> str:
        return self._told


def _places(state: str | None, skipped: int) -> Callable[[int], list[Any]]:
    return lambda count: [state, skipped + count]


def _written(state: dict[str, Any], told: str) -> str:
    """Give a state as JSON in a text, whatever its keys are."""
    try:
        return json.dumps(state)
    except (TypeError, ValueError) as error:
        raise StateError(
            f"The `state_dict` of {told} cannot be written as JSON: {error}. Let it hold numbers, "
            "texts, lists and dicts alone."
        ) from None

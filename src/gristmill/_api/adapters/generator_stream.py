"""Reads what a user's function yields, as a stream that can be stopped and resumed."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, cast, final, runtime_checkable

from gristmill._api.adapters.iterable import IterableStream, Position
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element


@runtime_checkable
class SupportsGetState(Protocol):
    """An iterator that knows its position."""

    def __next__(self) -> Element: ...

    def get_state(self) -> Any: ...

    def set_state(self, state: Any, /) -> None: ...


@final
class GeneratorStream:
    """The elements of the iterables that a function returns.

    Args:
        factory: Returns a new iterable for each iterator.
        name: The name of the function, which is part of checkpoints.
    """

    def __init__(self, factory: Callable[[], Iterable[Element]], name: str) -> None:
        self._factory = factory
        self._name = name
        self._has_yielded = False

    @property
    def start(self) -> Position:
        """The position before the first element."""
        return [None, 0]

    def read_from(
        self, position: Sequence[Any], /
    ) -> Iterator[tuple[list[Element], Callable[[int], Position]]]:
        """Yield the elements after a position, some at a time."""
        made: Any = self._factory()
        if not isinstance(made, Iterable):
            raise PlanTypeError(
                f"`factory` must return an iterable, got {type(made).__name__} from {self._name}."
            )
        items = iter(cast("Iterable[Element]", made))
        if inspect.isgenerator(items) and inspect.getgeneratorstate(items) != "GEN_CREATED":
            self._check_is_new(items)  # some of it was read, or the function has read its header
        iterable: Iterable[Element] = (
            _StatefulIteratorItems(items)
            if isinstance(items, SupportsGetState)
            else _IteratorItems(items)
        )
        stream = IterableStream(iterable, convert=_return_unchanged, description=self._name)
        is_empty = True
        for chunk in stream.read_from(position):
            is_empty, self._has_yielded = False, True
            yield chunk
        if is_empty and position == self.start:
            self._check_is_new(items)

    def _check_is_new(self, items: Iterator[Element]) -> None:
        """Raise if the function returns one iterator again and again, from which elements came.

        An object that begins again at each `iter()` may be returned again. So this is only called
        where an iterator has not begun at its start.
        """
        if self._has_yielded and cast("object", self._factory()) is items:
            raise PlanError(
                f"`factory` must return a new iterable each time, but {self._name} returned one "
                f"{type(items).__name__} again, whose elements were read before. Make the iterator "
                "in the function:\n"
                "    items = read(path); from_generator(lambda: items)   # can be read once\n"
                "    from_generator(lambda: read(path))"
            )

    def workers_error(self) -> PlanError:
        """Return why workers cannot read the elements."""
        return PlanError(
            f"{self!r} is read in order, in this process, so worker processes cannot compute its "
            "elements. Remove `mp_prefetch`; or write a source with `__len__` and `__getitem__`, "
            "which workers can read."
        )

    def __repr__(self) -> str:
        return f"from_generator({self._name})"


def _return_unchanged(item: Element) -> Element:
    return item


@final
class _IteratorItems:
    """An iterable over one iterator."""

    def __init__(self, items: Iterator[Element]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Element]:
        return self._items


@final
class _StatefulIteratorItems:
    """An iterable over one iterator that knows its position."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __deepcopy__(self, memo: object) -> "_StatefulIteratorItems":
        return self  # made for one reader, which need not copy it

    def state_dict(self) -> dict[str, object]:
        return {"state": self._items.get_state()}

    def load_state_dict(self, state: dict[str, object], /) -> None:
        self._items.set_state(state["state"])

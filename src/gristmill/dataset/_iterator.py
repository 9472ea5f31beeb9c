"""Iterators of datasets: streams that can tell where they stand, and go on from there."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast, final

from gristmill.checkpoint import Position
from gristmill.errors import StateError
from gristmill.execute import Settings, Stream
from gristmill.observe import Stats
from gristmill.options import MultiprocessingOptions, ReadOptions, WorkerOptions
from gristmill.plan import Node, limits_of

T = TypeVar("T")

VERSION = 1


class DatasetIterator(Iterator[T], ABC, Generic[T]):
    """The elements of a dataset one after the other.

    Users derive their own: `__next__`, `get_state` and `set_state`, where a state is a dict that
    can be written as JSON. `parents` are the iterators it takes elements from.
    """

    _parents: tuple["DatasetIterator[Any]", ...] = ()

    def __init__(
        self, parents: "DatasetIterator[Any] | Sequence[DatasetIterator[Any]]" = ()
    ) -> None:
        self._parents = (parents,) if isinstance(parents, DatasetIterator) else tuple(parents)

    @property
    def _parent(self) -> "DatasetIterator[Any]":
        (parent,) = self._parents
        return parent

    def __iter__(self) -> "DatasetIterator[T]":
        return self

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Give the place after the last element that was handed out."""

    @abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a place."""

    def start_prefetch(self) -> None:
        """Begin to make elements before they are asked for, where anything runs ahead."""
        for parent in self._parents:
            parent.start_prefetch()

    def close(self) -> None:
        """End what runs in the background. The state can still be read."""
        for parent in self._parents:
            parent.close()

    def __enter__(self) -> "DatasetIterator[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class StreamIterator(DatasetIterator[T]):
    """The iterator of a plan."""

    def __init__(self, plan: Node) -> None:
        super().__init__()
        self._plan = plan
        self._stream = Stream(plan, replace(_SETTINGS, limits=limits_of(plan)))

    def __next__(self) -> T:
        return next(self._stream)

    def get_state(self) -> dict[str, Any]:
        return {"gristmill": VERSION, "cursor": _as_json(self._stream.cursor)}

    def set_state(self, state: dict[str, Any]) -> None:
        given: Any = state
        if not isinstance(given, dict) or "cursor" not in given:
            raise StateError(
                f"The state is not one of a gristmill dataset: {state!r:.200}. Pass what "
                "`get_state` gave."
            )
        try:
            self._stream.seek(Position(tuple(state["cursor"])))
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise StateError(
                "The state does not fit this pipeline. Restore it into one like the one it was "
                "taken from, or start anew."
            ) from error

    @property
    def cursor(self) -> tuple[Any, ...]:
        """Where the stream stands."""
        return self._stream.cursor

    @property
    def plan(self) -> Node:
        """What it runs."""
        return self._plan

    def go_to(self, cursor: tuple[Any, ...]) -> None:
        """Go on from a cursor."""
        self._stream.seek(Position(cursor))

    def start_prefetch(self) -> None:
        self._stream.start()

    def close(self) -> None:
        self._stream.close()

    def stats(self) -> Stats:
        """Give what this iterator has done so far."""
        return self._stream.counters.stats()

    def __repr__(self) -> str:
        return f"DatasetIterator({self._plan.label})"


_SETTINGS = Settings(
    read=ReadOptions(),
    multiprocessing=MultiprocessingOptions(),
    worker=WorkerOptions(),
    is_tuned=False,
)


def _as_json(value: Any) -> Any:
    """Give a state as JSON would bring it back, so that it is the same before and after."""
    if isinstance(value, NotImplementedError):  # by an iterator of the user's that has none
        raise NotImplementedError(*value.args)  # another one: that one would hold its frames
    if isinstance(value, tuple | list):
        return [_as_json(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in cast("dict[Any, Any]", value).items()}
    return value

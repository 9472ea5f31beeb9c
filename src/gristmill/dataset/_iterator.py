"""Iterators of datasets: streams that can tell where they stand, and go on from there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar, final

from gristmill.checkpoint import Position, Saved
from gristmill.execute import Run, Settings, with_outer_workers
from gristmill.observe import Stats
from gristmill.options import MultiprocessingOptions, ReadOptions, WorkerOptions
from gristmill.plan import Node, describe, limits_of

T = TypeVar("T")


class DatasetIterator(Saved, Iterator[T], ABC, Generic[T]):
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

    def __init__(
        self, plan: Node, *, words: Mapping[str, Any] | None = None, is_lockstep: bool = False
    ) -> None:
        """Run a plan; `words` are what its states belong to, if not what the plan says."""
        super().__init__()
        self._plan = plan
        self._run = Run(
            plan,
            replace(with_outer_workers(_SETTINGS), limits=limits_of(plan)),
            describe(plan) if words is None else words,
            is_lockstep=is_lockstep,
        )

    def __next__(self) -> T:
        return next(self._run.stream)

    def get_state(self) -> dict[str, Any]:
        return self._run.state

    def bookmark(self) -> Callable[[], dict[str, Any]]:
        """Note where it stands; what is called later gives that state."""
        return self._run.bookmark()

    def set_state(self, state: dict[str, Any]) -> None:
        self._run.restore(state)

    @property
    def cursor(self) -> tuple[Any, ...]:
        """Where the stream stands."""
        return self._run.stream.cursor

    @property
    def plan(self) -> Node:
        """What it runs."""
        return self._plan

    def go_to(self, cursor: tuple[Any, ...]) -> None:
        """Go on from a cursor."""
        self._run.stream.seek(Position(cursor))

    def start_prefetch(self) -> None:
        self._run.stream.start()

    def close(self) -> None:
        self._run.stream.close()

    def stats(self) -> Stats:
        """Give what this iterator has done so far."""
        return self._run.stream.counters.stats()

    def __repr__(self) -> str:
        return f"DatasetIterator({self._plan.label})"


_SETTINGS = Settings(
    read=ReadOptions(),
    multiprocessing=MultiprocessingOptions(),
    worker=WorkerOptions(),
    is_tuned=False,
)

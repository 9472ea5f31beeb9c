"""Iterators over datasets, which can save and restore their position."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, Self, TypeAlias, TypeVar, final

from gristmill._api.dataset.no_stats import IteratorContext, SupportsStats
from gristmill._base.checks import as_int
from gristmill._base.grain_classes import is_from_grain
from gristmill._checkpoint.array_state import as_returned
from gristmill._checkpoint.checkpointable import OrbaxCheckpointable
from gristmill._checkpoint.state import Position
from gristmill._engine.executors.processes.pool_keeper import PoolKeeper
from gristmill._engine.run import Run
from gristmill._engine.settings import Settings
from gristmill._metrics.stats import Stats
from gristmill._plan.describe import describe
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.hints import limits_of
from gristmill.errors import ClosedError
from gristmill.options import MultiprocessingOptions, ReadOptions, WorkerOptions

T_co = TypeVar("T_co", covariant=True)

IteratorState: TypeAlias = dict[str, Any]
"""A state of a dataset iterator: a dict that can be written as JSON."""


class DatasetIterator(OrbaxCheckpointable, SupportsStats, Iterator[T_co], ABC, Generic[T_co]):
    """An iterator over the elements of a dataset, which can save and restore its position.

    `iter(dataset)` returns one. A state is small, does not contain elements, and does not depend on
    threads, workers or prefetching. Use an iterator in one thread only. Use it as a context
    manager, or call `close`, to stop its background work early.

    Subclass it for a dataset of your own, with `__next__`, `get_state` and `set_state`.

    >>> from gristmill import MapDataset
    >>> ds = MapDataset.range(10).shuffle(seed=0).batch(2)
    >>> with iter(ds) as iterator:
    ...     first = next(iterator)
    ...     state = iterator.get_state()
    ...     second = next(iterator)
    ...     iterator.set_state(state)
    ...     bool((next(iterator) == second).all())
    True

    Args:
        parents: The iterators that this one takes elements from. `start_prefetch` and `close` are
            passed on to them. Under `mp_prefetch`, they compute in worker processes.
    """

    _grain_class = "DatasetIterator"
    _parents: tuple["DatasetIterator[Any]", ...] = ()
    _closed = False

    def __init__(
        self, parents: "DatasetIterator[Any] | Sequence[DatasetIterator[Any]]" = ()
    ) -> None:
        is_single = isinstance(parents, DatasetIterator) or is_from_grain(
            parents, "DatasetIterator"
        )
        several: Any = (parents,) if is_single else parents
        self._parents = tuple(several)

    @property
    def _parent(self) -> "DatasetIterator[Any]":
        """The only parent. Named as in Grain, for iterators that users define."""
        (parent,) = self._parents
        return parent

    @cached_property
    def _ctx(self) -> IteratorContext:
        """What all iterators of a pipeline share. Named as in Grain, like the method below."""
        parents = self._parents
        return parents[0]._ctx if parents else IteratorContext()  # noqa: SLF001 - the same class

    def _assert_not_closed(self) -> None:
        if self._closed:
            raise ClosedError("The iterator was closed. Make a new one from the dataset.")

    def __iter__(self) -> Self:
        return self

    @abstractmethod
    def get_state(self) -> IteratorState:
        """Return the position after the last element that `__next__` returned.

        Prefetched elements are not part of it.

        Returns:
            A dict that can be written as JSON.
        """

    @abstractmethod
    def set_state(self, state: IteratorState) -> None:
        """Continue from a position.

        Args:
            state: A result of `get_state`, of this or another iterator over an equal dataset.
        """

    def start_prefetch(self) -> None:
        """Start to compute elements in the background, before the first `next`."""
        for parent in self._parents:
            parent.start_prefetch()

    def _use_workers(self, options: MultiprocessingOptions, worker: WorkerOptions) -> None:
        """Compute what the parents yield in worker processes, from the current position on."""
        for parent in self._parents:
            if not is_from_grain(parent, "DatasetIterator"):
                parent._use_workers(options, worker)  # noqa: SLF001 - the same class

    def close(self) -> None:
        """Stop all background work. `get_state` still works, `next` does not."""
        self._closed = True
        for parent in self._parents:
            parent.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class StreamIterator(DatasetIterator[T_co]):
    """The iterator that runs a plan."""

    def __init__(
        self,
        plan: Node,
        pools: PoolKeeper,
        *,
        description: Mapping[str, Any] | None = None,
        is_lockstep: bool = False,
    ) -> None:
        """Run `plan`.

        Args:
            plan: The plan.
            pools: Keeps the worker processes of the dataset between its iterators.
            description: The pipeline that states of this iterator belong to. By default that of
                `plan`.
            is_lockstep: Whether all shards are always at the same position.
        """
        super().__init__()
        self._plan_node: Node = plan
        self._description = describe(plan) if description is None else description
        self._is_lockstep = is_lockstep
        self._settings = replace(_SETTINGS, limits=limits_of(plan), pools=pools)
        self._run = self._open_run(self._settings)

    def _open_run(self, settings: Settings) -> Run:
        return Run(self._plan_node, settings, self._description, is_lockstep=self._is_lockstep)

    def __next__(self) -> T_co:
        return next(self._run.stream)

    def get_state(self) -> IteratorState:
        return as_returned(self._run.state)

    def _capture_state(self) -> Callable[[], IteratorState]:
        """Record the position, and return a function that returns its state when called later.

        Recording costs less than `get_state`, and the iterator may advance in between.
        """
        state = self._run.bookmark()
        return lambda: as_returned(state())

    def set_state(self, state: IteratorState) -> None:
        self._run.restore(state)

    def _get_next_index(self) -> int:
        """Return the index of the next element. Named as in Grain, like the method below."""
        return self._plan_node.index_at(self._run.stream.cursor)

    def _set_next_index(self, index: int) -> None:
        """Continue with the element `index`."""
        cursor = self._plan_node.cursor_at(as_int("index", index))
        self._run.stream.seek(Position(cursor))

    def start_prefetch(self) -> None:
        self._run.stream.start()

    def _use_workers(self, options: MultiprocessingOptions, worker: WorkerOptions) -> None:
        run = self._open_run(replace(self._settings, multiprocessing=options, worker=worker))
        try:
            state = self._run.state
            if state != run.state:
                run.restore(state)
        except NotImplementedError:  # an iterator of the user's below this one has no states
            run.stream.close()
            return
        self._run.stream.close()
        self._run = run

    def close(self) -> None:
        self._run.stream.close()

    def stats(self) -> Stats:
        """Return what this iterator has done so far."""
        return self._run.stream.counters.stats()

    def __repr__(self) -> str:
        return f"DatasetIterator({self._plan_node.label})"


_SETTINGS = Settings(
    read=ReadOptions(),
    multiprocessing=MultiprocessingOptions(),
    worker=WorkerOptions(),
    is_tuned=False,
)

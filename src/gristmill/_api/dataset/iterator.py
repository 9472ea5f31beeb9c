"""Iterators over datasets, which can save and restore their position."""

import importlib
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, final

from gristmill._api.dataset.no_stats import SupportsStats
from gristmill._api.excluded import ToExclude, exclude_records
from gristmill._api.ledgers.open_ledger import open_ledger
from gristmill._api.monitoring.explain import explain_iterator
from gristmill._api.monitoring.report import ReportedRun, settings_table
from gristmill._api.monitoring.trace import timelines_of
from gristmill._api.monitoring.watched import watch_if_requested
from gristmill._api.step_bookmarks import StepBookmarks
from gristmill._base.checks import as_int
from gristmill._base.grain.classes import is_from_grain
from gristmill._base.grain.context import update_context
from gristmill._base.threads.resumable_puller import take
from gristmill._checkpoint.array_state import as_returned
from gristmill._checkpoint.checkpointable import OrbaxCheckpointable
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._checkpoint.state import Position
from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._engine.provenance.origin import Provenance
from gristmill._engine.run import Run
from gristmill._engine.settings import Settings
from gristmill._engine.stream import CountBlock
from gristmill._metrics.stats import Stats, add_stats, show_html
from gristmill._metrics.timeline import Timeline
from gristmill._plan.describe import describe
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.hints import all_nodes, limits_of, options_of, skip_errors_of
from gristmill._plan.nodes.steps import BatchNode
from gristmill._plan.steps_of_records import may_lack_elements, no_element_at
from gristmill._plan.traverse import labels_of, missing_batch, shorten_steps
from gristmill.errors import ClosedError, GristmillWarning, PlanError, ProvenanceError
from gristmill.options import MultiprocessingOptions, ReadOptions, WorkerOptions

if TYPE_CHECKING:
    from gristmill._api.ledgers.keeper import LedgerKeeper
    from gristmill._metrics.explanation import Explanation

T_co = TypeVar("T_co", covariant=True)

IteratorState: TypeAlias = dict[str, Any]
"""A state of a dataset iterator: a dict that can be written as JSON."""


class DatasetIterator(
    OrbaxCheckpointable, SupportsStats, ReportedRun, Iterator[T_co], ABC, Generic[T_co]
):
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
    skipped: Sequence[SkippedRecord] = ()
    """The elements skipped so far because they raised, with `on_error=SkipErrors(budget)`."""
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
    def _ctx(self) -> Any:
        """What all iterators of a pipeline share. Named as in Grain, like the method below."""
        contexts = _load_contexts()
        parents = self._parents
        return contexts.shared_context(parents) if parents else contexts.new_iterator_context()

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

    def provenance(self) -> Provenance:
        """Return the records that the last element was made of, row by row.

        They are found by running the pipeline again for that element: records are read and
        transformed only where a filter, a flat map, a missing element or packing depends on their
        values. Nothing is recorded while iterating.

        Raises:
            ProvenanceError: No element was taken yet, or a step does not keep track of records.
        """
        raise ProvenanceError(
            f"{type(self).__name__} does not keep track of records. Call `provenance` of an "
            "iterator over the dataset below it."
        )

    def keep_ledger(self, folder: str | os.PathLike[str], *, step: int | None = None) -> None:
        """Write a line to a file for each element from now on: its step and checksums.

        The file is `shard_I-of-N.jsonl` in the folder, so that all shards of a run share the
        folder. `gristmill diff` compares two runs, `gristmill replay --ledger` checks that each
        element is computed bit for bit as it was, and `gristmill audit` that each record came as
        often as it should. A run that is restored continues the file: its steps replace those that
        come after them. If a line cannot be written, there is a warning and the ledger ends.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from gristmill import MapDataset
        >>> folder = tempfile.mkdtemp()
        >>> with iter(MapDataset.range(6).batch(2)) as iterator:
        ...     iterator.keep_ledger(folder)
        ...     batches = list(iterator)
        >>> len(Path(folder, "shard_0-of-1.jsonl").read_text().splitlines())
        4

        Args:
            folder: The folder of the run. It is created if it does not exist.
            step: The number of the next step. By default it follows from the position or from the
                lines in the file, where the state that was restored is found.

        Raises:
            FormatError: The file in the folder is not a ledger.
            PlanError: The number of the next step is not known.
        """
        raise PlanError(
            f"{type(self).__name__} does not keep track of steps. Keep the ledger of an iterator "
            "over the dataset below it."
        )

    def exclude(self, *, records: ToExclude = (), steps: Iterable[int] = ()) -> None:
        """Leave records out, starting at the current position: they are not read again.

        Elements that were taken stay as they were, and the other records keep their order. Later
        batches move up, so that they are full; packing continues without the records. They are
        part of the state, and continue to be left out after a restore, also on another number of
        shards; each shard must exclude the same records.

        >>> from gristmill import MapDataset
        >>> iterator = iter(MapDataset.range(10).to_iter_dataset().batch(3))
        >>> next(iterator)
        array([0, 1, 2])
        >>> iterator.exclude(records=[1, 4, 6])
        >>> [batch.tolist() for batch in iterator]
        [[3, 5, 7], [8, 9]]

        Args:
            records: The records: the origins that `provenance().records` contains, pairs of the
                number of a source and an index, or the indices in the only source.
            steps: All records of these elements of this dataset, counted from 0.

        Raises:
            IndexError: There is no such record or step.
            PlanError: A step has elements at fixed indices, such as `MapDataset.batch`, or holds a
                record already: a window, or packing.
        """
        raise PlanError(
            f"{type(self).__name__} does not keep track of records. Call `exclude` of an iterator "
            "over the dataset below it."
        )

    def start_prefetch(self) -> None:
        """Start to compute elements in the background, before the first `next`."""
        for parent in self._parents:
            parent.start_prefetch()

    def _use_workers(self, options: MultiprocessingOptions, worker: WorkerOptions) -> None:
        """Compute what the parents yield in worker processes, starting at the current position."""
        for parent in self._parents:
            if not is_from_grain(parent, "DatasetIterator"):
                parent._use_workers(options, worker)  # noqa: SLF001 - the same class

    def stats(self) -> Stats:
        """Return what this iterator has done so far.

        That of your own iterator is the sum of its parents.

        >>> from gristmill import MapDataset
        >>> iterator = iter(MapDataset.range(5).batch(2))
        >>> len(list(iterator)), iterator.stats().num_elements
        (3, 3)
        """
        return add_stats(parent.stats() for parent in self._parents)

    def close(self) -> None:
        """Stop all background work. `get_state` still works, `next` does not."""
        self._closed = True
        for parent in self._parents:
            parent.close()

    def explain(
        self, *, headspace: Callable[[Any], object] | None = None, num_steps: int = 10
    ) -> "Explanation":
        """Explain how much of the time the caller waited, for what, and what would change it.

        >>> from gristmill import MapDataset
        >>> with iter(MapDataset.range(4).map(str)) as iterator:
        ...     for element in iterator: pass
        ...     iterator.explain().stats.num_elements
        4

        Args:
            headspace: The training step, a function of a batch. It is called several times with
                the next batch, which `next` still returns afterwards.
            num_steps: How often to call it.
        """
        return explain_iterator(
            self, self.stats(), headspace=headspace, num_steps=num_steps, is_dataset=True
        )

    def _parts(self) -> Sequence[object]:
        return self._parents

    def _timelines(self) -> list[Timeline]:
        return [timeline for parent in self._parents for timeline in timelines_of(parent)]

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
        bookmarks: StepBookmarks | None = None,
    ) -> None:
        """Run `plan`.

        Args:
            plan: The plan.
            pools: Keeps the worker processes of the dataset between its iterators.
            description: The pipeline that states of this iterator belong to. By default that of
                `plan`.
            is_lockstep: Whether all shards are always at the same position.
            bookmarks: Where to keep positions that the iterator passes by.
        """
        super().__init__()
        self._plan_node: Node = plan
        self._description = describe(plan) if description is None else description
        self._is_lockstep = is_lockstep
        _warn_of_missing_batches(plan)
        self._settings = replace(
            _SETTINGS,
            limits=limits_of(plan),
            dataset_options=options_of(plan),
            on_error=skip_errors_of(plan),
            pools=pools,
        )
        self._run = self._open_run(self._settings)
        self._bookmarks = bookmarks
        counts = self._settings.on_error is not None or not plan.is_dense or may_lack_elements(plan)
        if bookmarks is not None and counts:
            self._run.stream.count_blocks(bookmarks.counter())
        self._ledger: LedgerKeeper | None = None
        watch_if_requested(self)

    @cached_property
    def _ctx(self) -> Any:
        context = _load_contexts().new_iterator_context()
        update_context(context, self._settings.dataset_options)
        return context

    def _open_run(self, settings: Settings) -> Run:
        return Run(self._plan_node, settings, self._description, is_lockstep=self._is_lockstep)

    def __next__(self) -> T_co:
        if self._ledger is not None:
            self._ledger.write_next(self._run)
        return take(self._run.stream.fill().waiting)

    def keep_ledger(self, folder: str | os.PathLike[str], *, step: int | None = None) -> None:
        self._ledger = open_ledger(folder, self._run, self._plan_node, step=step)

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

    def provenance(self) -> Provenance:
        return self._run.capture_provenance()()

    def _capture_provenance(self) -> Callable[[], Provenance]:
        """Record the last element, and return a function that returns its provenance later."""
        return self._run.capture_provenance()

    def exclude(self, *, records: ToExclude = (), steps: Iterable[int] = ()) -> None:
        exclude_records(self._run, records, steps, lambda step: None)

    def _seek_step(self, step: int) -> bool:
        """Continue at a step if its cursor is known; return whether it is."""
        plan = self._plan_node
        if self._settings.on_error is not None or not plan.is_dense:
            return False
        if self._bookmarks is not None and self._bookmarks.has_shifted(step, plan.cursor_at):
            return False  # a map has returned `None`
        if step >= plan.length():
            raise no_element_at(step, plan.length())
        self._run.go_to(plan.cursor_at(step))
        return True

    def _seek_bookmark(self, position: Position, count: CountBlock) -> None:
        """Continue at a bookmark, and count the blocks from there on."""
        self._run.go_to_position(position)
        self._run.stream.count_blocks(count)

    def _get_next_index(self) -> int:
        """Return the index of the next element. Named as in Grain, like the method below."""
        return self._plan_node.index_at(self._run.stream.cursor)

    def _set_next_index(self, index: int) -> None:
        """Continue with the element `index`."""
        self._run.go_to(self._plan_node.cursor_at(as_int("index", index)))

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
        if self._ledger is not None:
            self._ledger.close(self._run)

    @property
    def skipped(self) -> Sequence[SkippedRecord]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The elements skipped so far because they raised, with `on_error=SkipErrors(budget)`."""
        return self._run.stream.skipped

    def stats(self) -> Stats:
        return self._run.stream.counters.stats()

    def _settings_shown(self) -> Mapping[str, object]:
        return settings_table(self._settings, self._plan_node)

    def _timelines(self) -> list[Timeline]:
        return [self._run.stream.counters.timeline]

    def __repr__(self) -> str:
        return f"DatasetIterator({shorten_steps(labels_of(self._plan_node))})"

    def _repr_html_(self) -> str:
        return show_html(self.stats(), title=repr(self), is_dataset=True)


def _load_contexts() -> Any:
    """Return the module of contexts, which only iterators of the user's own read."""
    return importlib.import_module("gristmill._api.dataset.iterator_context")


_SETTINGS = Settings(
    read=ReadOptions(),
    multiprocessing=MultiprocessingOptions(),
    worker=WorkerOptions(),
    is_tuned=False,
)


def _warn_of_missing_batches(plan: Node) -> None:
    """Warn of each batch of a plan that never comes, where the user wrote it."""
    for node in all_nodes(plan):
        problem = missing_batch(node) if isinstance(node, BatchNode) else None
        if problem is not None:
            file, _, line = node.site.rpartition(":")
            warnings.warn_explicit(problem, GristmillWarning, file, int(line), registry=_warned)


_warned: dict[str | tuple[str, type[Warning], int], int] = {}
"""The warnings issued so far: by default, Python shows the same one at the same line once."""

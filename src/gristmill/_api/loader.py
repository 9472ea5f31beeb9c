"""The keyword API: `DataLoader` and its iterator."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from gristmill._api.plan_access import source_node
from gristmill._base.call_site import call_site, warn_user
from gristmill._base.checks import as_int, as_kind, as_list
from gristmill._base.grain_classes import DataLoader as GrainDataLoader
from gristmill._checkpoint.checkpointable import OrbaxCheckpointable
from gristmill._checkpoint.grain_state import GrainStateReader
from gristmill._checkpoint.mismatch import Description
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._data.sampling.grain_samplers import own_sampler
from gristmill._data.sampling.samplers import BlockSampler, Sampler
from gristmill._data.transforms.base import Transformation
from gristmill._data.transforms.operations import Operation
from gristmill._engine.executors.processes.pool_keeper import PoolKeeper
from gristmill._engine.run import Run
from gristmill._engine.settings import Settings
from gristmill._engine.tuning.learned import LearnedChoices
from gristmill._metrics.counters import Counters, StatsTotal
from gristmill._metrics.stats import Stats
from gristmill._plan.build import with_operations
from gristmill._plan.describe import describe
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sampled import SampleNode, shard_for
from gristmill._plan.nodes.steps import FlatMapNode
from gristmill._plan.nodes.stream import StatefulNode
from gristmill._plan.traverse import bottom_of, sample_below, steps_of
from gristmill.errors import StateError
from gristmill.options import (
    MultiprocessingOptions,
    ReadOptions,
    ShardOptions,
    SkipErrors,
    WorkerOptions,
)
from gristmill.types import Element, RandomAccessDataSource


@final
@dataclass(frozen=True, kw_only=True)
class _Pipeline:
    """All that an iterator needs from its loader."""

    plan: Node
    settings: Settings
    description: Description
    """What the states belong to. Computed once: the `repr` of a source may change while it runs."""
    stats_total: StatsTotal


@final
class DataLoader(GrainDataLoader):
    """Reads the records of a source in the order of a sampler, and applies operations to them.

    Source, sampler, operations and shard determine the stream. How it is computed, in threads or
    in any number of worker processes, never changes an element, a batch or a state. Creating a
    loader reads nothing. Each `iter(loader)` starts an independent iterator at the beginning.

    >>> from gristmill import Batch, IndexSampler
    >>> loader = DataLoader(
    ...     data_source=range(10),
    ...     sampler=IndexSampler(num_records=10, shuffle=True, seed=0, num_epochs=1),
    ...     operations=[lambda x: x + 100, Batch(4)],
    ... )
    >>> [batch.tolist() for batch in loader]
    [[100, 104, 106, 107], [108, 103, 101, 109], [105, 102]]

    Args:
        data_source: An object with `__len__` and `__getitem__`. It may also have
            `__getitems__(indices)`, which reads many records in one call. An `ArraySource` is read
            by columns, which is fastest.
        sampler: The order of the records: an `IndexSampler`, a `SequentialSampler`, or an object
            of your own. Grain's samplers work too.
        operations: Transformations, applied in order. A plain function is used as a map. Grain's
            transformations work too. So do operations over an iterator of records; a state is then
            restored by running them again from the start of the stream.
        worker_count: The number of worker processes. With 0, this process computes everything.
            With `None`, the fastest number is found by measuring.
        worker_buffer_size: The minimum number of elements that each worker computes ahead.
        shard_options: The shard of the sampler's stream to read. By default that of the sampler.
        read_options: How many threads read, and how far ahead of the consumer.
        enable_profiling: Ignored; it exists for compatibility.
        on_error: `"raise"` to raise the errors of records, or `SkipErrors(budget)` to skip records
            that raise. `DataLoaderIterator.skipped` lists them.
        worker_options: How workers are started, monitored and replaced.

    Raises:
        PlanError: The arguments contradict each other or are out of range.
        PlanTypeError: An argument has the wrong type.
    """

    def __init__(
        self,
        *,
        data_source: RandomAccessDataSource[Element],
        sampler: Sampler,
        operations: Sequence[Transformation | Operation | Any] = (),
        worker_count: int | None = 0,
        worker_buffer_size: int = 1,
        shard_options: ShardOptions | None = None,
        read_options: ReadOptions | None = None,
        enable_profiling: bool = False,
        on_error: Literal["raise"] | SkipErrors = "raise",
        worker_options: WorkerOptions | None = None,
    ) -> None:
        self._read_options = as_kind(
            "read_options",
            ReadOptions() if read_options is None else read_options,
            ReadOptions,
            remedy="Pass `ReadOptions(num_threads=...)`.",
        )
        self._multiprocessing_options = MultiprocessingOptions(
            num_workers=0 if worker_count is None else as_int("worker_count", worker_count),
            per_worker_buffer_size=as_int("worker_buffer_size", worker_buffer_size),
            enable_profiling=enable_profiling,
        )
        settings = Settings(
            read=self._read_options,
            multiprocessing=self._multiprocessing_options,
            worker=as_kind(
                "worker_options",
                WorkerOptions() if worker_options is None else worker_options,
                WorkerOptions,
                remedy="Pass `WorkerOptions(...)`.",
            ),
            is_tuned=worker_count is None,
            on_error=None if on_error == "raise" else _as_skip_errors(on_error),
            pools=PoolKeeper().serve(self),
            learned=LearnedChoices(),
        )
        sample = _sample_node(data_source, sampler, shard_options)
        self._operations = as_list("operations", operations)
        plan = with_operations(sample, self._operations, site=sample.site)
        self._pipeline = _Pipeline(
            plan=plan, settings=settings, description=describe(plan), stats_total=StatsTotal()
        )
        # Named as in Grain: Keras reads these four from a loader to add steps to it.
        self._data_source = data_source
        self._sampler = sampler
        self._shard_options = sample.shard

    @property
    def _plan_node(self) -> Node:
        return self._pipeline.plan

    @property
    def read_options(self) -> ReadOptions:
        """How many threads read, and how far ahead of the consumer."""
        return self._read_options

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions:
        """The number of worker processes, and how far each computes ahead."""
        return self._multiprocessing_options

    def map(self, transform: Transformation | Operation | Callable[[Any], Any]) -> "DataLoader":
        """Return a loader with one more operation, applied after those of this one.

        >>> from gristmill import load
        >>> list(load(range(4), num_epochs=1, batch_size=2).map(lambda batch: batch.tolist()))
        [[0, 1], [2, 3]]

        Args:
            transform: An operation, or a function of an element.
        """
        settings = self._pipeline.settings
        return DataLoader(
            data_source=self._data_source,
            sampler=self._sampler,
            operations=[*self._operations, transform],
            worker_count=None if settings.is_tuned else self._multiprocessing_options.num_workers,
            worker_buffer_size=self._multiprocessing_options.per_worker_buffer_size,
            shard_options=self._shard_options,
            read_options=self._read_options,
            enable_profiling=self._multiprocessing_options.enable_profiling,
            on_error="raise" if settings.on_error is None else settings.on_error,
            worker_options=settings.worker,
        )

    def stats(self) -> Stats:
        """Return what all iterators of this loader have done so far.

        >>> from gristmill import load
        >>> loader = load(range(10), num_epochs=1, batch_size=5)
        >>> for batch in loader: pass
        >>> loader.stats().num_elements
        2
        """
        return self._pipeline.stats_total.stats()

    def __iter__(self) -> "DataLoaderIterator":
        return DataLoaderIterator(self)

    def close(self) -> None:
        """End all worker processes of this loader.

        Iterators that use workers raise `ClosedError` from now on. A new iterator starts new ones.
        Without `close`, idle workers end after `WorkerOptions(idle_timeout_s=...)`, and with the
        loader. A loader is also a context manager:

        >>> from gristmill import load
        >>> with load(range(4), num_epochs=1, batch_size=2, worker_count=1) as loader:
        ...     [batch.tolist() for epoch in range(2) for batch in loader]
        [[0, 1], [2, 3], [0, 1], [2, 3]]
        """
        self._pipeline.settings.pools.close()

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class DataLoaderIterator(OrbaxCheckpointable, Iterator[Element]):
    """An iterator over the elements of a `DataLoader`, which can save and restore its position.

    Iterators of one loader are independent of each other. Use an iterator in one thread only. Use
    it as a context manager, or call `close`, to stop its background work early.

    If an operation raises, the exception is raised here, with a note that names the operation and
    the record. The iterator then stays before the failed element: the next call tries it again.

    >>> from gristmill import load
    >>> loader = load(range(5), num_epochs=1, batch_size=2)
    >>> iterator = iter(loader)
    >>> next(iterator)
    array([0, 1])
    >>> state = iterator.get_state()
    >>> other = iter(loader)
    >>> other.set_state(state)
    >>> next(other)
    array([2, 3])

    Args:
        data_loader: The loader.
        state: A state to start from. By default the beginning.
        validate_state: Whether states that belong to another pipeline are rejected.
    """

    _grain_class = "DataLoaderIterator"

    def __init__(
        self, data_loader: DataLoader, state: bytes | None = None, validate_state: bool = True
    ) -> None:
        loader: Any = data_loader
        pipeline: _Pipeline = loader._pipeline  # noqa: SLF001 - for its iterators
        plan = pipeline.plan
        sample = sample_below(plan)
        self._num_records = sample.length()
        self._grain_states = GrainStateReader(
            sampler=sample.sampler,
            source=sample.parent.source,
            shard=(sample.shard.shard_index, sample.shard.shard_count),
            num_flat_maps=sum(isinstance(step, FlatMapNode) for step in steps_of(plan)),
        )
        self._validates_states = validate_state
        self._plan_node: Node = plan
        self._stats_total = pipeline.stats_total
        self._counted: Counters | None = None
        self._run = Run(plan, pipeline.settings, pipeline.description)
        self._count_in_total()
        if state is not None:
            self.set_state(state)

    def __iter__(self) -> "DataLoaderIterator":
        return self

    def __next__(self) -> Element:
        return next(self._run.stream)

    def get_state(self) -> bytes:
        """Return the position after the last element that `__next__` returned.

        Prefetched elements are not part of it, and it does not depend on the number of workers.

        Returns:
            A few integers and a description of the pipeline, as JSON.
        """
        return self._capture_state()()

    def _capture_state(self) -> Callable[[], bytes]:
        """Record the position, and return a function that returns its state when called later.

        Recording costs less than `get_state`, and the iterator may advance in between.
        """
        state = self._run.bookmark()
        return lambda: json.dumps(state()).encode()

    def set_state(self, state: bytes) -> None:
        """Continue from a position. The cost does not depend on how far it is from the start.

        Args:
            state: A result of `get_state`, of this or another iterator over an equal pipeline with
                any number of workers. States that Grain's `DataLoader` wrote with `worker_count=0`
                work too.

        Raises:
            StateError: The state is corrupt or belongs to another pipeline. The position of the
                iterator does not change.
        """
        position = self._grain_states.position(state, validates=self._validates_states)
        if position is None:
            self._run.restore(state, validates=self._validates_states)
        elif isinstance(bottom_of(self._plan_node), StatefulNode):
            raise StateError(
                "A state of Grain does not contain the records that an operation over iterators "
                "holds. Finish the epoch with Grain and begin the next one here, or start again."
            )
        else:
            self._run.go_after(position.num_records, position.pieces)
        self._count_in_total()  # a state of other shards makes it run another stream

    def start_prefetch(self) -> None:
        """Start to compute elements in the background, before the first `next`."""
        self._run.stream.start()

    @property
    def skipped(self) -> list[SkippedRecord]:
        """The records skipped so far because they raised, with `on_error=SkipErrors(budget)`."""
        return self._run.stream.skipped

    def stats(self) -> Stats:
        """Return what this iterator has done so far."""
        return self._run.stream.counters.stats()

    def _count_in_total(self) -> None:
        counters = self._run.stream.counters
        if counters is not self._counted:  # once each: they would be added twice
            self._counted = counters
            self._stats_total.watch(self, counters)

    def close(self) -> None:
        """Stop all background work. `get_state` still works, `next` does not."""
        self._run.stream.close()

    def __enter__(self) -> "DataLoaderIterator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        position = self._run.stream.cursor[0]
        if isinstance(bottom_of(self._plan_node), StatefulNode):
            return f"DataLoaderIterator({self._plan_node.label})"
        return f"DataLoaderIterator(at {position} of {self._num_records} records)"


def _sample_node(
    data_source: RandomAccessDataSource[Element],
    sampler: Sampler,
    shard_options: ShardOptions | None,
) -> SampleNode:
    """Return the node of the sampled records, and warn if the shard has none."""
    sampler = own_sampler(sampler)
    sample = SampleNode(
        site=call_site(),
        parent=source_node(data_source),
        sampler=sampler,
        shard=shard_for(sampler, shard_options),
    )
    if isinstance(sampler, BlockSampler) and sample.length() == 0:
        warn_user(f"{sample.shard} gets no records. Use fewer shards.")
    return sample


def _as_skip_errors(on_error: object) -> SkipErrors:
    return as_kind(
        "on_error", on_error, SkipErrors, remedy='Pass "raise" or `SkipErrors(budget=...)`.'
    )

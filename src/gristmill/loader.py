"""The keyword face: a source, a sampler and operations make a plan; its iterator runs it."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, final

from gristmill._check import as_int, as_kind, as_list
from gristmill._site import call_site, warn_user
from gristmill.checkpoint import GrainLoader, Saved, SkippedRecord
from gristmill.errors import PlanError
from gristmill.execute import Run, Settings
from gristmill.observe import Stats, Tally
from gristmill.options import (
    MultiprocessingOptions,
    NoSharding,
    ReadOptions,
    ShardOptions,
    SkipErrors,
    WorkerOptions,
)
from gristmill.order import BlockSampler, IndexSampler, Sampler, own_sampler
from gristmill.plan import (
    FlatMapNode,
    Node,
    SampleNode,
    SourceNode,
    describe,
    sample_of,
    shard_for,
    steps_of,
    with_operation,
)
from gristmill.transforms import Batch, Operation, Transformation
from gristmill.types import Element, RandomAccessDataSource


@final
class DataLoader:
    """The elements of a source, in the order of a sampler, after some operations.

    The stream depends on these three and the shard alone. How it is computed (`worker_count`,
    `worker_buffer_size`, `read_options`) never changes an element, a batch or a state.

    >>> loader = DataLoader(
    ...     data_source=range(10),
    ...     sampler=IndexSampler(num_records=10, shuffle=True, seed=0, num_epochs=1),
    ...     operations=[lambda x: x + 100, Batch(4)],
    ... )
    >>> [batch.tolist() for batch in loader]
    [[100, 104, 106, 107], [108, 103, 101, 109], [105, 102]]

    Args:
        data_source: Anything with `__len__` and `__getitem__`. It may also offer
            `__getitems__(indices)`. An `ArraySource` gives whole columns.
        sampler: `IndexSampler`, `SequentialSampler`, ours or Grain's, or your own.
        operations: Transformations, ours or Grain's, or plain functions, which are taken as maps.
        worker_count: Worker processes; 0 for none, `None` to find by measuring what is fastest.
        worker_buffer_size: How many elements each worker makes ahead, at least.
        shard_options: Which part of the sampler's stream to read; by default the sampler's.
        read_options: How wide and how far to read ahead of the consumer.
        enable_profiling: Taken for compatibility.
        on_error: `"raise"`, or `SkipErrors(budget)` to leave out records that raise.
        worker_options: How workers are started, watched and replaced.
    """

    def __init__(
        self,
        *,
        data_source: RandomAccessDataSource[Any],
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
        self._settings = Settings(
            read=self._read_options,
            multiprocessing=self._multiprocessing_options,
            worker=as_kind(
                "worker_options",
                WorkerOptions() if worker_options is None else worker_options,
                WorkerOptions,
                remedy="Pass `WorkerOptions(...)`.",
            ),
            is_tuned=worker_count is None,
            on_error=None if on_error == "raise" else _as_skip(on_error),
        )
        self._tally = Tally()
        site = call_site()
        sampler = own_sampler(sampler)
        sample = SampleNode(
            site=site,
            parent=SourceNode(site=site, source=data_source),
            sampler=sampler,
            shard=shard_for(sampler, shard_options),
        )
        if isinstance(sampler, BlockSampler) and sample.length() == 0:
            warn_user(f"{sample.shard} gets no record at all. Use fewer shards.")
        plan: Node = sample
        for number, operation in enumerate(as_list("operations", operations)):
            plan = with_operation(plan, operation, number=number, site=site)
        self._plan = plan
        # Once and for all: a source's `repr` may tell what it has been through.
        self._words = describe(plan)

    @property
    def words(self) -> dict[str, Any]:
        """What a state of this loader belongs to."""
        return self._words

    @property
    def plan(self) -> Node:
        """The pipeline as data."""
        return self._plan

    @property
    def read_options(self) -> ReadOptions:
        """How far to run ahead of the consumer."""
        return self._read_options

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions:
        """How many workers, and how far each makes ahead."""
        return self._multiprocessing_options

    @property
    def settings(self) -> Settings:
        """How the plan is run."""
        return self._settings

    def stats(self) -> Stats:
        """Give what all iterators of this loader have done so far.

        >>> loader = load(range(10), num_epochs=1, batch_size=5)
        >>> for batch in loader: pass
        >>> loader.stats().elements
        2
        """
        return self._tally.stats()

    def __iter__(self) -> "DataLoaderIterator":
        iterator = DataLoaderIterator(self)
        iterator.count_in(self._tally)
        return iterator


@final
class DataLoaderIterator(Saved, Iterator[Element]):
    """The stream of a `DataLoader`, which can tell where it stands and go on from there.

    It is meant for one thread. Iterators of one loader are independent of each other.

    >>> loader = load(range(5), num_epochs=1, batch_size=2)
    >>> iterator = iter(loader)
    >>> next(iterator)
    array([0, 1])
    >>> state = iterator.get_state()
    >>> other = iter(loader)
    >>> other.set_state(state)
    >>> next(other)
    array([2, 3])
    """

    def __init__(
        self, data_loader: DataLoader, state: bytes | None = None, validate_state: bool = True
    ) -> None:
        plan = data_loader.plan
        sample = sample_of(plan)
        self._num_records = sample.length()
        self._grain = GrainLoader(
            sampler=sample.sampler,
            source=sample.parent.source,
            shard=(sample.shard.shard_index, sample.shard.shard_count),
            num_flat_maps=sum(isinstance(step, FlatMapNode) for step in steps_of(plan)),
        )
        self._validates = validate_state
        self._tally: Tally | None = None
        self.plan = plan
        """The pipeline as data."""
        self._run = Run(plan, data_loader.settings, data_loader.words)
        if state is not None:
            self.set_state(state)

    def __iter__(self) -> "DataLoaderIterator":
        return self

    def __next__(self) -> Element:
        return next(self._run.stream)

    def get_state(self) -> bytes:
        """Give the place after the last element that was handed out.

        What was made ahead is not part of it, nor is the executor.
        """
        return self.bookmark()()

    def bookmark(self) -> Callable[[], bytes]:
        """Note where it stands; what is called later gives that state, wherever it is then."""
        state = self._run.bookmark()
        return lambda: json.dumps(state()).encode()

    def set_state(self, state: bytes) -> None:
        """Go on from a place. A state that does not fit is refused and changes nothing.

        One that Grain's `DataLoader` wrote with `worker_count=0` is taken, too.
        """
        place = self._grain.place(state, validates=self._validates)
        if place is None:
            self._run.restore(state, validates=self._validates)
        else:
            self._run.go_after(place.num_records, place.pieces)
        if self._tally is not None:  # it may run another plan now, which is counted anew
            self.count_in(self._tally)

    def start_prefetch(self) -> None:
        """Begin to make the first elements in the background, before they are asked for."""
        self._run.stream.start()

    @property
    def skipped(self) -> list[SkippedRecord]:
        """The bad records that were left out so far, with `on_error=SkipErrors(budget)`."""
        return self._run.stream.skipped

    def stats(self) -> Stats:
        """Give what this iterator has done so far."""
        return self._run.stream.counters.stats()

    def count_in(self, tally: Tally) -> None:
        """Have what this iterator does added up with what others do."""
        self._tally = tally
        tally.watch(self, self._run.stream.counters)

    def close(self) -> None:
        """End what runs in the background. The state can still be read."""
        self._run.stream.close()

    def __enter__(self) -> "DataLoaderIterator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        position = self._run.stream.cursor[0]
        return f"DataLoaderIterator(at {position} of {self._num_records} records)"


def load(
    source: RandomAccessDataSource[Any],
    *,
    num_epochs: int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    shard_options: ShardOptions = NoSharding(),  # noqa: B008 - frozen
    transformations: Sequence[Transformation | Any] = (),
    batch_size: int | None = None,
    drop_remainder: bool = False,
    worker_count: int | None = 0,
    read_options: ReadOptions | None = None,
) -> DataLoader:
    """Make a `DataLoader` with an `IndexSampler` over the whole source.

    >>> [batch.tolist() for batch in load(range(5), num_epochs=1, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """
    operations = as_list("transformations", transformations)
    num_records = SourceNode(site=call_site(), source=source).length()
    if num_records == 0:
        raise PlanError("`source` is empty. Pass at least one record.")
    if batch_size is not None:
        operations.append(Batch(batch_size, drop_remainder))
    return DataLoader(
        data_source=source,
        sampler=IndexSampler(
            num_records=num_records,
            shard_options=shard_options,
            shuffle=shuffle,
            num_epochs=num_epochs,
            seed=seed,
        ),
        operations=operations,
        worker_count=worker_count,
        read_options=read_options,
    )


def _as_skip(on_error: Any) -> SkipErrors:
    return as_kind(
        "on_error", on_error, SkipErrors, remedy='Pass "raise" or `SkipErrors(budget=...)`.'
    )

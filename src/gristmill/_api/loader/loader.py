"""The keyword API: `DataLoader` and its iterator."""

import copy
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, final

from gristmill._api.global_element import join_shards
from gristmill._api.loader.arguments import as_shard, loader_settings, sample_node
from gristmill._api.loader.epochs import LoaderEpochs
from gristmill._api.loader.foreign_arguments import OF_DATA_LOADER
from gristmill._api.loader.iterator import DataLoaderIterator, LoaderPipeline
from gristmill._api.monitoring.explain import explain_iterator, explain_run
from gristmill._api.monitoring.report import ReportedRun, report_frame, settings_table
from gristmill._api.monitoring.watched import watch_if_requested
from gristmill._api.plan_access import require_length
from gristmill._api.step_bookmarks import NUM_BOOKMARKS, StepBookmarks
from gristmill._base.argument_advice import advises
from gristmill._base.checks import as_bool, as_int, as_list
from gristmill._base.grain.classes import DataLoader as GrainDataLoader
from gristmill._data.sampling.samplers import IndexSampler
from gristmill._data.sampling.user_samplers import AnySampler
from gristmill._data.transforms.base import Transformation
from gristmill._data.transforms.operations import Operation
from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._engine.inline_plan import inline_settings
from gristmill._engine.lazy_replay import trace_steps_of
from gristmill._metrics.counters import StatsTotal
from gristmill._metrics.stats import Stats, show_html
from gristmill._metrics.timeline import Timeline, all_spans
from gristmill._plan.build import with_operations, with_origins
from gristmill._plan.describe import describe
from gristmill._plan.epochs import with_epoch
from gristmill._plan.nodes.base import Node, replace_below
from gristmill._plan.nodes.hints import unlisted_skips
from gristmill._plan.nodes.stream import StatefulNode
from gristmill._plan.steps_of_records import no_element_at, position_of_shard, steps_of_record
from gristmill._plan.traverse import (
    bottom_of,
    known_length,
    labels_of,
    sample_below,
    shorten_steps,
)
from gristmill.errors import PlanError
from gristmill.options import (
    MultiprocessingOptions,
    ReadOptions,
    ShardOptions,
    SkipErrors,
    WorkerOptions,
)
from gristmill.types import Element, RandomAccessDataSource

if TYPE_CHECKING:
    from gristmill._api.preview import Preview
    from gristmill._metrics.explanation import Explanation


@final
class DataLoader(GrainDataLoader, ReportedRun):
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
        sampler: The order of the records: an `IndexSampler`, a `SequentialSampler`, a
            `WeightedSampler`, a `SubsetSampler`, a list of indices, or an object of your own.
            Grain's samplers work too, and iterables of integers, such as PyTorch's samplers, which
            are read once.
        operations: Transformations, applied in order. A plain function is used as a map. Grain's
            transformations work too. So do operations over an iterator of records; a state is then
            restored by running them again from the start of the stream.
        worker_count: The number of worker processes. With 0, this process computes everything.
            With `None`, the fastest number is found by measuring.
        worker_buffer_size: The minimum number of elements that each worker computes ahead.
        shard_options: The shard of the sampler's stream to read. By default that of the sampler.
        read_options: How many threads read, and how far ahead of the consumer.
        enable_profiling: Whether to log what the workers did every minute and at the end, at level
            INFO of the logger `gristmill`. Without workers, nothing is logged.
        on_error: `"raise"` to raise the errors of records, or `SkipErrors(budget)` to skip records
            that raise. `DataLoaderIterator.skipped` lists them.
        worker_options: How workers are started, monitored and replaced. With `RayOptions`, they
            are actors on a Ray cluster.
        num_bookmarks: How many positions `at` and `from_step` may start from where steps must be
            counted, as after a filter. Iterators add one from time to time. It takes a kilobyte.
        provenance: Whether each element gets one more leaf, the number of its record in the
            stream, from 1, which `iterator.origins` turns into its source, index, file and epoch.
            It is the key `"provenance"` of a dict, the last item of a tuple, or the second item of
            a tuple with any other element. Batching and packing keep it. States are those without
            it.

    Raises:
        PlanError: The arguments contradict each other or are out of range.
        PlanTypeError: An argument has the wrong type.
    """

    @advises("DataLoader", OF_DATA_LOADER)
    def __init__(
        self,
        *,
        data_source: RandomAccessDataSource[Element],
        sampler: AnySampler,
        operations: Sequence[Transformation | Operation | Any] = (),
        worker_count: int | None = 0,
        worker_buffer_size: int = 1,
        shard_options: ShardOptions | None = None,
        read_options: ReadOptions | None = None,
        enable_profiling: bool = False,
        on_error: Literal["raise"] | SkipErrors = "raise",
        worker_options: WorkerOptions | None = None,
        provenance: bool = False,
        num_bookmarks: int = NUM_BOOKMARKS,
    ) -> None:
        settings = loader_settings(
            worker_count,
            worker_buffer_size,
            read_options,
            enable_profiling,
            on_error,
            worker_options,
            pools=PoolKeeper().serve(self),
        )
        self._worker_count, self._worker_options = worker_count, worker_options
        sample = sample_node(data_source, sampler, shard_options)
        self._operations = as_list("operations", operations)
        plan = with_operations(sample, self._operations, site=sample.site)
        self._provenance = as_bool("provenance", provenance)
        if self._provenance:
            plan = with_origins(plan)
        bottom = bottom_of(plan)
        if settings.on_error is not None and isinstance(bottom, StatefulNode):
            raise unlisted_skips(bottom)
        self._pipeline = LoaderPipeline(
            plan=plan, settings=settings, description=describe(plan), stats_total=StatsTotal()
        )
        # Named as in Grain: Keras reads these four from a loader to add steps to it.
        self._data_source = data_source
        self._sampler = sampler
        self._shard_options = sample.shard
        self._given_shard = shard_options
        self._all_epochs: DataLoader | None = None
        self._bookmarks = StepBookmarks(as_int("num_bookmarks", num_bookmarks))
        watch_if_requested(self)

    @property
    def _plan_node(self) -> Node:
        return self._pipeline.plan

    @property
    def read_options(self) -> ReadOptions:
        """How many threads read, and how far ahead of the consumer."""
        return self._pipeline.settings.read

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions:
        """The number of worker processes, and how far each computes ahead."""
        return self._pipeline.settings.multiprocessing

    def map(self, transform: Transformation | Operation | Callable[[Any], Any]) -> "DataLoader":
        """Return a loader with one more operation, applied after those of this one.

        >>> from gristmill import load
        >>> list(load(range(4), num_epochs=1, batch_size=2).map(lambda batch: batch.tolist()))
        [[0, 1], [2, 3]]

        Args:
            transform: An operation, or a function of an element.
        """
        settings = self._pipeline.settings
        epoch = sample_below(self._pipeline.plan).epoch
        made = DataLoader(
            data_source=self._data_source,
            sampler=self._sampler,
            operations=[*self._operations, transform],
            worker_count=self._worker_count,
            worker_buffer_size=settings.multiprocessing.per_worker_buffer_size,
            shard_options=self._given_shard,
            read_options=settings.read,
            enable_profiling=settings.multiprocessing.enable_profiling,
            on_error="raise" if settings.on_error is None else settings.on_error,
            worker_options=self._worker_options,
            provenance=self._provenance,
            num_bookmarks=self._bookmarks.max_count,
        )
        return made if epoch is None else made.epoch(epoch)

    def epoch(self, epoch: int) -> "DataLoader":
        """Return a loader of one epoch: its records in their order, with their random numbers.

        In PyTorch, each `for batch in loader` is another epoch. Here it starts again with the same
        one; loop over `loader.epochs(n)` or `loader.epoch(e)` instead. Without batches, the epochs
        one after the other are the stream of the loader. With them, each epoch ends with its own
        last, smaller batch. `num_epochs` of the sampler does not matter.

        >>> from gristmill import load
        >>> loader = load(range(4), shuffle=True, seed=0, num_epochs=1)
        >>> list(loader.epoch(0)), list(loader.epoch(1)), list(loader.epoch(1))
        ([0, 3, 1, 2], [1, 2, 3, 0], [1, 2, 3, 0])

        Args:
            epoch: The number of the epoch, starting at 0.

        Raises:
            PlanError: The sampler is one of your own, whose epochs are not known.
        """
        number = as_int("epoch", epoch)
        plan = with_epoch(self._pipeline.plan, number)
        sample_below(plan).length()  # raises here, where the user wrote the line
        description = {**describe(plan), "epoch": number}
        return self._with_pipeline(replace(self._pipeline, plan=plan, description=description))

    def epochs(self, num_epochs: int) -> LoaderEpochs:
        """Return an iterator over epochs, each with an iterator over its elements.

        Each epoch is shuffled and augmented differently. The state can be saved at any point with
        `get_state`, and `set_state` continues in the middle of an epoch.

        >>> from gristmill import load
        >>> loader = load(range(4), shuffle=True, seed=0, batch_size=2)
        >>> epochs = loader.epochs(2)
        >>> for epoch, batches in epochs:
        ...     print(epoch, [batch.tolist() for batch in batches])
        0 [[0, 3], [1, 2]]
        1 [[1, 2], [3, 0]]

        Args:
            num_epochs: The number of epochs, at least 1.

        Raises:
            PlanError: If `num_epochs` is below 1.
        """
        return LoaderEpochs(self, as_int("num_epochs", num_epochs, minimum=1))

    def from_step(
        self, step: int, *, shard: ShardOptions | tuple[int, int] | None = None
    ) -> "DataLoaderIterator":
        """Return an iterator that continues at a step: its next element is that of the step.

        In constant time if each step reads the same number of records. After a filter, a flat map,
        an operation over iterators, or with `on_error=SkipErrors(...)`, the elements before are
        computed, from the nearest *bookmark* on: a position that an iterator of this loader has
        passed by. `num_bookmarks` of them are kept.

        >>> from gristmill import load
        >>> loader = load(range(100), shuffle=True, seed=0, batch_size=10, num_epochs=1)
        >>> state = loader.from_step(7).get_state()  # a state made by hand

        Args:
            step: The number of the element in the stream of the loader, or of the shard.
            shard: Another shard: a `ShardOptions`, or its index and the number of shards. It
                replaces `shard_options` of the loader, or of the sampler if the loader has none.

        Raises:
            IndexError: The stream ends before that step.
        """
        number = as_int("step", step)
        loader = self if shard is None else self._with_shard(as_shard(shard))
        iterator = iter(loader)
        try:
            loader._bookmarks.seek(iterator, number)  # noqa: SLF001 - the same class
        except BaseException:
            iterator.close()
            raise
        return iterator

    def from_position(
        self,
        position: int = 0,
        *,
        epoch: int = 0,
        shard: ShardOptions | tuple[int, int] | None = None,
    ) -> "DataLoaderIterator":
        """Return an iterator that continues after some records of an epoch.

        This makes a state by hand, in constant time, also after filters and flat maps:
        `loader.from_position(position, epoch=epoch).get_state()`. Batches begin at the position.

        >>> from gristmill import load
        >>> loader = load(range(10), num_epochs=3, batch_size=2)
        >>> next(loader.from_position(4, epoch=1))
        array([4, 5])

        Args:
            position: The number of records of the epoch that all shards have read together.
            epoch: The number of the epoch, starting at 0.
            shard: Another shard, as for `from_step`.

        Raises:
            IndexError: The stream has no such position.
            PlanError: The epochs of the sampler are not known, or there are operations over
                iterators, whose state depends on all records before.
        """
        loader = self if shard is None else self._with_shard(as_shard(shard))
        bottom = bottom_of(loader._plan_node)  # noqa: SLF001 - the same class
        if isinstance(bottom, StatefulNode):
            raise PlanError(
                f"{bottom.label} ({bottom.site}) depends on all records before a position. Use "
                "`from_step`, which computes them."
            )
        number = position_of_shard(
            loader._plan_node,  # noqa: SLF001 - the same class
            as_int("position", position),
            as_int("epoch", epoch),
        )
        iterator = iter(loader)
        private: Any = iterator
        private._go_after(number)  # noqa: SLF001 - of our own iterator
        return iterator

    def at(
        self,
        step: int,
        *,
        shard: ShardOptions | tuple[int, int] | None = None,
        num_shards: int | None = None,
    ) -> Element:
        """Return the element at a step of the stream, as `from_step` finds it.

        It is computed in the calling process, without workers and prefetching.

        >>> from gristmill import load
        >>> loader = load(range(10**9), shuffle=True, seed=0, batch_size=4)
        >>> loader.at(123_456_789)
        array([589687327, 595979660, 591784108, 602271551])
        >>> loader.at(5, shard=(3, 64)).tolist() == loader.at(5, shard=(4, 64)).tolist()
        False

        Args:
            step: The number of the element in the stream of the loader, or of the shard.
            shard: Another shard: a `ShardOptions`, or its index and the number of shards. It
                replaces `shard_options` of the loader, or of the sampler if the loader has none.
            num_shards: Return the global batch of a run on so many shards: the batches of all of
                them, one after the other along the first axis.

        Raises:
            IndexError: The stream has no element at that step.
        """
        if num_shards is not None:
            count = as_int("num_shards", num_shards, minimum=1)
            if shard is not None:
                raise PlanError("Pass `shard` or `num_shards`, not both.")
            return join_shards([self.at(step, shard=(index, count)) for index in range(count)])
        with self._inline().from_step(step, shard=shard) as iterator:
            for element in iterator:
                return element
        raise no_element_at(step, step)

    def steps_of(self, record: int) -> Iterator[int]:
        """Return the steps at which a record comes, in order, one epoch after the other.

        In constant time for each epoch of an `IndexSampler` or a `SequentialSampler`, whose order
        is a permutation that can be inverted. For other samplers, each epoch is searched. After a
        filter, a flat map or an operation over iterators, or with `on_error=SkipErrors(...)`, the
        stream is computed from its start, as far as steps are requested.

        >>> from itertools import islice
        >>> from gristmill import load
        >>> loader = load(range(10**9), shuffle=True, seed=0, batch_size=4)
        >>> list(islice(loader.steps_of(589687327), 2))
        [123456789, 306805244]

        Args:
            record: The index of the record in the source.

        Raises:
            IndexError: The source has no such record.
            PlanError: The sampler is one of your own, whose order is not known.
            ProvenanceError: A step does not keep track of records.
        """
        pipeline, index = self._pipeline, as_int("record", record)
        steps = steps_of_record(pipeline.plan, index)
        if steps is None or pipeline.settings.on_error is not None:
            return trace_steps_of(pipeline.plan, pipeline.settings, source_number=0, index=index)
        return steps

    def _with_shard(self, shard: ShardOptions) -> "DataLoader":
        """Return this loader for another shard."""
        plan = self._pipeline.plan
        own = sample_below(plan)
        # Shards that are not given to the loader are those of the sampler: ranges of records.
        is_contiguous = isinstance(own.sampler, IndexSampler) and self._given_shard is None
        other = own.with_shard(shard, is_contiguous=is_contiguous)
        made = self._with_pipeline(replace(self._pipeline, plan=replace_below(plan, own, other)))
        vars(made)["_bookmarks"] = self._bookmarks.of_shard((shard.shard_index, shard.shard_count))
        return made

    def _inline(self) -> "DataLoader":
        """Return this loader without workers and threads, and with the same bookmarks."""
        settings = inline_settings(self._pipeline.settings)
        other = self._with_pipeline(replace(self._pipeline, settings=settings))
        vars(other)["_bookmarks"] = self._bookmarks
        return other

    def _with_pipeline(self, pipeline: LoaderPipeline) -> "DataLoader":
        other = copy.copy(self)
        vars(other).update(
            _pipeline=pipeline,
            _bookmarks=self._bookmarks.empty(),
            _all_epochs=self,  # which the workers belong to, and end with
        )
        return other

    def stats(self) -> Stats:
        """Return what all iterators of this loader have done so far.

        >>> from gristmill import load
        >>> loader = load(range(10), num_epochs=1, batch_size=5)
        >>> for batch in loader: pass
        >>> loader.stats().num_elements
        2
        """
        return self._pipeline.stats_total.stats()

    def explain(
        self, *, headspace: Callable[[Any], object] | None = None, num_steps: int = 10
    ) -> "Explanation":
        """Explain how much of the time the caller waited, for what, and what would change it.

        All iterators of this loader are explained together.

        >>> from gristmill import load
        >>> loader = load(range(10), num_epochs=1, batch_size=5)
        >>> print(loader.explain())
        Nothing was measured yet: take some elements first.

        Args:
            headspace: The training step, a function of a batch. It is called several times with
                the first batch of the loader.
            num_steps: How often to call it.
        """
        stats = self.stats()
        if headspace is None:
            return explain_run(stats, is_dataset=False)
        with iter(self) as iterator:
            return explain_iterator(
                iterator, stats, headspace=headspace, num_steps=num_steps, is_dataset=False
            )

    def _settings_shown(self) -> Mapping[str, object]:
        return settings_table(self._pipeline.settings, self._pipeline.plan)

    def _parts(self) -> Sequence[object]:
        return self._pipeline.stats_total.owners()

    def _is_total(self) -> bool:
        return True

    def _timelines(self) -> list[Timeline]:
        return self._pipeline.stats_total.timelines()

    def preview(
        self,
        num_elements: int = 9,
        *,
        decode: "Callable[[Any], object] | Mapping[str, Callable[[Any], object]] | None" = None,
    ) -> "Preview":
        """Return the first elements, after all operations, to look at.

        Images are shown as a grid, rows of packed documents as colored segments with how full they
        are, and everything else as a line of text. Of batches, the rows are shown. They are
        computed in this process, and counted in no statistics.

        Notebooks show the result as HTML. In a terminal, `print` it, or call `show`, which includes
        images if the terminal has colors. `save` writes a page.

        >>> import numpy as np
        >>> from gristmill import load
        >>> loader = load([{"tokens": np.array([72, 105])}], num_epochs=1, batch_size=1)
        >>> print(loader.preview(1, decode=lambda tokens: bytes(tokens).decode()))
        list(<1 records>) -> IndexSampler -> Batch(1): 1 element
        [0]
          tokens: 2 tokens: Hi

        Args:
            num_elements: How many to show.
            decode: A function that turns a list of tokens into a string, such as
                `tokenizer.decode`, for all leaves with one axis of integers. Or functions by the
                names of leaves, which get their values: `{"label": names.__getitem__}`.
        """
        settings = inline_settings(self._pipeline.settings)
        pipeline = replace(self._pipeline, settings=settings, stats_total=StatsTotal())
        module: Any = importlib.import_module("gristmill._api.preview")  # most programs have none
        with iter(self._with_pipeline(pipeline)) as iterator:
            return module.preview_elements(
                iterator, pipeline.plan, num_elements, decode, title=self._steps_shown
            )

    def __iter__(self) -> "DataLoaderIterator":
        return DataLoaderIterator(self)

    def __len__(self) -> int:
        """Return the number of elements of one iterator.

        Raises:
            TypeError: It is not known before they are computed, or there is no end.
        """
        return require_length(self, self._known_length)

    def __bool__(self) -> bool:
        return True  # even if there are no elements, or their number is unknown

    @property
    def _known_length(self) -> int | None:
        skips = self._pipeline.settings.on_error is not None
        return None if skips else known_length(self._pipeline.plan)

    def __repr__(self) -> str:
        settings = self._pipeline.settings
        count = "None" if settings.is_tuned else settings.multiprocessing.num_workers
        elements = "" if self._known_length is None else f", {self._known_length} elements"
        return f"<DataLoader: {self._steps_shown}{elements}, worker_count={count}>"

    @property
    def _steps_shown(self) -> str:
        plan = self._pipeline.plan
        sampler = sample_below(plan).label
        labels = [
            type(self._sampler).__name__ if label == sampler else label for label in labels_of(plan)
        ]
        return shorten_steps(labels)

    def _repr_html_(self) -> str:
        shown = show_html(self.stats(), title=repr(self))
        if not self.stats().num_elements:
            return shown
        return shown + report_frame(
            title=repr(self),
            explanation=self.explain(),
            settings=self._settings_shown(),
            spans=all_spans(self._timelines()),
        )

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

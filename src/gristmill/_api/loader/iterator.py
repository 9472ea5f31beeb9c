"""The iterator of a `DataLoader`, which can save and restore its position."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from gristmill._api.excluded import ToExclude, exclude_records
from gristmill._api.ledgers.open_ledger import open_ledger
from gristmill._api.monitoring.explain import explain_iterator
from gristmill._api.monitoring.report import ReportedRun, settings_table
from gristmill._api.monitoring.watched import watch_if_requested
from gristmill._base.threads.resumable_puller import take
from gristmill._checkpoint.checkpointable import OrbaxCheckpointable
from gristmill._checkpoint.grain_state import GrainStateReader
from gristmill._checkpoint.mismatch import Description
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._checkpoint.state import Position
from gristmill._engine.provenance.origin import Provenance, RecordOrigin
from gristmill._engine.run import Run
from gristmill._engine.run_log import steps_shown
from gristmill._engine.settings import Settings
from gristmill._engine.stream import CountBlock
from gristmill._metrics.counters import Counters, StatsTotal
from gristmill._metrics.stats import Stats, show_html
from gristmill._metrics.timeline import Timeline
from gristmill._plan.nodes.base import ENDLESS, Node
from gristmill._plan.nodes.stream import StatefulNode
from gristmill._plan.steps_of_records import cursor_at_step, takes_counting
from gristmill._plan.traverse import bottom_of, num_flat_maps, sample_below
from gristmill.errors import StateError
from gristmill.types import Cursor, Element

if TYPE_CHECKING:
    from gristmill._api.ledgers.keeper import LedgerKeeper
    from gristmill._api.loader.loader import DataLoader
    from gristmill._metrics.explanation import Explanation


@final
@dataclass(frozen=True, kw_only=True)
class LoaderPipeline:
    """All that an iterator needs from its loader."""

    plan: Node
    settings: Settings
    description: Description
    """What the states belong to. Computed once: the `repr` of a source may change while it runs."""
    stats_total: StatsTotal


@final
class DataLoaderIterator(OrbaxCheckpointable, ReportedRun, Iterator[Element]):
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
        self, data_loader: "DataLoader", state: bytes | None = None, validate_state: bool = True
    ) -> None:
        loader: Any = data_loader
        pipeline: LoaderPipeline = loader._pipeline  # noqa: SLF001 - for its iterators
        plan = pipeline.plan
        sample = sample_below(plan)
        self._num_records = sample.length()
        self._grain_states = GrainStateReader(
            sampler=sample.sampler,
            source=sample.parent.source,
            shard=(sample.shard.shard_index, sample.shard.shard_count),
            num_records=self._num_records,
            num_flat_maps=num_flat_maps(plan),
        )
        self._validates_states = validate_state
        self._plan_node: Node = plan
        self._skips_errors = pipeline.settings.on_error is not None
        self._stats_total = pipeline.stats_total
        self._counted: Counters | None = None
        self._settings_table = settings_table(pipeline.settings, plan)
        self._run = Run(plan, pipeline.settings, pipeline.description)
        self._ledger: LedgerKeeper | None = None
        if self._skips_errors or takes_counting(plan):
            self._run.stream.count_blocks(loader._bookmarks.counter())  # noqa: SLF001 - as above
        self._count_in_total()
        if state is not None:
            self.set_state(state)
        watch_if_requested(self, loader, loader._all_epochs)  # noqa: SLF001 - as above

    def __iter__(self) -> "DataLoaderIterator":
        return self

    def __next__(self) -> Element:
        if self._ledger is not None:
            self._ledger.write_next(self._run)
        return take(self._run.stream.fill().waiting)

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
            self._run.go_after(position.num_records, position.outputs)
        self._after_move()

    def exclude(self, *, records: ToExclude = (), steps: Iterable[int] = ()) -> None:
        """Leave records out, starting at the current position: they are not read again.

        Elements that were taken stay as they were, and the other records keep their order and their
        random numbers. Later batches move up, so that they are full. The records are part of the
        state, with one to three bytes each if they are many, and continue to be left out after a
        restore, also on another number of shards; each shard must exclude the same records.

        >>> from gristmill import load
        >>> iterator = iter(load(range(10), num_epochs=1, batch_size=3))
        >>> next(iterator)
        array([0, 1, 2])
        >>> iterator.exclude(records=[1, 4, 6])
        >>> [batch.tolist() for batch in iterator]
        [[3, 5, 7], [8, 9]]

        Args:
            records: The records: their indices in the source, or the origins that
                `provenance().records` contains.
            steps: All records of these steps of the loader, as `loader.at` counts them. With
                several shards, find their records by `provenance` and exclude those on each.

        Raises:
            IndexError: The source has no such record, or the stream no such step.
            PlanError: The sampler is one of your own, there are operations over iterators, or a
                step holds a record already: a window, or packing.
        """
        exclude_records(self._run, records, steps, self._find_step)
        self._after_move()

    def _go_after(self, num_records: int) -> None:
        """Continue after some records of the shard."""
        self._run.go_after(num_records)
        self._after_move()

    def _find_step(self, step: int) -> Cursor | None:
        """Return the cursor before a step, if it is known without counting."""
        return None if self._skips_errors else cursor_at_step(self._plan_node, step)

    def _seek_step(self, step: int) -> bool:
        """Continue at a step if its cursor is known; return whether it is."""
        cursor = self._find_step(step)
        if cursor is not None:
            self._run.go_to(cursor)
            self._after_move()
        return cursor is not None

    def _seek_bookmark(self, position: Position, count: CountBlock) -> None:
        """Continue at a bookmark, and count the blocks from there on."""
        self._run.go_to_position(position)
        self._run.stream.count_blocks(count)
        self._after_move()

    def keep_ledger(self, folder: str | os.PathLike[str], *, step: int | None = None) -> None:
        """Write a line to a file for each element from now on: its step and checksums.

        The file is `shard_I-of-N.jsonl` in the folder, so that all shards of a run share the
        folder. `gristmill diff` compares two runs, `gristmill replay --ledger` checks that each
        element is computed bit for bit as it was, and `gristmill audit` that each record came as
        often as it should. A run that is restored continues the file: its steps replace those that
        come after them. If a line cannot be written, there is a warning and the ledger ends.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from gristmill import load
        >>> folder = tempfile.mkdtemp()
        >>> with iter(load(range(6), num_epochs=1, batch_size=2)) as iterator:
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
        self._ledger = open_ledger(folder, self._run, self._plan_node, step=step)

    def provenance(self) -> Provenance:
        """Return the records that the last element was made of, row by row.

        They are found by running the pipeline again for that element: records are read and
        transformed only where a filter, a flat map, a missing element or packing depends on their
        values. Nothing is recorded while iterating.

        Raises:
            ProvenanceError: No element was taken yet, or a step does not keep track of records.
        """
        return self._run.capture_provenance()()

    def origins(self, leaf: Any) -> list[RecordOrigin]:
        """Return the records that a leaf of `DataLoader(provenance=True)` stands for.

        >>> from gristmill import load
        >>> iterator = iter(load(range(100, 110), shuffle=True, seed=3, batch_size=2,
        ...                      provenance=True))
        >>> batch, leaf = next(iterator)
        >>> batch, [origin.index for origin in iterator.origins(leaf)]
        (array([104, 107]), [4, 7])

        Args:
            leaf: The leaf of an element or batch, or some of its rows. The zeros of padding are
                left out.

        Raises:
            ProvenanceError: It is not such a leaf.
        """
        return self._run.origins(np.asarray(leaf))

    def _capture_provenance(self) -> Callable[[], Provenance]:
        """Record the last element, and return a function that returns its provenance later."""
        return self._run.capture_provenance()

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

    def explain(
        self, *, headspace: Callable[[Any], object] | None = None, num_steps: int = 10
    ) -> "Explanation":
        """Explain how much of the time the caller waited, for what, and what would change it.

        >>> from gristmill import load
        >>> with iter(load(range(10), num_epochs=1, batch_size=5)) as iterator:
        ...     for batch in iterator: pass
        ...     iterator.explain().stats.num_elements
        2

        Args:
            headspace: The training step, a function of a batch. It is called several times with
                the next batch, which `next` still returns afterwards.
            num_steps: How often to call it.
        """
        return explain_iterator(
            self, self.stats(), headspace=headspace, num_steps=num_steps, is_dataset=False
        )

    def _settings_shown(self) -> Mapping[str, object]:
        return self._settings_table

    def _timelines(self) -> list[Timeline]:
        return [self._run.stream.counters.timeline]

    def _after_move(self) -> None:
        self._count_in_total()  # a state of other shards makes it run another stream

    def _count_in_total(self) -> None:
        counters = self._run.stream.counters
        if counters is not self._counted:  # once each: they would be added twice
            self._counted = counters
            self._stats_total.watch(self, counters)

    def close(self) -> None:
        """Stop all background work. `get_state` still works, `next` does not."""
        self._run.stream.close()
        if self._ledger is not None:
            self._ledger.close(self._run)

    def __enter__(self) -> "DataLoaderIterator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DataLoaderIterator({self._position_shown() or self._plan_node.label})"

    def _title_shown(self) -> str:
        position = self._position_shown()
        at = f", {position}" if position else ""
        return f"<DataLoaderIterator: {steps_shown(self._plan_node)}{at}>"

    def _position_shown(self) -> str:
        """Return how far it is, or nothing if it does not count records."""
        position = self._run.stream.cursor[0]
        if isinstance(bottom_of(self._plan_node), StatefulNode):
            return ""
        if self._num_records >= ENDLESS:
            return f"at record {position:,}, endless"
        return f"at {position} of {self._num_records} records"

    def _repr_html_(self) -> str:
        return show_html(self.stats(), title=repr(self))


def skips_errors(iterator: DataLoaderIterator) -> bool:
    """Return whether records that raise are skipped, so that the number of elements is unknown."""
    private: Any = iterator
    return private._skips_errors  # noqa: SLF001 - the same module

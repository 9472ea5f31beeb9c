"""`FeedIterator`: batches that are on their devices before they are requested."""

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast, final, runtime_checkable

from gristmill._api.dataset.iterator import DatasetIterator, StreamIterator
from gristmill._api.excluded import ToExclude
from gristmill._api.experimental.next_index import get_next_index, set_next_index
from gristmill._api.feeding.exchange import JobExchange
from gristmill._api.feeding.fed_batches import (
    BatchSource,
    FedBatch,
    FedBatches,
    FeedPosition,
    SourceState,
    capture_position,
    run_of,
)
from gristmill._api.feeding.feed_times import FeedTimes, WaitClock
from gristmill._api.feeding.hosts import HostAgreement
from gristmill._api.feeding.placement import Placement
from gristmill._api.feeding.remainder import Remainder
from gristmill._api.ledgers.open_ledger import open_ledger
from gristmill._api.loader.iterator import DataLoaderIterator, skips_errors
from gristmill._api.monitoring.explain import explain_iterator
from gristmill._api.monitoring.report import ReportedRun
from gristmill._api.monitoring.trace import timelines_of
from gristmill._api.monitoring.watched import watch_if_requested
from gristmill._api.plan_access import HasPlan, plan_of, require_length
from gristmill._base.extras import load_extra
from gristmill._base.threads.background import ParkedError
from gristmill._base.threads.resumable_puller import (
    STOP_TIMEOUT_S,
    Producer,
    Pulled,
    ResumablePuller,
    take,
)
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.provenance.origin import Provenance, RecordOrigin
from gristmill._engine.stream import PARK_TIMEOUT_S
from gristmill._metrics.profiler import traced
from gristmill._metrics.stats import HasStats, Stats, show_html
from gristmill._metrics.timeline import Timeline
from gristmill._plan.nodes.base import stable_repr
from gristmill.errors import ClosedError, ProvenanceError
from gristmill.options import WorkerOptions
from gristmill.types import Tree

if TYPE_CHECKING:
    from gristmill._api.ledgers.keeper import LedgerKeeper
    from gristmill._metrics.explanation import Explanation

SLEEP_S = 0.001
"""A pause of the thread after a batch was taken. Dispatching a training step takes less."""


@final
class FeedIterator(DatasetIterator[Tree]):
    """An iterator over batches on their devices. `feed` returns one.

    Up to `prefetch` batches are placed ahead of the consumer. The state is that of the source after
    the last batch that `__next__` returned, independent of prefetched batches. So a checkpoint of
    the source restores a feed, and the other way round.

    `ResumablePuller` describes how it survives Ctrl-C.

    >>> import numpy as np
    >>> from gristmill import feed, load
    >>> loader = load(np.arange(6, dtype=np.int32), num_epochs=1, batch_size=2)
    >>> with feed(loader) as batches:
    ...     first = next(batches)
    ...     state = batches.get_state()
    >>> with feed(loader) as batches:
    ...     batches.set_state(state)
    ...     [batch.tolist() for batch in batches]
    [[2, 3], [4, 5]]

    Args:
        source: An iterator of batches, which must not be used elsewhere.
        placement: Where to place the batches.
        remainder: How to feed batches with fewer rows.
        prefetch: The maximum number of batches to place ahead of the consumer.
        timeout_s: How long a step waits for other processes. By default there is no limit.
        idle_timeout_s: If no batch is taken for this long, the background thread ends and frees the
            batches that it has placed. It starts again with the next call. Only in a job of one
            process: the others would wait.
    """

    def __init__(
        self,
        source: BatchSource,
        placement: Placement,
        remainder: Remainder,
        prefetch: int,
        *,
        timeout_s: float | None = None,
        idle_timeout_s: float = WorkerOptions().idle_timeout_s,
    ) -> None:
        super().__init__(cast(Any, source) if isinstance(source, DatasetIterator) else ())
        self._source: BatchSource = cast(Any, source)
        self._prefetch = prefetch
        self._pulled: Pulled[FedBatch, FeedPosition] = Pulled(capture_position(self._source))
        self._times = FeedTimes()
        self._placement = placement
        self._remainder = remainder
        self._new_producer = partial(
            _FedBatchProducer, self._source, placement, remainder, timeout_s, self._times
        )
        self._idle_timeout_s = None if placement.processes else idle_timeout_s
        self._ledger: LedgerKeeper | None = None
        self._open(needs_resync=False)
        self._is_closed = False
        self._clock = WaitClock(self._times.timeline)
        watch_if_requested(self, self._source)

    def _open(self, *, needs_resync: bool) -> None:
        self._producer = self._new_producer(ledger=self._ledger)
        puller = ResumablePuller[FedBatch, SourceState](
            self._producer,
            buffer_size=self._prefetch,
            name="gristmill-feed",
            sleep_s=SLEEP_S,
            idle_timeout_s=self._idle_timeout_s,
        )
        puller.needs_resync = needs_resync  # first: Ctrl-C may come at any moment
        self._puller = puller
        self._end_at_collection = weakref.finalize(self, puller.end)
        self._is_parked = False

    def _park(self) -> None:
        """End what runs in the background, also in the source, until the next call.

        A traceback may keep this object alive for as long as a notebook runs. In a job of several
        processes, the others would wait.
        """
        if self._puller.is_owner or self._puller.is_parked or self._placement.processes:
            return
        self._producer.pauses_source = True
        self._puller.reclaim(PARK_TIMEOUT_S)
        if self._puller.is_owner:
            self._is_parked = True
            self._puller.end()
        else:
            self._puller.park_later()

    def _unpark(self) -> None:
        """Make another puller if the last one has ended with its thread."""
        self._puller.keep()
        if self._is_parked or self._puller.is_parked:
            self._puller.reclaim()  # its thread may still be closing the source
            self._end_at_collection.detach()
            self._open(needs_resync=True)  # the source is ahead by what was prefetched

    def __next__(self) -> Tree:
        if not self._pulled.waiting:
            self._pull()
        entry = self._pulled.waiting[0].entry
        if entry is not None and self._ledger is not None:
            self._ledger.write(self._pulled, entry)
        return take(self._pulled.waiting).batch

    def _pull(self) -> None:
        """Get the next batch."""
        requested_at_s = time.perf_counter()
        try:
            while not self._pulled.waiting:
                self.start_prefetch()
                with traced("wait"), contextlib.suppress(ParkedError):  # it parked just now
                    fed = self._puller.pull()
                    self._pulled = Pulled(self._pulled.position, (fed, fed.position))
                    self._puller.needs_resync = False
            self._clock.count(requested_at_s)
        except StopIteration:
            raise
        except BaseException:
            self._park()
            raise

    def get_state(self) -> SourceState:
        """Return the state of the source after the last batch that `__next__` returned."""
        return self._pulled.position.state()

    def set_state(self, state: SourceState) -> None:
        """Continue from a position.

        Args:
            state: A state of the source, or of a feed of it.
        """
        self._reposition(lambda: self._puller.seek(state))

    def provenance(self) -> Provenance:
        """Return the records of the last batch of this process, as the iterator of the source does.

        Rows that were added as padding, and the rows of other processes, are not in it.

        Raises:
            ProvenanceError: No batch was taken yet, or a step does not keep track of records.
        """
        return self._pulled.position.provenance()

    def origins(self, leaf: Any) -> list[RecordOrigin]:
        """Return the records that a leaf of `DataLoader(provenance=True)` stands for.

        Args:
            leaf: The leaf of a batch, or the rows of it that this process can read. Where JAX has
                only 32 bits, numbers from 2^31 on do not fit: leave the leaf out of the batch
                before it is fed, or set `jax_enable_x64`.

        Raises:
            ProvenanceError: The source is not a loader.
        """
        source: object = self._source
        if not isinstance(source, DataLoaderIterator):
            raise ProvenanceError(
                f"{type(source).__name__} adds no such leaf. Feed a `DataLoader` with "
                "`provenance=True`."
            )
        return source.origins(leaf)

    def exclude(self, *, records: ToExclude = (), steps: Iterable[int] = ()) -> None:
        state = self.get_state()

        def move() -> None:
            self._source.set_state(state)  # batches that were prefetched are computed again
            run_of(self._source)
            iterator: Any = self._source
            iterator.exclude(records=records, steps=steps)

        self._reposition(move)

    def keep_ledger(self, folder: str | os.PathLike[str], *, step: int | None = None) -> None:
        run = run_of(self._source)
        self.set_state(self.get_state())  # batches that were prefetched are not in the ledger
        ledger = open_ledger(folder, run, run.pipeline[0], step=step)
        self._producer.keep(ledger)
        self._ledger = ledger

    def start_prefetch(self) -> None:
        """Start to place batches on the devices, before the first `next`.

        Raises:
            ClosedError: If the iterator was closed.
        """
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the loader or dataset.")
        self._unpark()
        if self._puller.needs_resync:
            self.set_state(self.get_state())
        if not self._producer.is_open:
            self._puller.needs_resync = True
            self._producer.open()
            if self._prefetch:
                self._puller.start()
            self._puller.needs_resync = False

    def close(self) -> None:
        """Stop all background work, and close the source. `get_state` still works."""
        state, provenance = self.get_state(), self._pulled.position.provenance
        self._pulled = Pulled(FeedPosition(lambda: state, provenance))
        self._is_closed = True
        self._puller.reclaim(STOP_TIMEOUT_S)
        self._puller.end()
        if self._ledger is not None:
            self._ledger.close(run_of(self._source))
        source: object = self._source
        if isinstance(source, _Closeable):
            source.close()

    def stats(self) -> Stats:
        """Return what was fed so far, and how long the consumer waited for it.

        The steps are those of the source, if it has any.
        """
        source: object = self._source
        stats = source.stats() if isinstance(source, HasStats) else Stats()
        clock = self._clock
        return replace(
            stats,
            num_elements=clock.num_batches,
            elapsed_s=clock.elapsed_s,
            waited_s=clock.waited_s,
            first_wait_s=clock.first_wait_s,
            place_s=self._times.place_s,
            host_wait_s=self._times.host_wait_s,
            wait_counts=clock.waits.counts,
            history=clock.history.samples,
            recent=clock.history.recent,
        )

    def explain(
        self, *, headspace: Callable[[Any], object] | None = None, num_steps: int = 10
    ) -> "Explanation":
        """Explain how much of the time the consumer waited, for what, and what would change it.

        >>> import numpy as np
        >>> from gristmill import feed, load
        >>> with feed(load(np.ones((6, 2)), num_epochs=1, batch_size=2)) as batches:
        ...     for batch in batches: pass
        ...     batches.explain().stats.num_elements
        3

        Args:
            headspace: The training step, a function of a batch. It is called several times with
                the next batch, which `next` still returns afterwards. It must not
                donate the batch.
            num_steps: How often to call it.
        """
        return explain_iterator(
            self,
            self.stats(),
            headspace=headspace,
            num_steps=num_steps,
            is_dataset=self._is_of_dataset,
        )

    @property
    def _is_of_dataset(self) -> bool:
        return not isinstance(self._source, DataLoaderIterator)

    def _timelines(self) -> list[Timeline]:
        return [*timelines_of(self._source), self._times.timeline]

    def _parts(self) -> Sequence[object]:
        return (self._source,)

    def _settings_shown(self) -> Mapping[str, object]:
        source: object = self._source
        own: dict[str, object] = {"prefetch": self._prefetch}
        if isinstance(source, ReportedRun):
            own = {**source._settings_shown(), **own}  # noqa: SLF001 - of the same base class
        return own

    def _title_shown(self) -> str:
        source: object = self._source
        shown = stable_repr(source)
        if isinstance(source, ReportedRun):
            shown = source._title_shown()  # noqa: SLF001 - as above
        return f"<FeedIterator: {shown}, prefetch={self._prefetch}>"

    @property
    def skipped(self) -> Sequence[SkippedRecord]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The records that the source has skipped so far because they raised."""
        source: object = self._source
        return source.skipped if isinstance(source, _ListsSkips) else ()

    def __repr__(self) -> str:
        return f"FeedIterator({stable_repr(self._source)}, prefetch={self._prefetch})"

    def _repr_html_(self) -> str:
        return show_html(self.stats(), title=repr(self), is_dataset=self._is_of_dataset)

    def __len__(self) -> int:
        """Return the number of batches from the start of the source to its end.

        Raises:
            TypeError: It is not known before they are computed, there is no end, or several
                processes agree on it.
        """
        return require_length(self, self._length())

    def _length(self) -> int | None:
        source: object = self._source
        if self._placement.processes or not isinstance(source, HasPlan):
            return None
        iterator: Any = source
        if isinstance(iterator, DataLoaderIterator) and skips_errors(iterator):
            return None
        return self._remainder.num_batches(plan_of(source))

    def __bool__(self) -> bool:
        return True

    def _reposition(self, move: Callable[[], None]) -> None:
        """Move the source. If that fails or is interrupted, this iterator stays where it is."""
        self._puller.reclaim()  # waits for the old thread: two must not run at once
        self._unpark()
        self._producer.reset()
        move()
        if self._ledger is not None:
            self._ledger.follow(run_of(self._source))
        self._pulled = Pulled(capture_position(self._source))
        self._puller.needs_resync = False

    def _get_next_index(self) -> int:
        self.set_state(self.get_state())
        return get_next_index(self._parent)

    def _set_next_index(self, index: int) -> None:
        self._reposition(lambda: set_next_index(self._parent, index))


@runtime_checkable
class _Closeable(Protocol):
    """A source that can be closed."""

    def close(self) -> object: ...


@runtime_checkable
class _ListsSkips(Protocol):
    """A source that lists the records that it has skipped."""

    @property
    def skipped(self) -> Sequence[SkippedRecord]: ...


@final
class _FedBatchProducer(Producer[FedBatch, SourceState]):
    """Produces the batches of one feed; between `open` and `reset`, those of one run."""

    def __init__(
        self,
        source: BatchSource,
        placement: Placement,
        remainder: Remainder,
        timeout_s: float | None,
        times: FeedTimes,
        ledger: "LedgerKeeper | None",
    ) -> None:
        self._times = times
        self._ledger = ledger
        self._timeout_s = timeout_s
        self._source = source
        self._placement = placement
        self._remainder = remainder
        self._batches: FedBatches | None = None
        self._hosts: HostAgreement | None = None
        self.pauses_source = False
        """Whether nothing of the source is to run in the background after `dispose`."""

    @property
    def is_open(self) -> bool:
        return self._batches is not None

    def open(self) -> None:
        """Start a run. The processes of a job do so in one order, so only the consumer does it."""
        if self._placement.processes:
            jax = load_extra("jax", extra="jax", wanted_by="`feed`")
            self._hosts = HostAgreement(
                JobExchange(),
                self._placement.processes,
                jax.process_index(),
                self._remainder.mode,
                timeout_s=self._timeout_s,
            )
        self._batches = FedBatches(
            self._source, self._placement, self._remainder, self._hosts, self._times, self._ledger
        )

    def keep(self, ledger: "LedgerKeeper") -> None:
        """Write the batches of the next run to a ledger."""
        self._ledger = ledger

    def reset(self) -> None:
        """End a run, so that the next batch starts another one."""
        self.close()
        self._batches = self._hosts = None

    def produce(self) -> FedBatch:
        assert self._batches is not None
        try:
            return self._batches()
        except StopIteration:
            raise
        except BaseException:
            self.close()  # so that the other processes do not wait for this one
            raise

    def seek(self, position: SourceState) -> None:
        self._source.set_state(position)

    def interrupt(self) -> None:
        self.close()

    def close(self) -> None:
        if self._hosts is not None:
            self._hosts.stop()

    def dispose(self) -> None:
        source: object = self._source
        if self.pauses_source and isinstance(source, DataLoaderIterator | StreamIterator):
            run_of(self._source).stream.pause()

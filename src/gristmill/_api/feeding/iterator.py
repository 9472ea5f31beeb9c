"""`FeedIterator`: batches that are on their devices before they are requested."""

import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, cast, final, runtime_checkable

from gristmill._api.dataset.iterator import DatasetIterator
from gristmill._api.experimental.next_index import get_next_index, set_next_index
from gristmill._api.feeding.exchange import JobExchange
from gristmill._api.feeding.fed_batches import (
    BatchSource,
    FedBatch,
    FedBatches,
    SourceState,
    capture_state,
)
from gristmill._api.feeding.hosts import HostAgreement
from gristmill._api.feeding.placement import Placement
from gristmill._api.feeding.remainder import Remainder
from gristmill._base.extras import load_extra
from gristmill._base.resumable_puller import STOP_TIMEOUT_S, Producer, ResumablePuller
from gristmill._metrics.profiler import traced
from gristmill._metrics.stats import Stats
from gristmill.errors import ClosedError
from gristmill.types import Tree

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
    """

    def __init__(
        self,
        source: BatchSource,
        placement: Placement,
        remainder: Remainder,
        prefetch: int,
        *,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(cast(Any, source) if isinstance(source, DatasetIterator) else ())
        self._source: BatchSource = cast(Any, source)
        self._prefetch = prefetch
        self._state: Callable[[], SourceState] = capture_state(self._source)
        self._producer = _FedBatchProducer(self._source, placement, remainder, timeout_s)
        self._puller = ResumablePuller[FedBatch, SourceState](
            self._producer, buffer_size=prefetch, name="gristmill-feed", sleep_s=SLEEP_S
        )
        weakref.finalize(self, self._puller.end)
        self._is_closed = False
        self._clock = _WaitClock()

    def __next__(self) -> Tree:
        requested_at_s = time.perf_counter()
        self.start_prefetch()
        with traced("wait"):
            fed = self._puller.pull()
        self._clock.count(requested_at_s)
        # No function is called from here on, so a Ctrl-C comes either before or after.
        self._state = fed.state
        self._puller.needs_resync = False
        return fed.batch

    def get_state(self) -> SourceState:
        """Return the state of the source after the last batch that `__next__` returned."""
        return self._state()

    def set_state(self, state: SourceState) -> None:
        """Continue from a position.

        Args:
            state: A state of the source, or of a feed of it.
        """
        self._reposition(lambda: self._puller.seek(state))

    def start_prefetch(self) -> None:
        """Start to place batches on the devices, before the first `next`."""
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the loader.")
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
        state = self._state()
        self._state = lambda: state
        self._is_closed = True
        self._puller.reclaim(STOP_TIMEOUT_S)
        self._puller.end()
        source: object = self._source
        if isinstance(source, _Closeable):
            source.close()

    def stats(self) -> Stats:
        """Return what was fed so far, and how long the consumer waited for it.

        The steps are those of the source, if it has any.
        """
        source: object = self._source
        stats = source.stats() if isinstance(source, _HasStats) else Stats()
        clock = self._clock
        return replace(
            stats,
            num_elements=clock.num_batches,
            elapsed_s=clock.elapsed_s,
            waited_s=clock.waited_s,
        )

    def __repr__(self) -> str:
        return f"FeedIterator({self._source!r}, prefetch={self._prefetch})"

    def _reposition(self, move: Callable[[], None]) -> None:
        """Move the source. If that fails or is interrupted, this iterator stays where it is."""
        self._puller.reclaim()  # waits for the old thread: two must not run at once
        self._producer.reset()
        move()
        self._state = capture_state(self._source)
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
class _HasStats(Protocol):
    """A source that counts what it does."""

    def stats(self) -> Stats: ...


@final
class _FedBatchProducer(Producer[FedBatch, SourceState]):
    """Produces the batches of one feed; between `open` and `reset`, those of one run."""

    def __init__(
        self,
        source: BatchSource,
        placement: Placement,
        remainder: Remainder,
        timeout_s: float | None,
    ) -> None:
        self._timeout_s = timeout_s
        self._source = source
        self._placement = placement
        self._remainder = remainder
        self._batches: FedBatches | None = None
        self._hosts: HostAgreement | None = None

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
        self._batches = FedBatches(self._source, self._placement, self._remainder, self._hosts)

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


@final
class _WaitClock:
    """Measures how long the consumer waits for batches."""

    def __init__(self) -> None:
        self.num_batches = 0
        self.waited_s = 0.0
        self._start_s: float | None = None
        self._end_s = 0.0

    def count(self, requested_at_s: float) -> None:
        now_s = time.perf_counter()
        if self._start_s is None:
            self._start_s = requested_at_s
        self._end_s = now_s
        self.waited_s += now_s - requested_at_s
        self.num_batches += 1

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self._start_s is None else self._end_s - self._start_s

"""Producing the batches of a feed: loaded, agreed on between processes, placed on devices."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast, final

import numpy as np

from gristmill._api.dataset.iterator import StreamIterator
from gristmill._api.feeding.feed_times import FeedTimes
from gristmill._api.feeding.hosts import HostAgreement
from gristmill._api.feeding.placement import Placement
from gristmill._api.feeding.remainder import FittedBatch, Remainder, describe_rows, num_rows
from gristmill._api.loader.iterator import DataLoaderIterator
from gristmill._base.call_site import user_line, warn_user_once
from gristmill._base.trees.tree import leaves_with_paths
from gristmill._engine.provenance.origin import Provenance
from gristmill._engine.run import Run
from gristmill._metrics.profiler import traced
from gristmill.errors import PlanError, ProvenanceError
from gristmill.types import Element, Tree

if TYPE_CHECKING:
    from gristmill._api.ledgers.keeper import LedgerEntry, LedgerKeeper

SourceState: TypeAlias = Any
"""A state of a source: bytes of a loader, a dict of a dataset, or that of a user's iterator."""


class BatchSource(Protocol):
    """An iterator of batches that can save and restore its position."""

    def __iter__(self) -> Iterator[Element]: ...

    def __next__(self) -> Element: ...

    def get_state(self) -> SourceState: ...

    def set_state(self, state: SourceState, /) -> None: ...


class FeedPosition(NamedTuple):
    """Functions that return the state after a batch, and its provenance."""

    state: Callable[[], SourceState]
    provenance: Callable[[], Provenance]


class FedBatch(NamedTuple):
    """A batch on its devices, and the position after it."""

    batch: Tree
    position: FeedPosition
    entry: "LedgerEntry | None"
    """What the ledger contains of the batch, if one is kept."""


@final
class FedBatches:
    """Produces one batch per call, and raises `StopIteration` at the end. For one thread only."""

    def __init__(
        self,
        source: BatchSource,
        placement: Placement,
        remainder: Remainder,
        hosts: HostAgreement | None,
        times: FeedTimes | None = None,
        ledger: "LedgerKeeper | None" = None,
    ) -> None:
        self._source = source
        self._placement = placement
        self._remainder = remainder
        self._hosts = hosts
        self._has_ended = False
        self._num_seen = 0
        self._num_rows = 0
        self._shapes: Tree = None
        self._rows = self._empty_rows = ""
        self._times = FeedTimes() if times is None else times
        self._ledger = ledger
        self._entry: LedgerEntry | None = None
        self._made_at = user_line()  # batches may be fed in a thread

    def __call__(self) -> FedBatch:
        with traced("load"):
            fitted = self._load()
        if self._hosts is not None:
            started_at_s = time.perf_counter()
            with traced("agree"):
                fitted = self._agree(self._hosts, fitted)
            self._times.count_agreement(started_at_s)
        if fitted is None:
            raise StopIteration
        started_at_s = time.perf_counter()
        with traced("put"):
            batch = self._remainder.add_mask(*self._placement.put(fitted.batch, fitted.mask))
        self._times.count_placing(started_at_s)
        entry, self._entry = self._entry, None
        return FedBatch(batch, capture_position(self._source), entry)

    def _load(self) -> FittedBatch | None:
        """Return the next batch to feed, or `None` at the end."""
        try:
            fitted = self._next()
            if self._hosts is not None and fitted is not None:
                self._check(self._hosts, fitted)
        except BaseException as error:
            if self._hosts is not None:
                self._hosts.fail(error)
            raise
        return fitted

    def _next(self) -> FittedBatch | None:
        while not self._has_ended:
            batch: Tree = next(self._source, _END)
            self._has_ended = batch is _END
            if not self._num_seen:
                _warn_of_scalars(batch, self._made_at)
            self._num_seen += 1
            fitted = None if self._has_ended else self._remainder.fit(batch)
            if fitted is not None:
                if self._ledger is not None:  # now: the caller may change the batch later
                    self._entry = self._ledger.entry_of_last(run_of(self._source), batch)
                return fitted
        return None

    def _check(self, hosts: HostAgreement, fitted: FittedBatch) -> None:
        """Do all that may fail with a batch. After the processes agree, all must take the step."""
        self._placement.check(fitted.batch)
        self._num_rows = fitted.num_rows or num_rows(fitted.batch)
        self._rows = describe_rows(fitted.batch)
        if self._shapes is None and self._remainder.mode == "pad":
            self._empty_rows = self._rows
            self._shapes = self._remainder.shapes_of(fitted.batch)
            hosts.share(self._shapes)

    def _agree(self, hosts: HostAgreement, fitted: FittedBatch | None) -> FittedBatch | None:
        """Return what to feed in the next step of all processes, or `None` at the end."""
        if fitted is None:
            is_step = hosts.agree(0, self._empty_rows)
        else:
            is_step = hosts.agree(self._num_rows, self._rows)
        if not is_step:
            return None
        if fitted is not None:
            return fitted
        if self._shapes is None:  # this process never had a batch
            self._shapes = hosts.read_shared()
        return self._remainder.empty_batch(self._shapes)


_END = object()


def _warn_of_scalars(element: Tree, line: tuple[str, int]) -> None:
    """Warn if what is fed has no rows: single records, which were not batched."""
    leaves = [leaf for _, leaf in leaves_with_paths(element)]
    if element is not _END and leaves and all(np.ndim(leaf) == 0 for leaf in leaves):
        warn_user_once(
            "feeding scalars",
            "`feed` gets single numbers, not batches, and would move them to the device one by "
            "one. Batch the records before: `load(..., batch_size=128)`, `Batch(128)` among the "
            "operations, or `ds.batch(128)`.",
            line,
        )


def run_of(source: BatchSource) -> Run:
    """Return what the iterator of a loader or dataset runs.

    Raises:
        PlanError: It is another iterator.
    """
    if not isinstance(source, DataLoaderIterator | StreamIterator):
        raise PlanError(
            f"The steps of {type(source).__name__} are not known. Pass the loader or the dataset "
            "to `feed`."
        )
    iterator = cast(Any, source)
    return iterator._run  # noqa: SLF001 - for feeds


def capture_position(source: BatchSource) -> FeedPosition:
    """Record the position of an iterator, which may advance before the position is used."""
    return FeedPosition(capture_state(source), capture_provenance(source))


def capture_state(source: BatchSource) -> Callable[[], SourceState]:
    """Record the position of an iterator, and return a function that returns it as a state."""
    if isinstance(source, DataLoaderIterator | StreamIterator):
        iterator = cast(Any, source)
        return iterator._capture_state()  # noqa: SLF001 - cheaper than `get_state`
    state = source.get_state()
    return lambda: state


def capture_provenance(source: BatchSource) -> Callable[[], Provenance]:
    """Record the last batch of an iterator, and return a function that returns its provenance."""
    if isinstance(source, DataLoaderIterator | StreamIterator):
        iterator = cast(Any, source)
        return iterator._capture_provenance()  # noqa: SLF001 - like `_capture_state`

    def provenance() -> Provenance:
        raise ProvenanceError(
            f"The records of {type(source).__name__} are not known. Pass the loader or the dataset "
            "to `feed`."
        )

    return provenance

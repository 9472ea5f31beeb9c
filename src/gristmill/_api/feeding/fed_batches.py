"""Producing the batches of a feed: loaded, agreed on between processes, placed on devices."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias, cast, final

from gristmill._api.dataset.iterator import StreamIterator
from gristmill._api.feeding.hosts import HostAgreement
from gristmill._api.feeding.placement import Placement
from gristmill._api.feeding.remainder import FittedBatch, Remainder, num_rows
from gristmill._api.loader import DataLoaderIterator
from gristmill._metrics.profiler import traced
from gristmill.types import Element, Tree

SourceState: TypeAlias = Any
"""A state of a source: bytes of a loader, a dict of a dataset, or that of a user's iterator."""


class BatchSource(Protocol):
    """An iterator of batches that can save and restore its position."""

    def __iter__(self) -> Iterator[Element]: ...

    def __next__(self) -> Element: ...

    def get_state(self) -> SourceState: ...

    def set_state(self, state: SourceState, /) -> None: ...


class FedBatch(NamedTuple):
    """A batch on its devices, and a function that returns the state of the source after it."""

    batch: Tree
    state: Callable[[], SourceState]


@final
class FedBatches:
    """Produces one batch per call, and raises `StopIteration` at the end. For one thread only."""

    def __init__(
        self,
        source: BatchSource,
        placement: Placement,
        remainder: Remainder,
        hosts: HostAgreement | None,
    ) -> None:
        self._source = source
        self._placement = placement
        self._remainder = remainder
        self._hosts = hosts
        self._has_ended = False
        self._num_rows = 0
        self._shapes: Tree = None

    def __call__(self) -> FedBatch:
        with traced("load"):
            fitted = self._load()
        if self._hosts is not None:
            with traced("agree"):
                fitted = self._agree(self._hosts, fitted)
        if fitted is None:
            raise StopIteration
        with traced("put"):
            batch = self._remainder.add_mask(*self._placement.put(fitted.batch, fitted.mask))
        return FedBatch(batch, capture_state(self._source))

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
            fitted = None if self._has_ended else self._remainder.fit(batch)
            if fitted is not None:
                return fitted
        return None

    def _check(self, hosts: HostAgreement, fitted: FittedBatch) -> None:
        """Do all that may fail with a batch. After the processes agree, all must take the step."""
        self._placement.check(fitted.batch)
        self._num_rows = fitted.num_rows or num_rows(fitted.batch)
        if self._shapes is None and self._remainder.mode == "pad":
            self._shapes = self._remainder.shapes_of(fitted.batch)
            hosts.share(self._shapes)

    def _agree(self, hosts: HostAgreement, fitted: FittedBatch | None) -> FittedBatch | None:
        """Return what to feed in the next step of all processes, or `None` at the end."""
        if not hosts.agree(0 if fitted is None else self._num_rows):
            return None
        if fitted is not None:
            return fitted
        if self._shapes is None:  # this process never had a batch
            self._shapes = hosts.read_shared()
        return self._remainder.empty_batch(self._shapes)


_END = object()


def capture_state(source: BatchSource) -> Callable[[], SourceState]:
    """Record the position of an iterator, and return a function that returns it as a state."""
    if isinstance(source, DataLoaderIterator | StreamIterator):
        iterator = cast(Any, source)
        return iterator._capture_state()  # noqa: SLF001 - cheaper than `get_state`
    state = source.get_state()
    return lambda: state

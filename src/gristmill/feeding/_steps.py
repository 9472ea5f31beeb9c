"""The steps that are about to come: each a batch on its devices, and the place after it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, final

from gristmill.feeding._hosts import Hosts
from gristmill.feeding._last import Fitted, Last, num_rows
from gristmill.feeding._place import Place
from gristmill.observe import traced
from gristmill.types import Tree


class Source(Protocol):
    """An iterator of batches that can tell its state."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def get_state(self) -> Any: ...

    def set_state(self, state: Any, /) -> None: ...


class Step(NamedTuple):
    """A batch on its devices, and how to get the state after it."""

    batch: Tree
    bookmark: Callable[[], Any]


@final
class Steps:
    """Makes one step after the other, for one thread."""

    def __init__(self, source: Source, place: Place, last: Last, hosts: Hosts | None) -> None:
        self._source = source
        self._place = place
        self._last = last
        self._hosts = hosts
        self._has_ended = False
        self._num_rows = 0
        self._shapes: Tree = None

    def __call__(self) -> Step:
        with traced("load"):
            fitted = self._load()
        if self._hosts is not None:
            with traced("agree"):
                fitted = self._agreed(self._hosts, fitted)
        if fitted is None:
            raise StopIteration
        with traced("put"):
            batch = self._last.join(*self._place.put(fitted.batch, fitted.mask))
        return Step(batch, bookmark_of(self._source))

    def _load(self) -> Fitted | None:
        """Give the next batch that is to be fed; `None` at the end."""
        try:
            fitted = self._next()
            if self._hosts is not None and fitted is not None:
                self._get_ready(self._hosts, fitted)
        except BaseException as error:
            if self._hosts is not None:
                self._hosts.fail(error)
            raise
        return fitted

    def _next(self) -> Fitted | None:
        while not self._has_ended:
            batch: Any = next(self._source, _END)
            self._has_ended = batch is _END
            fitted = None if self._has_ended else self._last.fit(batch)
            if fitted is not None:
                return fitted
        return None

    def _get_ready(self, hosts: Hosts, fitted: Fitted) -> None:
        """Do what may fail with a batch: once the processes have agreed, all take the step."""
        self._place.check(fitted.batch)
        self._num_rows = fitted.num_rows or num_rows(fitted.batch)
        if self._shapes is None and self._last.how == "pad":
            self._shapes = self._last.shapes_of(fitted.batch)
            hosts.show(self._shapes)

    def _agreed(self, hosts: Hosts, fitted: Fitted | None) -> Fitted | None:
        """Give what is fed in the next step, which all processes take; `None` at the end."""
        if not hosts.agree(0 if fitted is None else self._num_rows):
            return None
        if fitted is not None:
            return fitted
        if self._shapes is None:  # it never had a batch
            self._shapes = hosts.shown()
        return self._last.blank(self._shapes)


_END = object()


def bookmark_of(source: Source) -> Callable[[], Any]:
    """Note where an iterator stands; what is called later gives it as a state."""
    note: Any = getattr(source, "bookmark", None)
    if note is not None:
        return note()
    state = source.get_state()
    return lambda: state

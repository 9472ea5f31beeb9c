"""The feeding iterator: batches that are on their devices before they are asked for."""

import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, cast, final

from gristmill._extras import load_extra
from gristmill._pump import Pump
from gristmill.dataset import DatasetIterator, get_next_index, set_next_index
from gristmill.errors import ClosedError
from gristmill.feeding._board import JobBoard
from gristmill.feeding._hosts import Hosts
from gristmill.feeding._last import Last
from gristmill.feeding._place import Place
from gristmill.feeding._steps import Source, Step, Steps, bookmark_of
from gristmill.observe import Stats, traced

NAP_SECONDS = 0.001
"""To dispatch a step takes a fraction of this."""

PATIENCE_SECONDS = 1.0
"""How long to wait for a function of the user's to end before closing what it runs on."""


@final
class FeedIterator(DatasetIterator[Any]):
    """Batches on their devices, up to `ahead` of them before they are asked for.

    Its state is that of the iterator it takes batches from, after the last batch that was handed
    out, whatever is on the devices already. So a checkpoint of the one restores the other.
    """

    def __init__(self, source: Source, place: Place, last: Last, ahead: int) -> None:
        """Take batches from `source`, which is for this iterator alone from now on."""
        super().__init__(cast(Any, source) if isinstance(source, DatasetIterator) else ())
        self._source: Source = cast(Any, source)
        self._place = place
        self._last = last
        self._ahead = ahead
        self._bookmark: Callable[[], Any] = bookmark_of(self._source)
        self._run: _Run | None = None
        self._stop_at_last: Any = None
        self._is_unsure = False
        """Whether the iterator below may stand elsewhere than after the last batch given."""
        self._has_ended = False
        self._is_closed = False
        self._clock = _Clock()

    def __next__(self) -> Any:
        asked_at = time.perf_counter()
        run = self._started()
        if run is None:
            raise StopIteration
        self._is_unsure = True  # until the batch is handed out: the next try begins there again
        try:
            with traced("wait"):
                step = run.take()
        except StopIteration:
            self._has_ended = True
            self._end()
            self._is_unsure = False
            raise
        except BaseException as error:
            if error is run.error:  # else it is a Ctrl-C, and the thread goes on
                self._end()
            raise
        self._clock.count(asked_at)
        # Nothing is called from here on, so Ctrl-C comes before or after.
        self._bookmark = step.bookmark
        self._is_unsure = False
        return step.batch

    def get_state(self) -> Any:
        """Give the place after the last batch that was handed out."""
        return self._bookmark()

    def set_state(self, state: Any) -> None:
        """Go on from a place."""
        self._move(lambda: self._source.set_state(state))

    def start_prefetch(self) -> None:
        """Begin to bring batches onto the devices, before they are asked for."""
        self._started()

    def close(self) -> None:
        """End what runs in the background. The state can still be read."""
        state = self._bookmark()
        self._bookmark = lambda: state
        self._is_closed = True
        self._end(PATIENCE_SECONDS)
        close: Any = getattr(self._source, "close", None)
        if close is not None:
            close()

    def stats(self) -> Stats:
        """Give what was fed so far, and how much of the time the training waited for it.

        The steps are those of the loader, where it tells them.
        """
        tell: Any = getattr(self._source, "stats", None)
        below = Stats() if tell is None else tell()
        clock = self._clock
        return replace(
            below,
            elements=clock.num_given,
            elapsed_s=clock.elapsed_s,
            waited_s=clock.waited_s,
        )

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"FeedIterator({self._source!r}, ahead={self._ahead})"

    def _started(self) -> "_Run | None":
        """Give what runs, begun if need be; `None` after the end."""
        if self._is_closed:
            raise ClosedError("The iterator was closed. Make a new one from the loader.")
        if self._is_unsure:
            self.set_state(self.get_state())
        if self._run is None and not self._has_ended:
            self._is_unsure = True
            hosts: Hosts | None = None
            if self._place.processes:
                jax: Any = load_extra("jax", extra="jax", wanted_by="`feed`")
                me: int = jax.process_index()
                hosts = Hosts(JobBoard(), self._place.processes, me, self._last.how)
            steps = Steps(self._source, self._place, self._last, hosts)
            self._run = _Run(steps, hosts, self._ahead)
            # The thread holds the steps, not this: else an iterator that nobody holds would go on.
            self._stop_at_last = weakref.finalize(self, self._run.stop)
            self._run.start()
            self._is_unsure = False
        return self._run

    def _move(self, move: Callable[[], None]) -> None:
        """Move the iterator below; if that fails or is interrupted, this one stays where it is."""
        self._is_unsure = True
        self._end()
        move()
        self._bookmark = bookmark_of(self._source)
        self._has_ended = False
        self._is_unsure = False

    def _end(self, patience_s: float | None = None) -> None:
        """Stop what runs. It is forgotten only then: no two may run at once."""
        if self._run is not None:
            self._run.stop()
            self._run.wait(patience_s)
            self._run = None
            if self._stop_at_last is not None:
                self._stop_at_last.detach()

    def _get_next_index(self) -> int:
        self.set_state(self.get_state())
        return get_next_index(self._parent)

    def _set_next_index(self, index: int) -> None:
        self._move(lambda: set_next_index(self._parent, index))


@final
class _Run:
    """The steps from a place on: made in a thread, or one by one where nothing is to be ahead."""

    def __init__(self, steps: Steps, hosts: Hosts | None, ahead: int) -> None:
        self._steps = steps
        self._hosts = hosts
        self._pump = Pump(steps, ahead, name="gristmill-feed", nap_s=NAP_SECONDS) if ahead else None
        self.error: BaseException | None = None
        """What came instead of a step."""

    def start(self) -> None:
        if self._pump is not None:
            self._pump.start()

    def take(self) -> Step:
        try:
            return self._steps() if self._pump is None else self._pump.take()
        except BaseException as error:
            if self._pump is None or error is self._pump.error:
                self.error = error
            raise

    def stop(self) -> None:
        if self._hosts is not None:
            self._hosts.stop()
        if self._pump is not None:
            self._pump.stop()

    def wait(self, seconds: float | None) -> None:
        if self._pump is not None:
            self._pump.wait(seconds=seconds)


@final
class _Clock:
    """How long the training waited for batches."""

    def __init__(self) -> None:
        self.num_given = 0
        self.waited_s = 0.0
        self._first_asked_at: float | None = None
        self._last_given_at = 0.0

    def count(self, asked_at: float) -> None:
        now = time.perf_counter()
        if self._first_asked_at is None:
            self._first_asked_at = asked_at
        self._last_given_at = now
        self.waited_s += now - asked_at
        self.num_given += 1

    @property
    def elapsed_s(self) -> float:
        began = self._first_asked_at
        return 0.0 if began is None else self._last_given_at - began

"""Errors and interrupts during a feed lose no batch."""

import signal
import sys
import threading
from itertools import islice
from typing import Any

import jax
import pytest

import gristmill as gm
from gristmill._base.threads.background import BackgroundPrefetcher
from gristmill.errors import FeedError
from tests.api.feeding.batches import (
    EACH_PREFETCH,
    Find,
    Watched,
    lists,
    loader,
    numbers,
)
from tests.time_limits import PATIENCE_S


@EACH_PREFETCH
def test_an_error_of_a_step_is_raised_with_its_notes_and_can_be_retried(prefetch: int):
    is_broken = True

    def step(x: Any) -> Any:
        if is_broken and x == 5:
            raise KeyError("five")
        return x

    with gm.feed(numbers(10, step).batch(2), prefetch=prefetch) as iterator:
        assert lists([next(iterator), next(iterator)]) == [[0, 1], [2, 3]]
        state = iterator.get_state()
        for _ in range(2):
            with pytest.raises(KeyError, match="five") as raised:
                next(iterator)
            assert any("batches.py" in note for note in raised.value.__notes__)
            assert iterator.get_state() == state
        is_broken = False

        assert lists(iterator) == [[4, 5], [6, 7], [8, 9]]


@EACH_PREFETCH
def test_a_batch_that_could_not_be_fed_can_be_retried(prefetch: int):
    is_broken = True

    def step(x: Any) -> Any:
        return "unsupported" if is_broken and x == 2 else x

    with gm.feed(numbers(5, step), prefetch=prefetch) as iterator:
        assert lists([next(iterator), next(iterator)]) == [0, 1]
        state = iterator.get_state()
        with pytest.raises(FeedError):
            next(iterator)
        assert iterator.get_state() == state
        is_broken = False

        assert lists(iterator) == [2, 3, 4]


def is_waiting(thread: threading.Thread) -> bool:
    """Return whether a thread waits for the prefetching thread."""
    frame = sys._current_frames()[thread.ident or 0]
    names: set[str] = set()
    while frame is not None:
        names.add(frame.f_code.co_filename.rpartition("/")[2])
        frame = frame.f_back
    return "background.py" in names


class Gated(Watched):
    """Sends Ctrl-C before its third batch, once the main thread waits for it."""

    def __init__(self, iterator: Any, asked: list[int]) -> None:
        super().__init__(iterator)
        self.asked = asked
        self.may_continue = threading.Event()

    def __next__(self) -> Any:
        if len(self.addresses) == 2 and not self.may_continue.is_set():
            me = threading.main_thread()
            poll = threading.Event()
            while not (len(self.asked) == 3 and is_waiting(me)):
                poll.wait(0.001)
            signal.pthread_kill(me.ident or 0, signal.SIGINT)
            self.may_continue.wait(PATIENCE_S)
        return super().__next__()


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("then", ["next", "set_state", "close"])
def test_ctrl_c_while_waiting_loses_no_batch(prefetch: int, then: str, own_threads: Find):
    assert threading.current_thread() is threading.main_thread()
    asked: list[int] = []
    source = Gated(iter(loader(20)), asked)
    own = iter(loader(20))
    list(islice(own, 2))
    state, rest = own.get_state(), lists(own)
    with gm.feed(source, prefetch=prefetch) as iterator:

        def train() -> None:
            for number in range(4):
                asked.append(number)
                next(iterator)

        with pytest.raises(KeyboardInterrupt):
            train()
        source.may_continue.set()

        assert asked == [0, 1, 2]
        assert iterator.get_state() == state
        if then == "close":
            return
        if then == "set_state":
            iterator.set_state(state)
        assert lists(iterator) == rest


@jax.tree_util.register_pytree_node_class
class Interrupting:
    """A batch whose first transfer is interrupted by Ctrl-C."""

    is_first = True

    def __init__(self, x: Any) -> None:
        self.x = x

    def tree_flatten(self) -> Any:
        if Interrupting.is_first and self.x == 2:
            Interrupting.is_first = False
            signal.raise_signal(signal.SIGINT)
        return (self.x,), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> "Interrupting":
        return cls(*children)


def test_ctrl_c_during_the_transfer_loses_no_batch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Interrupting, "is_first", True)
    with gm.feed(numbers(5, Interrupting), prefetch=0) as iterator:
        seen = [int(next(iterator).x), int(next(iterator).x)]
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        seen += [int(batch.x) for batch in iterator]

    assert seen == [0, 1, 2, 3, 4]


def test_an_interrupt_while_the_thread_starts_loses_no_batch(
    monkeypatch: pytest.MonkeyPatch, own_threads: Find
):
    start, interrupts = BackgroundPrefetcher.start, ["before", "after"]

    def interrupted(self: BackgroundPrefetcher[Any]) -> None:
        is_ours = self._thread.role == "gristmill-feed"  # not the thread of the dataset
        when = interrupts.pop() if interrupts and is_ours else None
        if when != "before":
            start(self)
        if when is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(BackgroundPrefetcher, "start", interrupted)
    with gm.feed(numbers(8).batch(2)) as iterator:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        assert lists(iterator) == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.fixture
def interrupt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the first wait for the end of the thread, as Ctrl-C does."""
    wait, interrupts = BackgroundPrefetcher.wait, ["one"]

    def interrupted(self: BackgroundPrefetcher[Any], timeout_s: float | None = None) -> bool:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        return wait(self, timeout_s)

    monkeypatch.setattr(BackgroundPrefetcher, "wait", interrupted)


@pytest.mark.usefixtures("interrupt_once")
def test_an_interrupted_set_state_changes_nothing(own_threads: Find):
    with gm.feed(numbers(12).batch(2)) as iterator:
        start = iterator.get_state()
        assert lists(islice(iterator, 2)) == [[0, 1], [2, 3]]
        state = iterator.get_state()
        with pytest.raises(KeyboardInterrupt):
            iterator.set_state(start)

        assert iterator.get_state() == state
        assert lists(iterator) == [[4, 5], [6, 7], [8, 9], [10, 11]]


@pytest.mark.usefixtures("interrupt_once")
def test_an_interrupted_close_can_be_repeated(own_threads: Find):
    iterator = gm.feed(numbers(12).batch(2))
    next(iterator)
    state = iterator.get_state()
    with pytest.raises(KeyboardInterrupt):
        iterator.close()
    iterator.close()

    assert iterator.get_state() == state

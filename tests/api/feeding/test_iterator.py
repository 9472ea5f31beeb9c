"""How far a feed runs ahead, and how it ends."""

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill.errors import ClosedError, FeedError
from tests.api.feeding.batches import Find, Stepwise, Watched, loader, of
from tests.time_limits import PATIENCE_S


@pytest.mark.parametrize("prefetch", [1, 2, 4])
def test_at_most_prefetch_batches_are_produced_ahead(prefetch: int, own_threads: Find):
    made: list[int] = []
    has_made = threading.Condition()

    class BatchSource:
        """Yields batches on request, never ahead."""

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            with has_made:
                made.append(len(made))
                has_made.notify_all()
            return np.int32(made[-1])

        def get_state(self) -> Any:
            return len(made)

        def set_state(self, state: Any) -> None:
            del made[state:]

    iterator = gm.feed(BatchSource(), prefetch=prefetch)
    iterator.start_prefetch()
    for num_taken in range(4):
        with has_made:
            assert has_made.wait_for(lambda n=num_taken: len(made) == n + prefetch, PATIENCE_S)
        assert next(iterator) == num_taken
    iterator.close()  # waits for the thread, so no more follow

    assert len(made) <= 4 + prefetch


def test_without_prefetching_batches_are_produced_on_demand_and_without_a_thread(
    own_threads: Find,
):
    made: list[int] = []

    def step(x: Any) -> Any:
        made.append(threading.get_ident())
        return x

    with gm.feed(Watched(Stepwise(step)), prefetch=0) as iterator:
        iterator.start_prefetch()
        assert made == []
        for number in range(3):
            assert next(iterator) == number
            assert len(made) == number + 1
            assert own_threads() == []
    assert set(made) == {threading.get_ident()}


def test_no_thread_runs_before_the_first_request(own_threads: Find):
    iterator = gm.feed(loader())
    assert own_threads() == []

    iterator.start_prefetch()
    assert len(own_threads()) == 1
    iterator.close()


def test_closing_ends_the_thread_and_the_state_can_still_be_read(own_threads: Find):
    iterator = gm.feed(loader())
    next(iterator)
    state = iterator.get_state()
    (thread,) = own_threads()

    iterator.close()
    iterator.close()
    thread.join(PATIENCE_S)

    assert own_threads() == []
    assert iterator.get_state() == state
    for _ in range(2):
        with pytest.raises(ClosedError):
            next(iterator)
    with pytest.raises(ClosedError):
        iterator.start_prefetch()


def test_a_feed_can_be_closed_after_its_end_or_after_an_error(own_threads: Find):
    for iterator in (gm.feed(loader()), gm.feed(of("unsupported")), gm.feed(loader(), prefetch=0)):
        with suppress(FeedError):
            list(iterator)
        iterator.close()
        with pytest.raises(ClosedError):
            next(iterator)


def test_closing_closes_the_source():
    own = iter(loader())
    gm.feed(own).close()

    with pytest.raises(ClosedError):
        next(own)


def test_the_thread_ends_when_the_iterator_is_garbage_collected(own_threads: Find):
    iterator = gm.feed(loader(1000))
    next(iterator)
    (thread,) = own_threads()
    gone = weakref.ref(iterator)

    del iterator
    gc.collect()
    thread.join(PATIENCE_S)

    assert gone() is None
    assert not thread.is_alive()


def test_the_end_keeps_no_objects_of_the_caller_alive():
    class Model:
        """A large object."""

    def train(iterator: Any) -> weakref.ref[Model]:
        model = Model()
        with suppress(StopIteration):
            while True:
                next(iterator)
        return weakref.ref(model)

    with gm.feed(loader()) as iterator:
        gone = train(iterator)
        gc.collect()
        assert gone() is None


def test_a_step_that_hangs_does_not_block_close(own_threads: Find):
    is_inside, may_end = threading.Event(), threading.Event()

    def step(x: Any) -> Any:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        return x

    iterator = gm.feed(Watched(Stepwise(step)))
    iterator.start_prefetch()
    assert is_inside.wait(PATIENCE_S)
    iterator.close()
    assert not may_end.is_set()

    may_end.set()


def test_stats_count_the_fed_batches_and_the_waiting_time():
    with gm.feed(loader()) as iterator:
        assert iterator.stats().num_elements == 0
        list(iterator)
        stats = iterator.stats()

    assert stats.num_elements == 3
    assert 0 <= stats.waited_s <= stats.elapsed_s
    assert stats.summary().startswith("waited for data ")

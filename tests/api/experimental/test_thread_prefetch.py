"""Running ahead changes nothing, and ends with the iterator."""

import gc
import json
import threading
import weakref
from typing import Any

import jax
import numpy as np
import pytest

from gristmill._api.experimental.next_index import get_next_index, set_next_index
from gristmill._api.experimental.thread_prefetch import ThreadPrefetchDatasetIterator
from gristmill._base.threads.background import Background
from gristmill.errors import ClosedError, PlanError, StateError
from tests.compat.both_sides import assert_resumes, assert_same, double, ours, passes, take

experimental = ours.experimental


class Counting:
    """An iterator of the user's own, not even one of ours."""

    def __init__(self, stop: int, fails_at: int | None = None) -> None:
        self.next = 0
        self.stop = stop
        self.fails_at = fails_at
        self.has_made = threading.Condition()

    def __next__(self) -> int:
        if self.next == self.fails_at:
            self.fails_at = None
            raise KeyError(self.next)
        if self.next == self.stop:
            raise StopIteration
        with self.has_made:
            self.next += 1
            self.has_made.notify_all()
        return self.next - 1

    def get_state(self) -> Any:
        return {"next": self.next}

    def set_state(self, state: Any) -> None:
        self.next = state["next"]


def threads() -> list[Background]:
    running = [each for each in threading.enumerate() if isinstance(each, Background)]
    return [thread for thread in running if thread.role == "gristmill-prefetch"]


def num_threads() -> int:
    return len(threads())


@pytest.mark.parametrize("size", [0, 1, 3, 100])
def test_the_elements_and_states_are_those_of_the_iterator(size: int):
    iterator = ThreadPrefetchDatasetIterator(Counting(6), size)
    assert iterator.get_state() == {"next": 0}
    for number in range(6):
        assert next(iterator) == number
        assert iterator.get_state() == {"next": number + 1}
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)
    iterator.set_state({"next": 4})
    assert iterator.get_state() == {"next": 4}
    assert list(iterator) == [4, 5]
    iterator.close()


def test_it_runs_ahead_as_far_as_allowed_and_no_further():
    source = Counting(100)
    iterator = ThreadPrefetchDatasetIterator(source, 3)
    iterator.start_prefetch()
    with source.has_made:
        assert source.has_made.wait_for(lambda: source.next >= 3, timeout=60)
    assert next(iterator) == 0
    iterator.close()
    assert source.next <= 5


@pytest.mark.parametrize("size", [0, 2])
def test_an_error_comes_in_its_place_and_the_next_try_goes_on(size: int):
    iterator = ThreadPrefetchDatasetIterator(Counting(5, fails_at=2), size)
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(KeyError):
        next(iterator)
    assert iterator.get_state() == {"next": 2}
    assert list(iterator) == [2, 3, 4]
    iterator.close()


def test_closing_ends_the_thread():
    before = num_threads()
    iterator = ThreadPrefetchDatasetIterator(Counting(100), 2)
    next(iterator)
    iterator.close()
    iterator.close()
    assert num_threads() == before
    assert iterator.get_state() == {"next": 1}
    with pytest.raises(ClosedError):
        next(iterator)


def test_an_iterator_that_nobody_holds_ends_its_thread():
    iterator = ThreadPrefetchDatasetIterator(Counting(100), 2)
    next(iterator)
    thread = threads()[0]
    gone = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert gone() is None
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_over_one_of_our_streams_the_next_index_is_known():
    parent = iter(ours.MapDataset.range(20).to_iter_dataset().map(double))
    iterator = ThreadPrefetchDatasetIterator(parent, 4)
    assert [next(iterator), next(iterator)] == [1, 3]
    assert get_next_index(iterator) == 2
    assert next(iterator) == 5
    set_next_index(iterator, 18)
    state = json.loads(json.dumps(iterator.get_state()))
    assert list(iterator) == [37, 39]
    iterator.set_state(state)
    assert list(iterator) == [37, 39]
    iterator.close()


def test_threads_that_prefetch_are_a_hint():
    ds = ours.MapDataset.range(20).to_iter_dataset().filter(passes(3)).batch(2)
    ahead = experimental.multithread_prefetch(ds, num_threads=3, buffer_size=2)
    assert_same(list(ahead), list(ds))
    assert_resumes(ahead)
    assert experimental.multithread_prefetch(ds, num_threads=0, buffer_size=2) is ds
    with pytest.raises(PlanError):
        experimental.multithread_prefetch(ds, num_threads=-1, buffer_size=2)


def test_elements_are_put_on_the_device():
    device = jax.devices()[0]
    ds = ours.MapDataset.range(10).map(lambda x: {"x": np.float32(x), "y": np.full(2, x, np.int32)})
    ds = ds.to_iter_dataset().batch(4)
    on_device = experimental.device_put(ds, device)
    with iter(on_device) as iterator:
        taken = take(iterator)
    for batch, expected in zip(taken, ds, strict=True):
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch))
        assert all(leaf.devices() == {device} for leaf in jax.tree.leaves(batch))
        assert_same(jax.tree.map(np.asarray, batch), expected)


def test_what_is_on_the_device_goes_on_from_any_state_and_may_be_mapped():
    ds = ours.MapDataset.range(7).map(np.int32).to_iter_dataset()
    on_device = experimental.device_put(ds, jax.devices()[0], device_buffer_size=1)
    iterator = iter(on_device)
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    state = json.loads(json.dumps(iterator.get_state()))
    iterator.close()
    with iter(on_device) as resumed:
        resumed.set_state(state)
        assert [int(element) for element in resumed] == [3, 4, 5, 6]
    with iter(on_device.map(int).batch(2)) as mapped:
        assert [batch.tolist() for batch in mapped] == [[0, 1], [2, 3], [4, 5], [6]]


def test_buffers_are_checked():
    ds = ours.MapDataset.range(3).to_iter_dataset()
    with pytest.raises(PlanError, match="device_buffer_size"):
        experimental.device_put(ds, jax.devices()[0], device_buffer_size=-1)
    with pytest.raises(PlanError, match="prefetch_buffer_size"):
        ThreadPrefetchDatasetIterator(iter(ds), -1)


def test_a_state_that_is_refused_changes_nothing():
    ds = ours.MapDataset.range(20).to_iter_dataset()
    with ThreadPrefetchDatasetIterator(iter(ds), 4) as iterator:
        assert [next(iterator), next(iterator)] == [0, 1]
        with pytest.raises(StateError):
            iterator.set_state({"not": "a state"})
        assert list(iterator) == list(range(2, 20))

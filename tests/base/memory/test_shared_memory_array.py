"""Arrays in shared memory: attached by name, detached with the last view, pickled by name."""

import gc
import pickle
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

from gristmill._base.memory.shared_memory_array import SharedMemoryArray, _Release


@pytest.fixture
def array() -> SharedMemoryArray:
    made = SharedMemoryArray((2, 3), np.int16)
    made[:] = [[1, 2, 3], [4, 5, 6]]
    made.unlink_on_del()
    return made


def exists(name: str) -> bool:
    try:
        SharedMemory(name).close()
    except FileNotFoundError:
        return False
    return True


def test_another_array_attaches_to_the_same_memory(array: SharedMemoryArray):
    other = SharedMemoryArray.from_metadata(array.metadata)
    other[0, 0] = 9

    assert array[0, 0] == 9
    assert (other.shape, other.dtype) == (array.shape, array.dtype)


def test_a_pickled_array_contains_no_elements(array: SharedMemoryArray):
    again = pickle.loads(pickle.dumps(array))
    again[1, 2] = 8

    assert array[1, 2] == 8


def test_views_and_results_are_pickled_as_arrays_of_their_own(array: SharedMemoryArray):
    for one in (array[1], array.T, array + 1):
        again = pickle.loads(pickle.dumps(one))
        assert np.array_equal(again, one)
        assert not np.may_share_memory(again, array)


def test_results_of_computations_are_plain_arrays(array: SharedMemoryArray):
    assert type(array + 1) is np.ndarray
    assert isinstance(array.sum(), np.integer)
    with pytest.raises(ValueError, match="not in shared memory"):
        _ = array.copy().metadata


def test_the_memory_is_freed_with_the_last_view(array: SharedMemoryArray):
    made = SharedMemoryArray((4,), np.int64)
    made.unlink_on_del()
    name, view = made.metadata.name, made[1:]
    view[:] = 7
    del made
    gc.collect()
    assert exists(name)
    assert view.tolist() == [7, 7, 7]
    del view
    gc.collect()
    assert not exists(name)


def test_memory_that_nobody_unlinks_stays_until_its_metadata_free_it():
    made = SharedMemoryArray((4,))
    metadata = made.metadata
    del made
    gc.collect()
    assert exists(metadata.name)
    metadata.close_and_unlink_shm()
    assert not exists(metadata.name)


def test_arrays_are_detached_in_background_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_Release, "threads", None)
    monkeypatch.setattr(_Release, "waiting", None)
    SharedMemoryArray.enable_async_del(num_threads=2)
    made = SharedMemoryArray((4,))
    made.unlink_on_del()
    name = made.metadata.name
    threads = _Release.threads
    del made
    gc.collect()
    assert threads is not None
    threads.shutdown(wait=True)
    assert not exists(name)

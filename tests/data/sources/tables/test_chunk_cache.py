import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gristmill._data.sources.tables.chunk_cache import ChunkCache
from tests.time_limits import PATIENCE_S


def test_a_cached_value_is_not_loaded_again():
    cache = ChunkCache[str](max_bytes=10)
    assert cache.get(1, lambda: ("first", 5)) == "first"
    assert cache.get(1, lambda: ("second", 5)) == "first"


def test_the_least_recently_used_value_is_evicted_first():
    cache = ChunkCache[int](max_bytes=2)
    for number in (1, 2, 1, 3):
        cache.get(number, lambda number=number: (number, 1))
    loaded: list[int] = []
    for number in (1, 3, 2):
        cache.get(number, lambda number=number: (loaded.append(number) or number, 1))
    assert loaded == [2]


def test_the_last_used_value_stays_however_large_it_is():
    cache = ChunkCache[str](max_bytes=1)
    cache.get(1, lambda: ("large", 100))
    assert cache.get(1, lambda: ("again", 100)) == "large"
    cache.get(2, lambda: ("other", 100))
    assert len(cache) == 1


def test_threads_that_ask_for_the_same_value_load_it_once():
    cache = ChunkCache[object](max_bytes=10)
    may_finish = threading.Event()
    num_loaded = 0

    def load() -> tuple[object, int]:
        nonlocal num_loaded
        num_loaded += 1
        may_finish.wait(PATIENCE_S)
        return object(), 1

    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(cache.get, 1, load) for _ in range(4)]
        may_finish.set()
        assert len({id(future.result()) for future in waiting}) == 1
    assert num_loaded == 1


def test_threads_load_different_values_at_the_same_time():
    cache = ChunkCache[int](max_bytes=10)
    both = threading.Barrier(2, timeout=PATIENCE_S)
    with ThreadPoolExecutor(2) as threads:
        waiting = [
            threads.submit(cache.get, n, lambda n=n: (both.wait() * 0 + n, 1)) for n in (1, 2)
        ]
        assert [future.result() for future in waiting] == [1, 2]


def test_an_error_reaches_the_thread_that_loads_and_a_waiting_thread_loads_again():
    cache = ChunkCache[str](max_bytes=10)
    has_begun, may_fail = threading.Event(), threading.Event()

    def fail() -> tuple[str, int]:
        has_begun.set()
        may_fail.wait(PATIENCE_S)
        raise OSError("no")

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(cache.get, 1, fail)
        has_begun.wait(PATIENCE_S)
        second = threads.submit(cache.get, 1, lambda: ("loaded", 1))
        may_fail.set()
        with pytest.raises(OSError, match="no"):
            first.result()
        assert second.result() == "loaded"

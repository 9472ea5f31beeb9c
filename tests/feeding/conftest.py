"""What the tests of feeding share."""

import gc
import threading
from collections.abc import Callable, Iterator

import pytest

PATIENCE_S = 20.0  # only a test that fails waits so long
THREAD_NAMES = ("gristmill-feed", "pump-test")

Find = Callable[[], list[threading.Thread]]


@pytest.fixture
def own_threads() -> Iterator[Find]:
    """Give a function that lists our threads of this test; after it none may be left."""
    gc.collect()
    before = set(threading.enumerate())

    def find() -> list[threading.Thread]:
        alive = set(threading.enumerate()) - before
        return [thread for thread in alive if thread.name in THREAD_NAMES]

    yield find
    gc.collect()
    for thread in find():
        thread.join(PATIENCE_S)
    assert not find()

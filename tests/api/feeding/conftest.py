"""Fixtures of the tests of feeding."""

import gc
import threading
from collections.abc import Iterator

import pytest

from gristmill._base.threads.background import Background
from tests.api.feeding.batches import Find
from tests.time_limits import PATIENCE_S

THREAD_NAME = "gristmill-feed"


@pytest.fixture
def own_threads() -> Iterator[Find]:
    """Return a function that lists the threads of this test. None may remain after the test."""
    gc.collect()
    before = set(threading.enumerate())

    def find() -> list[threading.Thread]:
        alive = set(threading.enumerate()) - before
        return [
            thread
            for thread in alive
            if isinstance(thread, Background) and thread.role == THREAD_NAME
        ]

    yield find
    gc.collect()
    for thread in find():
        thread.join(PATIENCE_S)
    assert not find()

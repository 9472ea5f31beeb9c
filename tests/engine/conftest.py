"""What the tests of running streams share."""

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gristmill import DataLoader, IndexSampler, ReadOptions
from gristmill._base.threads.background import Background
from tests.policies import EAGER, TuningPolicy, with_policy
from tests.time_limits import PATIENCE_S

THREAD_NAME = "gristmill-stream"


@pytest.fixture
def own_threads() -> Iterator[Callable[[], list[threading.Thread]]]:
    """Return a function that lists our threads of this test; after it none may be left."""
    gc.collect()
    before = set(threading.enumerate())

    def find() -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if isinstance(thread, Background)
            and thread.role == THREAD_NAME
            and thread not in before
        ]

    yield find
    gc.collect()
    for thread in find():
        thread.join(PATIENCE_S)
    assert not find()


@pytest.fixture
def make_loader() -> Callable[..., DataLoader]:
    """Return a function that makes a loader over one epoch of a source.

    If it prefetches, its thread starts with the first request, whatever the consumer does.
    """

    def make(
        source: Any,
        *operations: Any,
        ahead: bool = True,
        policy: TuningPolicy = EAGER,
        **arguments: Any,
    ) -> DataLoader:
        arguments.setdefault("sampler", IndexSampler(len(source), num_epochs=1, seed=0))
        loader = DataLoader(
            data_source=source,
            operations=operations,
            read_options=ReadOptions(num_threads=int(ahead)),  # the one that prefetches
            **arguments,
        )
        return with_policy(loader, policy)

    return make


@pytest.fixture
def in_time() -> Callable[[Callable[[], Any]], Any]:
    """Return a function that runs another one, and fails if it hangs."""

    def run(function: Callable[[], Any]) -> Any:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert results, "it hangs, or failed"
        return results[0]

    return run

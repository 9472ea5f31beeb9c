"""The production of batches among several processes: here threads, with an exchange in memory."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import jax
import numpy as np
import pytest

import gristmill as gm
from gristmill._api.feeding.fed_batches import FedBatches, capture_state
from gristmill._api.feeding.hosts import HostAgreement
from gristmill._api.feeding.placement import Placement
from gristmill._api.feeding.remainder import Remainder, RemainderMode
from gristmill.errors import FeedError
from tests.api.feeding.batches import Watched, lists, loader
from tests.api.feeding.memory_exchange import MemoryExchange, Store
from tests.time_limits import PATIENCE_S


def producers(mode: RemainderMode, *sources: Any) -> list[FedBatches]:
    """Return the producers of several processes that agree on their steps."""
    store = Store()
    return [
        FedBatches(
            cast(Any, iter(source)),
            Placement(jax.devices()[0], unsupported="raise"),
            Remainder(mode, 4),
            HostAgreement(MemoryExchange(store, process), range(len(sources)), process, mode),
        )
        for process, source in enumerate(sources)
    ]


def produce_all(batches: FedBatches) -> list[Any] | str:
    def produce() -> Iterator[Any]:
        while True:
            try:
                yield batches().batch
            except StopIteration:
                return

    try:
        return lists(produce())
    except (FeedError, ArithmeticError) as error:
        return f"{type(error).__name__}: {error}"


def together(several: list[FedBatches]) -> list[list[Any] | str]:
    with ThreadPoolExecutor(len(several)) as threads:
        futures = [threads.submit(produce_all, batches) for batches in several]
        return [future.result(PATIENCE_S) for future in futures]


def test_dropping_ends_with_the_first_process_that_has_no_full_batch():
    assert together(producers("drop", loader(6), loader(12))) == [[[0, 1, 2, 3]]] * 2


def test_padding_continues_with_empty_batches_until_the_last_process_ends():
    first, second = together(producers("pad", loader(5), loader(9)))

    assert second == [
        ([0, 1, 2, 3], [True] * 4),
        ([4, 5, 6, 7], [True] * 4),
        ([8, 0, 0, 0], [True, False, False, False]),
    ]
    assert first == [
        ([0, 1, 2, 3], [True] * 4),
        ([4, 0, 0, 0], [True, False, False, False]),
        ([0, 0, 0, 0], [False] * 4),
    ]


def test_a_process_without_any_batch_pads_with_the_shapes_of_another():
    nothing = gm.MapDataset.source(np.arange(4)).filter(lambda _: False).to_iter_dataset().batch(4)

    first, _ = together(producers("pad", nothing, loader(4)))

    assert first == [([0, 0, 0, 0], [False] * 4)]


def test_an_error_while_loading_is_raised_in_all_processes():
    def fail(x: Any) -> Any:
        raise ZeroDivisionError("a bad record")

    broken = gm.MapDataset.range(4).map(fail).batch(4)

    first, second = together(producers("drop", broken, loader()))

    assert first == "ZeroDivisionError: a bad record"
    assert second == "FeedError: Process 0 has no step 0: ZeroDivisionError: a bad record"


def test_a_batch_that_cannot_be_placed_is_rejected_before_the_processes_agree():
    too_large = gm.MapDataset.source(np.full(4, 2**40)).batch(4)

    first, second = together(producers("drop", too_large, loader()))

    assert str(first).startswith("FeedError: batch contains 1099511627776")
    assert str(second).startswith("FeedError: Process 0 has no step 0: FeedError: batch contains")


@pytest.mark.parametrize("wrap", [lambda iterator: iterator, Watched], ids=["own", "user's"])
def test_a_captured_state_is_that_of_the_time_of_the_capture(wrap: Any):
    iterator = iter(loader())
    source = wrap(iterator)
    next(source)
    expected = iterator.get_state()

    state = capture_state(source)
    next(source)

    assert state() == expected

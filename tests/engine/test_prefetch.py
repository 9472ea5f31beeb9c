"""How far a stream runs ahead of its consumer."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gristmill import ArraySource, Batch, DataLoader
from tests.policies import EAGER
from tests.time_limits import PATIENCE_S

MakeLoader = Callable[..., DataLoader]
A_WHILE_S = 0.2  # how long to look whether something happens that must not


class Watched:
    """A source that reports when it has been read a number of times."""

    def __init__(self, size: int, *, tell_at: int, never: int) -> None:
        self.size = size
        self.reads = 0
        self.reported = threading.Event()
        self.overrun = threading.Event()
        self._tell_at, self._never = tell_at, never

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.reads += 1
        if self.reads >= self._tell_at:
            self.reported.set()
        if self.reads >= self._never:
            self.overrun.set()
        return index


def test_the_next_block_is_made_while_the_consumer_holds_the_current_one(make_loader: MakeLoader):
    source = Watched(1000, tell_at=4, never=10**9)
    iterator = iter(make_loader(source))

    assert next(iterator) == 0

    assert source.reported.wait(PATIENCE_S)
    assert next(iterator) == 1
    iterator.close()


def test_inline_nothing_is_read_before_it_is_asked_for(make_loader: MakeLoader):
    source = Watched(1000, tell_at=4, never=2)
    iterator = iter(make_loader(source, ahead=False))

    assert next(iterator) == 0
    assert source.reads == 1


BLOCKS_OF_FOUR = replace(EAGER, max_block_positions=4)


@pytest.mark.parametrize("batch_size", [1, 25])
def test_a_consumer_that_waits_holds_the_stream_at_a_few_blocks(
    make_loader: MakeLoader, batch_size: int
):
    # Blocks of 1, 4, 4, ... elements: one handed out, two in store, one in the making. If the
    # machine is slow, the second is of 2.
    source = Watched(10**6, tell_at=7 * batch_size, never=(1 + 4 + 4 + 4) * batch_size + 1)
    iterator = iter(make_loader(source, Batch(batch_size), policy=BLOCKS_OF_FOUR))
    next(iterator)

    assert source.reported.wait(PATIENCE_S)
    assert not source.overrun.wait(A_WHILE_S)
    iterator.close()


def test_reads_never_run_further_ahead_than_four_blocks(make_loader: MakeLoader):
    source = Watched(2000, tell_at=1, never=10**9)

    for handed_out, element in enumerate(make_loader(source, policy=BLOCKS_OF_FOUR)):
        assert element == handed_out
        assert source.reads - handed_out <= 4 * 4


def test_blocks_stay_small_when_records_are_large(make_loader: MakeLoader):
    source = ArraySource(np.broadcast_to(np.zeros(1, np.uint8), (9000, 100_000)))
    largest = 0

    for element in make_loader(source, ahead=False):
        base: Any = element.base
        largest = max(largest, element.nbytes if base is None else base.nbytes)

    assert largest <= 100_000_000  # a thousand records


def test_an_exception_waits_for_its_turn(make_loader: MakeLoader):
    failed = threading.Event()

    def step(element: int) -> int:
        if element == 6:
            failed.set()
            raise ValueError("six")
        return element

    iterator = iter(make_loader(range(100), step))
    seen = [next(iterator)]

    assert failed.wait(PATIENCE_S)  # it has been met, six elements ahead of the consumer
    seen += [next(iterator) for _ in range(5)]
    assert seen == [0, 1, 2, 3, 4, 5]
    state = iterator.get_state()
    with pytest.raises(ValueError, match="six"):
        next(iterator)
    assert iterator.get_state() == state

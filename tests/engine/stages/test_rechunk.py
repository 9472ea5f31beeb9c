"""Chunks: steps above a stateful stage get no more elements than they can compute in a moment."""

import itertools
import threading

import pytest

from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.dataset.stream_datasets import WindowShuffleIterDataset
from tests.policies import fixed_blocks, iterate


def _mixed(count: int = 5000) -> IterDataset[int]:
    return IterDataset.mix([MapDataset.range(count).to_iter_dataset() for _ in range(2)])


def test_a_slow_step_does_not_run_thousands_of_elements_ahead():
    done: list[int] = []
    pause = threading.Event()

    def slow(x: int) -> int:
        pause.wait(0.004)
        done.append(x)
        return x

    stream = WindowShuffleIterDataset(_mixed(), window_size=1000, seed=1).map(slow)
    with iter(stream) as iterator:
        taken = list(itertools.islice(iterator, 20))
        assert len(done) <= 20 + 8
    assert len(taken) == 20


@pytest.mark.parametrize("size", [1, 3, 4096])
def test_chunks_of_any_size_return_the_same_stream(size: int):
    def program() -> IterDataset[int]:
        return _mixed(300).filter(lambda x: x % 3 > 0).map(lambda x: 1000 // (250 - x))

    whole = iter(program())
    expected = list(itertools.islice(whole, 332))
    with pytest.raises(ZeroDivisionError):
        next(whole)
    policy = fixed_blocks(size)
    cut = iterate(program(), policy)
    assert list(itertools.islice(cut, 332)) == expected
    with pytest.raises(ZeroDivisionError):
        next(cut)
    resumed, first = iterate(program(), policy), iterate(program(), policy)
    assert list(itertools.islice(first, 100)) == expected[:100]
    resumed.set_state(first.get_state())
    assert list(itertools.islice(resumed, 232)) == expected[100:]

"""Items that draw from global generators are an error without a seed, and reproducible with one."""

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

import gristmill
from gristmill import ReadOptions
from gristmill._api.adapters.torch.random_state import seeded_generators
from gristmill.errors import SourceError
from gristmill.testing._records import difference

DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.rand(())),
    "numpy": lambda: float(np.random.rand()),
    "random": random.random,
}


class Noisy(Dataset[Any]):
    """Adds noise to its items, as augmentations do."""

    def __init__(self, *names: str, start: int = 0) -> None:
        self.names, self.start = names, start

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        noise = [DRAWS[name]() for name in self.names] if index >= self.start else [0.0]
        return torch.tensor([index, *noise], dtype=torch.float64), index


class Wasteful(Noisy):
    """Draws numbers that its items do not depend on."""

    def __getitem__(self, index: int) -> Any:
        super().__getitem__(index)
        return index


def states() -> list[Any]:
    return [torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()]


def everything(dataset: Any) -> list[Any]:
    with iter(dataset) as iterator:
        return list(iterator)


@pytest.mark.parametrize("name", DRAWS)
def test_an_item_that_draws_is_an_error_with_the_remedy(name: str):
    message = (
        rf"Item 0 of Noisy draws from the global generator of `{name}`, .*"
        r"Pass a `seed` to `from_torch`.*`random_map`\."
    )

    with pytest.raises(SourceError, match=message):
        gristmill.from_torch(Noisy(name))[0]
    with pytest.raises(SourceError, match=message):
        everything(gristmill.from_torch(Noisy(name)).batch(4))


def test_all_generators_that_are_drawn_from_are_named():
    with pytest.raises(SourceError, match="of `torch` and of `random`, so"):
        everything(gristmill.from_torch(Noisy("torch", "random")))


def test_the_item_that_draws_is_found_among_others():
    with pytest.raises(SourceError, match="Item 13 of Noisy"):
        everything(gristmill.from_torch(Noisy("numpy", start=13)).batch(20))
    with pytest.raises(SourceError, match="Item 17 of Noisy"):
        everything(gristmill.from_torch(Subset(Noisy("numpy", start=16), [3, 17, 5])).batch(3))


def test_an_item_that_draws_is_found_in_workers_and_threads():
    noisy = gristmill.from_torch(Noisy("torch")).batch(4)
    options = gristmill.MultiprocessingOptions(num_workers=1)

    with pytest.raises(SourceError, match="draws from the global generator"):
        everything(noisy.to_iter_dataset().mp_prefetch(options))
    with pytest.raises(SourceError, match="draws from the global generator"):
        everything(noisy.to_iter_dataset(ReadOptions(num_threads=4)))


def test_checking_items_does_not_change_the_generators():
    dataset = gristmill.from_torch(Noisy())
    before = states()
    everything(dataset.batch(5))
    assert states() == before


def test_draws_that_change_no_item_are_allowed():
    dataset = gristmill.from_torch(Wasteful("torch", "numpy", "random"))

    for _ in range(5):
        assert [dataset[index] for index in range(20)] == list(range(20))


def test_draws_of_the_program_between_reads_are_allowed():
    dataset = gristmill.from_torch(Noisy())

    for batch in dataset.repeat(20).batch(5):
        for draw in DRAWS.values():
            draw()
        assert batch[0].shape == (5, 1)


def test_another_bit_generator_of_numpy_is_checked_too():
    bits: Any = np.random.get_bit_generator()  # pyright: ignore[reportAttributeAccessIssue]
    np.random.set_bit_generator(np.random.PCG64(1))  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with pytest.raises(SourceError, match="of `numpy`"):
            gristmill.from_torch(Noisy("numpy"))[0]
    finally:
        np.random.set_bit_generator(bits)  # pyright: ignore[reportAttributeAccessIssue]


def test_draws_of_another_thread_are_not_attributed_to_items():
    is_reading, is_drawn = threading.Event(), threading.Event()

    class Watched(Noisy):
        def __getitem__(self, index: int) -> Any:
            if index == 2:
                is_reading.set()
                assert is_drawn.wait(60)
            return index

    def draw() -> None:
        assert is_reading.wait(60)
        DRAWS["random"]()
        is_drawn.set()

    other = threading.Thread(target=draw)
    other.start()
    try:
        assert everything(gristmill.from_torch(Watched())) == list(range(20))
    finally:
        is_reading.set()
        other.join()


def seeded(seed: int = 3, **kwargs: Any) -> Any:
    return gristmill.from_torch(Noisy("torch", "numpy", "random"), seed=seed, **kwargs)


def test_with_a_seed_an_item_depends_only_on_seed_and_index():
    first = [seeded()[index] for index in range(20)]

    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    again = [seeded()[index] for index in reversed(range(20))][::-1]

    assert difference(first, again) is None
    noise = [tuple(x[1:].tolist()) for x, _ in first]
    assert len(set(noise)) == 20
    assert len({value for values in noise for value in values}) == 60
    assert difference(first[0], seeded(seed=4)[0]) is not None


def test_with_a_seed_each_epoch_draws_other_numbers():
    x, y = seeded()[0], seeded()[20]

    assert x[1] == y[1] == 0
    assert x[0].tolist() != y[0].tolist()


def test_with_a_seed_the_stream_is_the_same_for_each_executor():
    dataset = seeded().shuffle(seed=1).repeat(2).batch(3)
    options = gristmill.MultiprocessingOptions(num_workers=2)

    inline = everything(dataset.to_iter_dataset(ReadOptions(num_threads=0)))
    threads = everything(dataset.to_iter_dataset(ReadOptions(num_threads=8)))
    workers = everything(dataset.to_iter_dataset().mp_prefetch(options))

    assert len(inline) == 14
    assert difference(inline, threads) is None
    assert difference(inline, workers) is None


def test_with_a_seed_a_stream_resumes_from_its_state():
    dataset = seeded().batch(3).to_iter_dataset()
    whole = everything(dataset)
    # Closed, as an iterator that prefetches would seed the generators during the next tests.
    with iter(dataset) as iterator, iter(dataset) as other:
        for _ in range(3):
            next(iterator)

        other.set_state(iterator.get_state())

        assert difference(whole[3:], list(other)) is None


def test_with_a_seed_the_generators_are_restored():
    np.random.randn()  # caches a second number for the next call
    before = states()

    everything(seeded().batch(7))

    assert states() == before


def test_the_generators_are_restored_after_an_error():
    before = states()

    with pytest.raises(KeyError), seeded_generators(np.random.default_rng(0)):
        {}[random.random()]

    assert states() == before


def test_a_seed_works_with_a_collate_fn():
    def collate(items: list[Any]) -> Any:
        return {"x": torch.stack([x for x, _ in items]), "n": len(items)}

    batches = everything(seeded(collate_fn=collate).batch(6))

    assert [batch["n"] for batch in batches] == [6, 6, 6, 2]
    assert difference(batches[3]["x"], np.stack([seeded()[i][0] for i in (18, 19)])) is None


def test_a_seed_has_no_effect_on_a_tensor_dataset():
    tensors = torch.utils.data.TensorDataset(torch.arange(3.0))

    assert str(gristmill.from_torch(tensors, seed=1)).startswith("TorchSource(<3 records>")

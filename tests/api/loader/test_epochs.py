"""`loader.epoch` and `loader.epochs`: each epoch different, resumed exactly."""

from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill.checkpoint import gather_states
from gristmill.errors import PlanError, PlanTypeError, StateError


class Jitter(gm.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return int(element) * 1000 + int(rng.integers(1000))


SAMPLERS = {
    "shuffled": lambda: gm.IndexSampler(11, shuffle=True, seed=3, num_epochs=3),
    "endless": lambda: gm.IndexSampler(11, shuffle=True, seed=3),
    "sequential": lambda: gm.SequentialSampler(11, seed=3),
    "subset": lambda: gm.SubsetSampler([5, 2, 2, 9], shuffle=True, seed=3, num_epochs=3),
    "weighted": lambda: gm.WeightedSampler(range(11), seed=3, num_epochs=3, replacement=False),
}


def loader_of(sampler: Any, *operations: Any, **options: Any) -> gm.DataLoader:
    return gm.DataLoader(data_source=range(11), sampler=sampler, operations=operations, **options)


@pytest.mark.parametrize("name", ["shuffled", "subset", "weighted"])
def test_the_epochs_one_after_the_other_are_the_stream(name: str):
    loader = loader_of(SAMPLERS[name](), Jitter())
    each = [list(loader.epoch(epoch)) for epoch in range(3)]
    assert [x for epoch in each for x in epoch] == list(loader)
    assert each[0] != each[1]


def test_the_shard_of_a_sampler_has_epochs_of_its_own():
    for shard in range(3):
        sampler = gm.IndexSampler(11, gm.ShardOptions(shard, 3), True, 3, seed=3)
        loader = loader_of(sampler, Jitter())
        each = [list(loader.epoch(epoch)) for epoch in range(3)]
        assert [x for epoch in each for x in epoch] == list(loader)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_shards_of_a_loader_are_each_epoch_together(name: str):
    for epoch in range(3):
        whole = list(loader_of(SAMPLERS[name](), Jitter()).epoch(epoch))
        shards = [
            loader_of(SAMPLERS[name](), Jitter(), shard_options=gm.ShardOptions(s, 3))
            for s in range(3)
        ]
        assert sorted(x for shard in shards for x in shard.epoch(epoch)) == sorted(whole)


def test_a_sequential_epoch_has_the_same_records_and_other_random_numbers():
    loader = loader_of(SAMPLERS["sequential"](), Jitter())
    one, other = list(loader.epoch(0)), list(loader.epoch(1))
    assert [x // 1000 for x in one] == [x // 1000 for x in other] == [*range(11)]
    assert one != other
    assert one == list(loader)


@pytest.mark.parametrize("worker_count", [0, 2])
def test_each_epoch_has_its_own_last_batch(worker_count: int):
    loader = loader_of(SAMPLERS["endless"](), gm.Batch(4), worker_count=worker_count)
    epoch = -1
    with loader:
        for epoch, batches in loader.epochs(3):
            read = [batch.tolist() for batch in batches]
            assert [len(batch) for batch in read] == [4, 4, 3]
            assert sorted(x for batch in read for x in batch) == [*range(11)]
            assert read == [batch.tolist() for batch in loader.epoch(epoch)]
    assert epoch == 2


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("worker_count", [0, 1])
def test_training_resumes_in_the_middle_of_any_epoch(name: str, worker_count: int):
    loader = loader_of(SAMPLERS[name](), Jitter(), gm.Batch(2))
    seen, states = [], []
    epochs = loader.epochs(3)
    states.append((0, epochs.get_state()))
    for epoch, batches in epochs:
        for batch in batches:
            seen.append((epoch, batch.tolist()))
            states.append((len(seen), epochs.get_state()))
    other = loader_of(SAMPLERS[name](), Jitter(), gm.Batch(2), worker_count=worker_count)
    with other:
        for number, state in states[:: 1 if worker_count == 0 else 4]:
            resumed = other.epochs(3)
            resumed.set_state(state)
            rest = [(epoch, batch.tolist()) for epoch, batches in resumed for batch in batches]
            assert rest == seen[number:]


def test_a_feed_of_an_epoch_has_the_state_of_its_consumer():
    loader = gm.load(np.arange(12, dtype=np.int32), shuffle=True, seed=0, batch_size=3)
    saved, rest = b"", []
    for epoch, batches in loader.epochs(2):
        with gm.feed(batches) as fed:
            for number, batch in enumerate(fed):
                if (epoch, number) > (1, 1):
                    rest.append(batch.tolist())
                elif (epoch, number) == (1, 1):
                    saved = fed.get_state()
    epochs = loader.epochs(2)
    epochs.set_state(saved)
    ((epoch, batches),) = epochs
    assert epoch == 1
    epochs = loader.epochs(2)
    epochs.set_state(saved)
    assert [batch.tolist() for _, batches in epochs for batch in batches] == rest


@pytest.mark.parametrize("in_sampler", [False, True])
def test_an_epoch_resumes_on_another_number_of_shards(in_sampler: bool):
    def shard(index: int, count: int) -> Any:
        options = gm.ShardOptions(index, count)
        sampler = gm.IndexSampler(
            11, options if in_sampler else gm.NoSharding(), shuffle=True, seed=3
        )
        loader = loader_of(sampler, Jitter(), shard_options=None if in_sampler else options)
        return loader.epochs(2)

    def after(epochs: Any, state: bytes) -> list[int]:
        epochs.set_state(state)
        _, elements = next(epochs)
        return list(elements)

    whole = sorted(x for s in range(3) for x in list(shard(s, 3)._loader.epoch(1)))
    before, states = [], []
    for number in range(3):
        epochs = shard(number, 3)
        next(epochs)
        _, elements = next(epochs)
        before += [next(elements) for _ in range(number)]
        states.append(epochs.get_state())
    state = gather_states(states)
    rest = [x for number in range(2) for x in after(shard(number, 2), state)]
    assert sorted(before + rest) == whole


def test_a_state_of_another_epoch_is_refused():
    loader = loader_of(SAMPLERS["endless"]())
    iterator = iter(loader.epoch(1))
    next(iterator)
    with pytest.raises(StateError, match=r"another order.*epoch 1\] .*epoch 2\]"):
        iter(loader.epoch(2)).set_state(iterator.get_state())
    with pytest.raises(StateError, match="another order"):
        iter(loader).set_state(iterator.get_state())
    with pytest.raises(StateError, match="The state is not one of an epoch"):
        loader.epochs(2).set_state(iter(loader).get_state())


def negated(x: int) -> int:
    return -x


def test_a_map_of_an_epoch_is_of_that_epoch():
    loader = loader_of(SAMPLERS["endless"]())
    assert list(loader.epoch(2).map(negated)) == [-x for x in loader.epoch(2)]


class Own:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


def test_arguments_are_checked():
    loader = loader_of(SAMPLERS["endless"]())
    with pytest.raises(PlanError, match="`epoch` must be at least 0"):
        loader.epoch(-1)
    with pytest.raises(PlanError, match="`num_epochs` must be at least 1"):
        loader.epochs(0)
    wrong: Any = None
    with pytest.raises(PlanTypeError, match="`num_epochs` must be an integer"):
        loader.epochs(wrong)
    with pytest.raises(PlanError, match="The epochs of the sampler Own are not known"):
        loader_of(Own()).epoch(0)


def test_a_second_loop_over_the_epochs_begins_again():
    epochs = gm.load(range(6), shuffle=True, seed=0, batch_size=3).epochs(2)
    first = [(epoch, [batch.tolist() for batch in batches]) for epoch, batches in epochs]
    assert next(epochs, None) is None
    assert [(epoch, [batch.tolist() for batch in batches]) for epoch, batches in epochs] == first
    assert [epoch for epoch, _ in first] == [0, 1]

"""`state_dict` and `load_state_dict`, the protocol of PyTorch's stateful objects."""

import json
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
import pytest

from gristmill import MapDataset, ShardOptions, feed, load
from gristmill.errors import StateError
from gristmill.experimental import ElasticIterator


def loader_of_numbers() -> Any:
    return load(np.arange(40), shuffle=True, seed=1, num_epochs=2, batch_size=4)


ITERATORS: dict[str, Callable[[], Any]] = {
    "loader": lambda: iter(loader_of_numbers()),
    "dataset": lambda: iter(MapDataset.range(40).shuffle(seed=1).to_iter_dataset().batch(4)),
    "elastic": lambda: ElasticIterator(MapDataset.range(40), 4, ShardOptions(0, 2)),
    "feed": lambda: feed(loader_of_numbers()),
    "feed of a dataset": lambda: feed(MapDataset.range(40).to_iter_dataset().batch(4)),
}


@pytest.mark.parametrize("kind", sorted(ITERATORS))
def test_a_state_dict_continues_any_iterator(kind: str):
    with closing(ITERATORS[kind]()) as iterator:
        for _ in islice(iterator, 3):
            pass
        state = json.loads(json.dumps(iterator.state_dict()))
        expected = [batch.tolist() for batch in iterator]
    with closing(ITERATORS[kind]()) as resumed:
        resumed.load_state_dict(state)

        assert resumed.state_dict() == state
        assert [batch.tolist() for batch in resumed] == expected


def test_a_state_dict_of_epochs_continues_within_one():
    epochs = loader_of_numbers().epochs(3)
    next(epochs)
    _, batches = next(epochs)
    next(batches)
    state, expected = epochs.state_dict(), next(batches).tolist()

    resumed = loader_of_numbers().epochs(3)
    resumed.load_state_dict(state)

    number, batches = next(resumed)
    assert (number, next(batches).tolist()) == (1, expected)


@pytest.mark.parametrize("kind", ["dataset", "loader"])
def test_an_edited_state_dict_is_refused(kind: str):
    with ITERATORS[kind]() as iterator:
        state = {**iterator.state_dict(), "cursor": [4]}

        with pytest.raises(StateError, match="checksum does not match"):
            iterator.load_state_dict(state)

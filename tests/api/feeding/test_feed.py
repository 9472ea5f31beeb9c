"""`feed`: which data it takes, which batches it yields, and which arguments it rejects."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import gristmill as gm
from gristmill.errors import FeedError, PlanError, PlanTypeError
from tests.api.feeding.batches import (
    EACH_PREFETCH,
    Sample,
    Watched,
    fed,
    first,
    lists,
    loader,
    numbers,
    of,
)


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5, 100])
def test_the_batches_are_those_of_the_loader_on_the_device(prefetch: int):
    device = jax.devices()[0]

    with gm.feed(loader(), device, prefetch=prefetch) as iterator:
        batches = list(iterator)

    assert all(isinstance(batch, jax.Array) for batch in batches)
    assert all(batch.devices() == {device} and batch.committed for batch in batches)
    assert lists(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_without_a_device_arrays_are_not_committed_to_one():
    batch = first(loader())

    assert isinstance(batch, jax.Array)
    assert not batch.committed


MAKE_DATA: dict[str, Callable[[], Any]] = {
    "loader": loader,
    "iterator_of_a_loader": lambda: iter(loader()),
    "map_dataset": lambda: numbers(10).batch(4),
    "iter_dataset": lambda: numbers(10).to_iter_dataset().batch(4),
    "iterator_of_a_dataset": lambda: iter(numbers(10).to_iter_dataset().batch(4)),
    "user_defined_iterator": lambda: Watched(iter(loader())),
}


@pytest.mark.parametrize("kind", MAKE_DATA)
def test_loaders_datasets_and_iterators_with_a_state_can_be_fed(kind: str):
    assert fed(MAKE_DATA[kind]()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_an_iterator_is_fed_from_its_position():
    iterator = iter(loader())
    next(iterator)

    assert fed(iterator) == [[4, 5, 6, 7], [8, 9]]


class Pair(NamedTuple):
    a: Any
    b: Any


def test_trees_keep_their_shape():
    tree = {"s": Sample(np.ones((2, 3)), [np.zeros(2)]), "p": Pair(None, (np.ones(1), None))}

    batch = first(of(tree))

    assert jax.tree.structure(batch) == jax.tree.structure(tree)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch))
    assert isinstance(batch["s"], Sample)
    assert batch["p"].a is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "cpu"}, "`device` must be a device, a sharding, a mesh .* got 'cpu'"),
        ({"device": {"x": 0}}, "`device` must be .* got 0"),
        ({"spec": jax.sharding.PartitionSpec("data")}, "`spec` needs a mesh"),
        ({"prefetch": -1}, "`prefetch` must be at least 0, got -1"),
        ({"prefetch": 1.5}, "`prefetch` must be an integer"),
        ({"remainder": "keeps"}, '`remainder` must be "keep", "drop" or "pad", got \'keeps\''),
        ({"unsupported": "drop"}, '`unsupported` must be "raise" or "pass", got \'drop\''),
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        ({"batch_size": "4"}, "`batch_size` must be an integer"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], message: str):
    with pytest.raises(PlanError, match=message):
        gm.feed(loader(), **arguments)


@pytest.mark.parametrize("spec", ["data", ("data",), {"x": None, "y": 1}], ids=str)
def test_a_spec_that_is_not_a_partition_spec_is_rejected(spec: Any):
    mesh = jax.make_mesh((1,), ("data",))

    with pytest.raises(PlanTypeError, match=r"`spec` must be a `jax\.sharding\.PartitionSpec`"):
        gm.feed(loader(), mesh, spec)


@pytest.mark.parametrize("data", [[1, 2], 5, None, iter([1])], ids=["list", "int", "none", "iter"])
def test_data_without_a_state_is_rejected(data: Any):
    with pytest.raises(PlanTypeError, match="`data` must be a loader, a dataset, or an iterator"):
        gm.feed(data)


@EACH_PREFETCH
def test_a_tree_of_devices_that_is_not_a_prefix_of_the_batch_raises(prefetch: int):
    device = jax.devices()[0]

    with pytest.raises(FeedError, match="must be a prefix of the batch"):
        first(of({"x": np.ones(2)}), {"x": device, "y": device}, prefetch=prefetch)
    with pytest.raises(FeedError, match="must be a prefix of the batch"):
        first(of(np.ones(2)), [device], prefetch=prefetch)

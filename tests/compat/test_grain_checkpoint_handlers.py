"""The handlers of Grain and Orbax for Grain's iterators take ours, in a program that has both."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import grain
import grain.python as pygrain
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from orbax.checkpoint.experimental.emergency.p2p import args as p2p_args
from orbax.checkpoint.experimental.emergency.p2p import local

import gristmill
from gristmill import DataLoader, IndexSampler, MapDataset


def of_loader() -> Any:
    return iter(DataLoader(data_source=range(9), sampler=IndexSampler(9, shuffle=True, seed=1)))


def of_dataset() -> Any:
    return iter(MapDataset.range(9).shuffle(seed=1).batch(2))


def of_feed() -> Any:
    return gristmill.feed(MapDataset.range(9).batch(2))


EACH = pytest.mark.parametrize("make", [of_loader, of_dataset, of_feed])


@EACH
def test_grains_arguments_save_and_restore_our_iterators(make: Any, tmp_path: Path):
    iterator = make()
    next(iterator)
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=grain.checkpoint.CheckpointSave(iterator))
        manager.wait_until_finished()
        again = manager.restore(1, args=grain.checkpoint.CheckpointRestore(make()))

    assert again.get_state() == iterator.get_state()
    assert np.array_equal(next(again), next(iterator))


@EACH
def test_the_peer_to_peer_handler_of_orbax_saves_and_restores_our_iterators(
    make: Any, tmp_path: Path
):
    iterator = make()
    next(iterator)
    handler: Any = local._LocalPyGrainHandlerMixin(process_index=0)
    composite = p2p_args.Composite(
        state=ocp.args.PyTreeSave({"x": np.ones(2)}),
        data_iter=pygrain.PyGrainCheckpointSave(iterator),
    )
    handler.save(epath.Path(tmp_path), args=composite["data_iter"])
    again = handler.restore(epath.Path(tmp_path), args=pygrain.PyGrainCheckpointRestore(make()))

    assert again.get_state() == iterator.get_state()
    assert np.array_equal(next(again), next(iterator))


def test_our_iterators_are_instances_of_grains_classes_and_of_no_other():
    loader, dataset = of_loader(), of_dataset()

    assert isinstance(loader, grain.DataLoaderIterator)
    assert isinstance(dataset, grain.DatasetIterator)
    assert not isinstance(loader, grain.DatasetIterator)
    assert not isinstance(dataset, grain.DataLoaderIterator)
    assert not isinstance(dataset, grain.IterDataset)
    assert dataset.__class__ is type(dataset)


ORDERS = {
    "grain first": "import grain; import gristmill; iterator = {make}",
    "gristmill first": "import gristmill; import grain; iterator = {make}",
    "grain after the iterator": "import gristmill; iterator = {make}; import grain",
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_it_does_not_matter_which_package_is_imported_first(order: str):
    program = order.format(make="iter(gristmill.MapDataset.range(3))")
    program += "\nassert isinstance(iterator, grain.DatasetIterator)"

    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_grain_is_not_imported_for_it():
    program = """
import sys, gristmill
iterator = iter(gristmill.MapDataset.range(3))
assert isinstance(iterator, gristmill.DatasetIterator)
assert iterator.__class__ is type(iterator)
assert "grain" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)

"""`to_torch` passes elements to PyTorch's DataLoader without copies, and saves its position."""

import json
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset
from torch.utils.data._utils import worker

import gristmill
from gristmill import ArraySource, DataLoader, IndexSampler, MapDataset
from gristmill.errors import MissingExtraError, PlanError, PlanTypeError, StateError

X = np.arange(40.0, dtype=np.float32).reshape(20, 2)


def map_dataset() -> Any:
    return MapDataset.source(ArraySource({"x": X, "y": np.arange(20)})).shuffle(seed=3).batch(3)


def data_loader(worker_count: int = 0) -> Any:
    return DataLoader(
        data_source=ArraySource({"x": X, "y": np.arange(20)}),
        sampler=IndexSampler(20, seed=3, shuffle=True, num_epochs=1),
        operations=[gristmill.Batch(3)],
        worker_count=worker_count,
    )


LOADERS: dict[str, Callable[[], Any]] = {
    "MapDataset": map_dataset,
    "IterDataset": lambda: map_dataset().to_iter_dataset(),
    "DataLoader": data_loader,
    "DataLoader with a worker": lambda: data_loader(1),
}


def through_torch(dataset: Any) -> Any:
    return TorchLoader(dataset, batch_size=None)


def to_lists(batches: Any) -> list[Any]:
    return [(batch["x"].tolist(), batch["y"].tolist()) for batch in batches]


@pytest.mark.parametrize("name", LOADERS)
def test_it_is_an_iterable_dataset_of_the_elements(name: str):
    ours = LOADERS[name]()
    dataset = gristmill.to_torch(ours)

    assert isinstance(dataset, IterableDataset)
    for _ in range(2):  # it can be iterated many times
        batches = list(through_torch(dataset))
        assert all(type(batch["x"]) is torch.Tensor for batch in batches)
        assert {batch["y"].dtype for batch in batches} == {torch.int64}
        assert to_lists(batches) == to_lists(ours)


def one(element: Any) -> Any:
    return next(iter(gristmill.to_torch(MapDataset.source([element]))))


TYPES = "bool uint8 int8 uint16 int32 uint64 float16 float64 complex64"


@pytest.mark.parametrize("dtype", TYPES.split())
def test_arrays_are_tensors_on_the_same_memory(dtype: str):
    array = np.arange(6).reshape(2, 3).astype(dtype)

    tensor = one(array)

    assert str(tensor.dtype) == f"torch.{dtype}"
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.tolist() == array.tolist()


def test_dtypes_of_ml_dtypes_are_kept():
    array = np.array([1.5, 2], ml_dtypes.bfloat16)

    tensor = one({"x": array})["x"]

    assert tensor.dtype == torch.bfloat16
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.tolist() == [1.5, 2]
    assert type(one(np.zeros(2, ml_dtypes.int4))) is np.ndarray


def test_arrays_that_pytorch_cannot_share_are_copied():
    frozen = np.arange(3)
    frozen.flags.writeable = False

    for array in (frozen, np.arange(3)[::-1], np.arange(3, dtype=">i4")):
        tensor = one((array,))[0]
        assert tensor.tolist() == array.tolist()
        tensor[0] = 7
    assert frozen.tolist() == [0, 1, 2]


def test_numpy_scalars_become_tensors_without_axes():
    tensor = one({"x": np.float32(2.5)})["x"]

    assert (tensor.dtype, tensor.shape, float(tensor)) == (torch.float32, (), 2.5)


@pytest.mark.parametrize(
    "leaf",
    [
        1,
        2.5,
        "text",
        b"bytes",
        np.array(["text"]),
        np.array([None, 3]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([1.5], np.longdouble),
        np.zeros(1, [("a", "i4")]),
        torch.ones(2),
    ],
    ids=lambda leaf: type(leaf).__name__ + str(getattr(leaf, "dtype", "")).replace(" ", ""),
)
def test_other_leaves_are_kept(leaf: Any):
    assert one({"leaf": leaf})["leaf"] is leaf


@pytest.mark.parametrize("name", ["MapDataset", "IterDataset", "DataLoader"])
@pytest.mark.parametrize("cut", [0, 1, 4, 7])
def test_a_new_dataset_resumes_from_the_state(name: str, cut: int):
    whole = to_lists(LOADERS[name]())
    first = gristmill.to_torch(LOADERS[name]())
    batches = iter(through_torch(first))
    for _ in range(cut):
        next(batches)

    state = json.loads(json.dumps(first.state_dict()))
    second = gristmill.to_torch(LOADERS[name]())
    second.load_state_dict(state)

    assert second.state_dict() == state
    assert to_lists(through_torch(second)) == whole[cut:]
    assert to_lists(through_torch(second)) == whole  # and the next one from the beginning


def test_a_state_of_another_object_is_an_error():
    dataset = gristmill.to_torch(map_dataset())

    with pytest.raises(StateError, match=r"with the key 'gristmill', got the keys \['step'\]\."):
        dataset.load_state_dict({"step": 3})


def test_the_state_before_the_first_element_is_the_start():
    dataset = gristmill.to_torch(map_dataset())
    state = dataset.state_dict()

    dataset.load_state_dict(state)

    assert to_lists(dataset) == to_lists(map_dataset())


@pytest.mark.parametrize("count", [1, 2])
def test_several_workers_of_pytorch_are_an_error(count: int, monkeypatch: pytest.MonkeyPatch):
    info = worker.WorkerInfo(id=0, num_workers=count, seed=1, dataset=cast(Any, None))
    monkeypatch.setattr(worker, "_worker_info", info)  # as in a worker: real ones end slowly
    dataset = gristmill.to_torch(map_dataset())

    if count == 1:
        assert to_lists(dataset) == to_lists(map_dataset())
        return
    with pytest.raises(PlanError, match=r"has 2 workers, .*`num_workers=0`.*worker_count="):
        iter(dataset)


def test_background_threads_end_with_the_iterator():
    before = set(threading.enumerate())
    options = gristmill.ReadOptions(num_threads=2)
    dataset = gristmill.to_torch(map_dataset().repeat(500).to_iter_dataset(options))
    batches = iter(dataset)
    while not set(threading.enumerate()) - before:
        next(batches)
        threading.Event().wait(0.01)  # stands for a training step

    del batches  # the last reference, so it is closed at once

    assert not set(threading.enumerate()) - before
    assert dataset.state_dict()["gristmill"]


def test_it_can_be_pickled():
    dataset = gristmill.to_torch(map_dataset())
    copy = pickle.loads(pickle.dumps(dataset))

    assert to_lists(copy) == to_lists(dataset)
    assert "0x" not in repr(dataset)


def test_an_object_that_is_not_a_loader_is_an_error():
    with pytest.raises(PlanTypeError, match=r"`loader` must be a DataLoader, .* got \[1\]\."):
        gristmill.to_torch([1])  # pyright: ignore[reportArgumentType]


def test_a_missing_pytorch_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingExtraError, match=r"`to_torch` needs .*gristmill\[torch\].`"):
        gristmill.to_torch(map_dataset())

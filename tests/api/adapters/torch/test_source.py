"""The source over a PyTorch dataset reads its items by index, also in a worker."""

import pickle
from typing import Any

import pytest

from gristmill._api.adapters.torch.convert import to_numpy
from gristmill._api.adapters.torch.source import TorchSource
from gristmill.testing import SourceSuite
from gristmill.testing._records import difference
from tests.api.adapters.torch.torch_datasets import KINDS, source_of

WITH_WORKERS = [
    "tensors of bfloat16",
    "concatenated in a subset",
    "concatenated kinds",
    "views",
]
"""A worker takes seconds to import PyTorch, so only these are read in one."""


class TestTorchSource(SourceSuite):
    @pytest.fixture(params=[kind for kind in KINDS if kind != "list"])
    def source(self, request: pytest.FixtureRequest) -> TorchSource:
        self.kind = request.param
        return source_of(KINDS[request.param]())

    def test_worker_process_reads_the_same_records(self, source: Any) -> None:
        if self.kind in WITH_WORKERS:
            super().test_worker_process_reads_the_same_records(source)


@pytest.mark.parametrize("kind", KINDS)
def test_an_element_is_the_item_of_the_dataset(kind: str):
    dataset = KINDS[kind]()
    source = source_of(dataset)

    for index in range(len(dataset)):
        assert difference(to_numpy(dataset[index]), source[index]) is None


def test_a_source_of_tensors_is_unpickled_without_pytorch():
    data = pickle.dumps(source_of(KINDS["concatenated in a subset"]()))

    assert b"torch._" not in data
    expected = source_of(KINDS["concatenated in a subset"]())[0]
    assert difference(expected, pickle.loads(data)[0]) is None


@pytest.mark.parametrize(
    ("kind", "description"),
    [
        ("tensors", "TensorDataset(float32[1], int64[])"),
        ("subset of items", "Subset(Squares)"),
        ("concatenated kinds", "ConcatDataset(3 x Squares, ...)"),
    ],
)
def test_the_repr_describes_the_dataset(kind: str, description: str):
    source = source_of(KINDS[kind]())

    assert repr(source) == f"TorchSource(<{len(source)} records>, {description})"

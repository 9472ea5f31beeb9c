"""`from_torch` yields the batches of PyTorch's own loader as arrays, with each executor."""

import json
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    get_worker_info,
)
from torch.utils.data import DataLoader as TorchLoader

import gristmill
from gristmill import DataLoader, IterDataset, MapDataset, ReadOptions, SequentialSampler
from gristmill.errors import BatchError, MissingExtraError, PlanError, PlanTypeError, SourceError
from gristmill.testing._records import difference

COUNT = 23
Pair = namedtuple("Pair", ["x", "y"])


class Items(Dataset[Any]):
    """Returns items that a function makes of their index."""

    def __init__(self, make: Callable[[int], Any], count: int = COUNT) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Digits(Dataset[Any]):
    """Like the datasets of torchvision: images in memory, and a transform."""

    def __init__(self, transform: Callable[[Any], Any] | None = None) -> None:
        self.data = torch.arange(COUNT * 16, dtype=torch.uint8).reshape(COUNT, 4, 4)
        self.targets = torch.arange(COUNT) % 10
        self.transform = transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        image: Any = Image.fromarray(self.data[index].numpy())
        return (image if self.transform is None else self.transform(image)), int(
            self.targets[index]
        )


def flatten_and_cast(image: Any) -> Any:
    return np.ravel(np.array(image, dtype=np.float32))


def as_tensor(image: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).to(torch.float32).div(255).unsqueeze(0)


DATASETS: dict[str, Callable[[], Any]] = {
    "tensors": lambda: TensorDataset(torch.arange(COUNT * 2.0).reshape(-1, 2), torch.arange(COUNT)),
    "subset": lambda: Subset(TensorDataset(torch.arange(9)), [5, 3, 8, 0, 0, 7, 1]),
    "concatenated": lambda: ConcatDataset([TensorDataset(torch.arange(n)) for n in (3, 1, 12)]),
    "digits as arrays": lambda: Digits(flatten_and_cast),
    "digits as tensors": lambda: Digits(as_tensor),
    "numbers": lambda: Items(lambda i: (i, i / 2, i % 2 == 0)),
    "scalars": lambda: Items(lambda i: {"a": torch.tensor(i), "b": np.float32(i)}),
    "named": lambda: Items(lambda i: Pair(torch.tensor([i]), i)),
    "half": lambda: Items(lambda i: torch.full((2, 2), i, dtype=torch.float16)),
    "nested": lambda: Items(lambda i: {"a": [torch.tensor([i]), {"b": i}], "c": (i,)}),
    "large": lambda: Items(lambda i: torch.full((70, 70), i)),
}
SIZES = [1, 4, COUNT, COUNT + 1]


def by_torch(dataset: Any, size: int) -> list[Any]:
    """Return the batches of PyTorch's loader in NumPy, with lists for tuples."""
    return [as_lists(batch) for batch in TorchLoader(dataset, batch_size=size)]


def as_lists(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: as_lists(child) for key, child in tree.items()}
    if isinstance(tree, Pair):
        return Pair(*map(as_lists, tree))
    if isinstance(tree, list | tuple):
        return list(map(as_lists, tree))
    return tree.numpy() if isinstance(tree, torch.Tensor) else tree


def by_us(dataset: IterDataset[Any] | MapDataset[Any]) -> list[Any]:
    with iter(dataset) as iterator:
        return [as_lists(batch) for batch in iterator]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", DATASETS)
def test_batches_are_those_of_the_pytorch_loader(name: str, size: int):
    dataset = DATASETS[name]()
    ours = gristmill.from_torch(dataset)
    assert isinstance(ours, MapDataset)
    expected = by_torch(dataset, size)

    for num_threads in (0, 4):
        options = ReadOptions(num_threads=num_threads)
        got = by_us(ours.batch(size).to_iter_dataset(options))
        assert difference(expected, got) is None


def test_batches_of_workers_are_those_of_the_pytorch_loader():
    options = gristmill.MultiprocessingOptions(num_workers=2)
    kinds = ["digits as arrays", "digits as tensors", "nested", "large"]
    expected = [batch for name in kinds for batch in by_torch(DATASETS[name](), COUNT)]

    ours = MapDataset.concatenate(
        [gristmill.from_torch(DATASETS[name]()).batch(COUNT) for name in kinds]
    )

    assert difference(expected, by_us(ours.to_iter_dataset().mp_prefetch(options))) is None


def test_elements_are_the_items():
    ours: Any = gristmill.from_torch(Digits())

    image, label = ours[3]
    assert (image.dtype, image.shape, label) == (np.uint8, (4, 4), 3)
    assert (image == Digits().data[3].numpy()).all()
    assert difference([ours[i] for i in range(COUNT)], list(ours)) is None


def test_the_tensor_of_an_item_is_not_copied():
    made: list[torch.Tensor] = []

    def make(index: int) -> torch.Tensor:
        made.append(torch.arange(5.0) + index)
        return made[-1]

    element = gristmill.from_torch(Items(make))[4]

    assert any(np.shares_memory(element, tensor.numpy()) for tensor in made)


def test_writing_into_an_element_does_not_change_the_dataset():
    tensors = TensorDataset(torch.zeros(4, 2))
    ours: Any = gristmill.from_torch(tensors)

    ours[1][0][:] = 7
    next(iter(ours))[0][:] = 7
    next(iter(ours.batch(2)))[0][:] = 7

    assert not tensors.tensors[0].any()


def test_a_data_loader_accepts_it_as_a_source():
    loader = DataLoader(
        data_source=gristmill.from_torch(DATASETS["tensors"](), collate_fn=collate_padded),
        sampler=SequentialSampler(4),
        operations=[gristmill.Batch(2)],
    )

    assert [batch["length"].tolist() for batch in loader] == [[0, 1], [2, 3]]


def collate_padded(items: list[Any]) -> Any:
    """Pad ragged tensors, and return their lengths."""
    assert type(items) is list
    assert all(isinstance(x, torch.Tensor) for x, _ in items)
    return {
        "x": pad_sequence([x for x, _ in items], batch_first=True),
        "length": torch.tensor([n for _, n in items]),
    }


def ragged(index: int) -> Any:
    return torch.arange(index % 5), index % 5


def test_a_collate_fn_makes_the_batches_and_elements_are_unconverted():
    ours: Any = gristmill.from_torch(Items(ragged), collate_fn=collate_padded)

    x, length = ours[4]
    assert torch.equal(x, torch.arange(4))
    assert length == 4
    first = next(iter(ours.batch(3)))
    assert (
        difference({"x": np.array([[0, 0], [0, 0], [0, 1]]), "length": np.array([0, 1, 2])}, first)
        is None
    )
    mapped = ours.map(lambda item: (item[0] + 1, item[1])).batch(3)
    assert mapped[0]["x"].tolist() == [[0, 0], [1, 0], [1, 2]]
    assert ours.batch(3, batch_fn=len)[0] == 3


def test_a_collate_fn_makes_the_batches_in_workers():
    ours = gristmill.from_torch(Items(ragged), collate_fn=collate_padded).shuffle(seed=1).batch(4)
    options = gristmill.MultiprocessingOptions(num_workers=2)

    there = by_us(ours.to_iter_dataset().mp_prefetch(options))

    assert len(there) == 6
    assert difference(by_us(ours), there) is None


@pytest.mark.parametrize("name", DATASETS)
def test_the_default_collate_of_pytorch_makes_its_batches(name: str):
    dataset = DATASETS[name]()
    ours = gristmill.from_torch(dataset, collate_fn=default_collate).batch(4)

    assert difference(by_torch(dataset, 4), by_us(ours)) is None


class Stream(IterableDataset[Any]):
    """Distributes its items to workers, if there are any."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(start, self.count, step):
            yield torch.full((2,), index), index


class Iterable:
    """An iterable with a length that is not an `IterableDataset`."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Any]:
        return iter([torch.tensor(index) for index in range(5)])


class StatefulStream(IterableDataset[Any]):
    """Can save and restore its position."""

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < 1_000:
            self.position += 1
            yield torch.tensor([self.position])
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def test_an_iterable_dataset_becomes_an_iter_dataset():
    ours = gristmill.from_torch(Stream(10))

    assert isinstance(ours, IterDataset)
    for _ in range(2):
        assert difference(by_torch(Stream(10), 4), by_us(ours.batch(4))) is None
    assert [int(x) for x in gristmill.from_torch(Iterable())] == list(range(5))


def test_an_iterable_dataset_is_read_once_with_several_workers():
    options = gristmill.MultiprocessingOptions(num_workers=2)
    ours = gristmill.from_torch(Stream(10)).batch(4)
    assert isinstance(ours, IterDataset)

    assert difference(by_torch(Stream(10), 4), by_us(ours.mp_prefetch(options))) is None


@pytest.mark.parametrize("make", [lambda: Stream(1_000), StatefulStream], ids=["plain", "stateful"])
@pytest.mark.parametrize("cut", [0, 1, 60, 99, 100])
def test_an_iterable_dataset_resumes_from_its_state(make: Callable[[], Any], cut: int):
    ours = gristmill.from_torch(make()).batch(10)
    whole = by_us(ours)
    assert len(whole) == 100
    iterator = iter(ours)
    for _ in range(cut):
        next(iterator)

    other = iter(gristmill.from_torch(make()).batch(10))
    other.set_state(json.loads(json.dumps(iterator.get_state())))

    assert difference(whole[cut:], [as_lists(batch) for batch in other]) is None


def test_a_collate_fn_makes_the_batches_of_an_iterable_dataset():
    ours = gristmill.from_torch(Stream(5), collate_fn=collate_padded)

    assert isinstance(next(iter(ours))[0], torch.Tensor)
    assert [batch["length"].tolist() for batch in ours.batch(2)] == [[0, 1], [2, 3], [4]]


class NoLength:
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Digits, r"`dataset` is the class Digits\. Pass an instance of it\."),
        (NoLength(), r"has `__getitem__` but no `__len__`: NoLength\."),
        (3, r"must be a PyTorch dataset, got 3\. Pass an object with `__len__`"),
        ("mnist", r"`dataset` is a str, not a PyTorch dataset"),
        ({"x": 1}, r"`dataset` is a dict, not a PyTorch dataset"),
        (iter([1]), r"is an iterator \(list_iterator\), which can be read only once"),
    ],
    ids=["class", "no length", "number", "string", "dict", "iterator"],
)
def test_an_object_that_is_not_a_dataset_is_an_error_with_the_remedy(dataset: Any, message: str):
    with pytest.raises(PlanTypeError, match=message):
        gristmill.from_torch(dataset)


def test_invalid_seeds_and_collate_functions_are_errors():
    with pytest.raises(PlanError, match=r"`seed` is for datasets with `__getitem__`.*Stream"):
        gristmill.from_torch(Stream(3), seed=1)
    with pytest.raises(PlanTypeError, match="`collate_fn` must be a function of a list"):
        gristmill.from_torch([1], collate_fn=cast(Any, 3))
    with pytest.raises(PlanError, match="Seed must be"):
        gristmill.from_torch(Items(ragged), seed=-1)


@pytest.mark.parametrize(
    ("make", "message", "record"),
    [
        (
            lambda i: {"x": torch.zeros(3 if i == 2 else 2)},
            r'batch\["x"\]: shapes \(2,\) and \(3,\)\. Crop, resize or pad .* `batch_fn`',
            2,
        ),
        (
            lambda i: (Image.new("L", (2, 3 if i == 1 else 2)), i),
            r"batch\[0\]: shapes \(2, 2\) and \(3, 2\)",
            1,
        ),
        (lambda i: (torch.zeros(2), None if i == 3 else 1), r"batch\[1\]: int and None", 3),
    ],
    ids=["shapes", "images", "none"],
)
def test_items_that_cannot_be_batched_are_named(
    make: Callable[[int], Any], message: str, record: int
):
    ours = gristmill.from_torch(Items(make))

    with pytest.raises(BatchError, match=message):
        ours.batch(4)[0]
    loader = DataLoader(
        data_source=ours, sampler=SequentialSampler(8), operations=[gristmill.Batch(4)]
    )
    with pytest.raises(BatchError, match=message) as caught:
        next(iter(loader))
    assert f"record {record} of the source" in caught.value.__notes__[0]


def test_an_error_of_the_dataset_names_the_item():
    def make(index: int) -> torch.Tensor:
        return torch.zeros(1) if index < 6 else torch.zeros(0)[5]

    ours = gristmill.from_torch(Items(make))

    with pytest.raises(IndexError) as caught:
        by_us(ours)
    assert "reading TorchSource(<23 records>, Items)" in caught.value.__notes__[0]
    assert "element 6." in caught.value.__notes__[0]


def test_a_tensor_that_numpy_cannot_represent_names_the_item():
    with pytest.raises(SourceError, match=r"`\.to_dense\(\)`") as caught:
        by_us(gristmill.from_torch(Items(lambda i: torch.eye(2).to_sparse())).batch(2))
    assert "element 0." in caught.value.__notes__[0]


def test_a_dataset_that_cannot_be_pickled_for_workers_is_named():
    with open(__file__, encoding="utf-8") as file:
        loader = DataLoader(
            data_source=gristmill.from_torch(Digits(lambda image: file.read(1))),
            sampler=SequentialSampler(3),
            worker_count=1,
        )
        with pytest.raises(PlanError, match=r"TorchSource\(<23 records>, Digits\)"):
            next(iter(loader))


def test_a_missing_pytorch_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingExtraError, match=r"`pip install .gristmill\[torch\].`"):
        gristmill.from_torch([1])


class Total(gristmill.Map):
    def map(self, element: Any) -> Any:
        return element.sum()

    def map_batch(self, columns: Any) -> Any:
        return columns.sum(axis=1)


@pytest.mark.parametrize("period", [1, 3])
def test_a_map_over_columns_is_applied_one_by_one_to_tensors_of_several_shapes(period: int):
    dataset = Items(lambda index: torch.arange(index % period + 2))

    totals = list(gristmill.from_torch(dataset).map(Total()))

    assert totals == [sum(range(index % period + 2)) for index in range(len(dataset))]

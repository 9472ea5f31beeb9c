"""Datasets with a long list inside have the same stream in workers, also after a change."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gristmill as grain
from gristmill._engine.executors.serialization.packed_list import MIN_MAPPED_RECORDS

COUNT = MIN_MAPPED_RECORDS + 10


class Folder:
    def __init__(self) -> None:
        self.samples = [(f"train/{number}.jpeg", number % 1000) for number in range(COUNT)]
        self.labels = sorted({label for _, label in self.samples})

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return {"path": path, "label": np.int64(self.labels.index(label))}


class Growing(Folder):
    """Changes its list when it is read, as caches do."""

    def __getitem__(self, index: int) -> Any:
        self.samples.append(("new", index))
        return {"size": np.int64(len(self.samples) > COUNT), "last": self.samples[-1]}


class Whole(Folder):
    """Returns the list itself."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return [index, self.samples] if index == 1 else [index, []]


def loader(source: Any, worker_count: int) -> grain.DataLoader:
    return grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(num_records=len(source), shuffle=True, seed=3, num_epochs=1),
        worker_count=worker_count,
    )


def first(loader: grain.DataLoader, count: int = 300) -> list[Any]:
    iterator = iter(loader)
    return [record for _, record in zip(range(count), iterator, strict=False)]


@pytest.mark.parametrize("kind", [Folder, Growing, Whole])
def test_the_stream_is_the_same_in_workers(kind: Callable[[], Any]):
    with loader(kind(), 2) as there:
        assert first(there) == first(loader(kind(), 0))


def reverse(samples: list[Any]) -> None:
    samples.reverse()


def replace_every_other(samples: list[Any]) -> None:
    samples[::2] = [("changed", 7)] * len(samples[::2])


def append(samples: list[Any]) -> None:
    samples[:] = [("other", label) for _, label in samples[1:]]
    samples.append(("last", 3))


def test_a_changed_list_is_read_by_the_next_iterator():
    folder = Folder()
    with loader(folder, 2) as there:
        before = first(there)
        for change in (reverse, replace_every_other, append):
            change(folder.samples)
            now = first(there)
            assert now == first(loader(folder, 0))
            assert now != before
            before = now


def test_a_dataset_of_pytorch_is_read_from_the_same_memory():
    data: Any = pytest.importorskip("torch.utils.data")

    class Images(data.Dataset):
        def __init__(self) -> None:
            self.samples = [(f"{number}.jpeg", number % 7) for number in range(COUNT)]
            self.targets = [label for _, label in self.samples]
            self.imgs = self.samples

        def __len__(self) -> int:
            return len(self.samples)

        def __getitem__(self, index: int) -> Any:
            path, label = self.samples[index]
            is_list = isinstance(self.imgs, list) and self.imgs is self.samples
            return len(path), label, self.targets[index], is_list

    dataset: Any = grain.from_torch(Images()).shuffle(seed=1).batch(50).to_iter_dataset()
    there = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))

    for _ in range(2):
        for _, here, batch in zip(range(5), dataset, there, strict=False):
            for one, other in zip(here, batch, strict=True):
                np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
            assert np.all(np.asarray(batch[3]))

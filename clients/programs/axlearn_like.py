"""A pipeline built as axlearn builds its own: endless mixtures, and datasets of its own classes.

Its classes use what Grain's base classes have for their subclasses: `_parent`, `_stats`, and the
states of parents.
"""

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import grain.python as grain
import numpy as np
from grain._src.python.data_loader import _determine_worker_count
from grain._src.python.dataset import dataset as dataset_base

from clients._digest import report


class ProportionalSlice(dataset_base.MapDataset[Any]):
    """The elements of each period that are within a range."""

    def __init__(self, parent: Any, within: tuple[int, int], period: int) -> None:
        super().__init__(parent)
        self._within = within
        self._period = period

    def __len__(self) -> int:
        periods, rest = divmod(len(self._parent), self._period)
        begin, end = self._within
        return periods * (end - begin) + max(0, min(rest, end) - begin)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        stats: Any = self._stats
        with stats.record_self_time():
            epoch, offset = divmod(index, len(self))
            begin, end = self._within
            period, offset = divmod(offset, end - begin)
            offset += period * self._period + begin
        return self._parent[epoch * len(self._parent) + offset]


class UnbatchIterator(grain.DatasetIterator[Any]):
    """Yields the elements of batches; its state is that of the parent, and an index."""

    def __init__(self, parent: Any) -> None:
        super().__init__(parent)
        self._batch: Any = None
        self._index = 0
        self._parent_state = parent.get_state()

    def __next__(self) -> Any:
        if self._batch is None:
            self._batch = next(self._parent)
        element = {name: column[self._index] for name, column in self._batch.items()}
        self._index += 1
        if self._index == len(next(iter(self._batch.values()))):
            self._batch, self._index = None, 0
            self._parent_state = self._parent.get_state()
        return element

    def get_state(self) -> Any:
        return {"parent": self._parent_state, "index": self._index}

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state["parent"])
        self._parent_state, self._index, self._batch = state["parent"], state["index"], None


class Unbatch(grain.IterDataset[Any]):
    """Splits batches along their first axis."""

    def __iter__(self) -> Any:
        return UnbatchIterator(self._parent.__iter__())


class WindowIterator(grain.DatasetIterator[Any]):
    """Packs documents into rows; the tokens that are left over are in its state."""

    def __init__(self, parent: Any, length: int) -> None:
        super().__init__(parent)
        self._length = length
        self._tokens = np.zeros(0, np.int32)

    def __next__(self) -> Any:
        while len(self._tokens) < self._length:
            self._tokens = np.concatenate([self._tokens, next(self._parent)["input_ids"]])
        row, self._tokens = self._tokens[: self._length], self._tokens[self._length :]
        return {"input_ids": row, "target_labels": np.roll(row, -1)}

    def get_state(self) -> Any:
        return {"parent": self._parent.get_state(), "tokens": self._tokens.tolist()}

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state["parent"])
        self._tokens = np.array(state["tokens"], np.int32)


class WindowedPacking(grain.IterDataset[Any]):
    """Packs documents into rows of one length."""

    def __init__(self, parent: Any, length: int) -> None:
        super().__init__(parent)
        self._length = length

    def __iter__(self) -> Any:
        return WindowIterator(self._parent.__iter__(), self._length)


def document(seed: int) -> dict[str, Any]:
    """Return a document that is a function of its number."""
    rng = np.random.default_rng(int(seed))
    return {"input_ids": rng.integers(1, 1000, int(rng.integers(1, 60))).astype(np.int32)}


def mixture() -> Any:
    """Return a mixture of three corpora without end."""
    corpora = [grain.MapDataset.range(start, start + size) for start, size in SIZES.items()]
    sliced = [ProportionalSlice(corpus, (0, 9), 10) for corpus in corpora]
    endless = [ds.seed(1).shuffle().map(document).repeat() for ds in sliced]
    assert all(len(ds) == sys.maxsize for ds in endless)
    return grain.MapDataset.mix(endless, weights=[0.6, 0.3, 0.1])


SIZES = {0: 500, 10_000: 211, 20_000: 37}


def elements() -> Iterator[Any]:
    """Yield elements of each pipeline, across a state where there is one."""
    assert _determine_worker_count(input_worker_count=None) >= 1
    rows = WindowedPacking(mixture().to_iter_dataset(), 128).batch(8, drop_remainder=True)
    iterator = rows.__iter__()
    yield from islice(iterator, 20)
    state = iterator.get_state()
    resumed = rows.__iter__()
    resumed.set_state(state)
    yield from islice(resumed, 20)
    ids = grain.MapDataset.range(103).map(lambda x: {"x": x})
    unbatched = Unbatch(ids.seed(2).shuffle().repeat(2).to_iter_dataset().batch(4))
    iterator = unbatched.map(lambda x: x["x"]).__iter__()
    yield from islice(iterator, 30)
    state = iterator.get_state()
    resumed = unbatched.map(lambda x: x["x"]).__iter__()
    resumed.set_state(state)
    yield from resumed
    yield from ProportionalSlice(ids, (3, 7), 10).repeat(2)
    yield from mixture().slice(slice(1, 200, 3)).repeat(2).batch(1)


if __name__ == "__main__":
    report(elements())

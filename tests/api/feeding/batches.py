"""Small loaders, datasets and sources for the tests of feeding."""

import datetime
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import gristmill as gm
from gristmill._api.loader.load import load

Find = Callable[[], list[threading.Thread]]

EACH_PREFETCH = pytest.mark.parametrize("prefetch", [0, 2])


class Watched:
    """A user-defined iterator that records the addresses of the arrays it returns."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator
        self.addresses: list[int] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self.iterator)
        self.addresses.append(batch.ctypes.data)
        return batch

    def get_state(self) -> Any:
        return self.iterator.get_state()

    def set_state(self, state: Any) -> None:
        self.iterator.set_state(state)

    def close(self) -> None:
        self.iterator.close()


def loader(num_records: int = 10, batch_size: int = 4, **arguments: Any) -> gm.DataLoader:
    records = np.arange(num_records, dtype=np.int32)
    return load(records, num_epochs=1, batch_size=batch_size, **arguments)


def numbers(count: int, *steps: Callable[[Any], Any]) -> gm.MapDataset[Any]:
    ds: gm.MapDataset[Any] = gm.MapDataset.range(count).map(np.int32)
    for step in steps:
        ds = ds.map(step)
    return ds


def of(value: Any) -> gm.MapDataset[Any]:
    """Return a dataset whose only element is `value`."""
    return gm.MapDataset.range(1).map(lambda _: value)


def first(data: Any, *where: Any, **arguments: Any) -> Any:
    with gm.feed(data, *where, **arguments) as iterator:
        return next(iterator)


def lists(batches: Any) -> list[Any]:
    return [jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), batch) for batch in batches]


def fed(data: Any, *where: Any, **arguments: Any) -> list[Any]:
    with gm.feed(data, *where, **arguments) as iterator:
        return lists(iterator)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sample:
    """A user-defined pytree."""

    image: Any
    label: Any


class Stepwise:
    """Yields numbers, each computed on request."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self.step = step
        self.next = 0

    def __next__(self) -> Any:
        self.next += 1
        return self.step(np.array(self.next - 1, np.int32))

    def get_state(self) -> Any:
        return self.next

    def set_state(self, state: Any) -> None:
        self.next = state

    def close(self) -> None:
        """Nothing to close."""


UNSUPPORTED: dict[str, Any] = {
    "string": "a cat",
    "bytes": b"raw",
    "strings": np.array(["a", "b"]),
    "bytes_array": np.array([b"a", b"b"]),
    "objects": np.array([{}, None], object),
    "times": np.array(["2020-01-01"], "datetime64[D]"),
    "durations": np.array([3], "timedelta64[s]"),
    "records": np.zeros(2, [("x", np.int32)]),
    "date": datetime.date(2020, 1, 1),
    "anything": {1, 2},
}
"""Leaves that JAX does not support."""

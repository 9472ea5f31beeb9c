"""Keys of batches are in Grain's order on every path, so that `a, b = batch.values()` is safe."""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import grain
import grain.python as grain_python
import numpy as np
import pytest

import gristmill
from gristmill.sources import ArraySource

SIDES = ((grain, grain_python), (gristmill, gristmill.python))


class Pair(NamedTuple):
    left: Any
    right: Any


def ordered(tree: Any) -> Any:
    """Return the keys of a tree, in the order in which they come."""
    if isinstance(tree, dict):
        return type(tree).__name__, [(key, ordered(value)) for key, value in tree.items()]
    if isinstance(tree, list | tuple):
        return type(tree).__name__, [ordered(value) for value in tree]
    return "leaf"


RECORDS: dict[str, Callable[[int], Any]] = {
    "flat": lambda n: {"label": n, "image": np.full(2, n)},
    "nested": lambda n: {"b": {"z": n, "c": [{"y": n, "x": n}]}, "a": (n, {"k": n, "j": n})},
    "ordered dict": lambda n: collections.OrderedDict(b={"y": n, "x": n}, a=n),
    "default dict": lambda n: collections.defaultdict(int, {"b": n, "a": n}),
    "named tuple": lambda n: Pair({"b": n, "a": n}, n),
    "numbers as keys": lambda n: {3: n, 1: n, 2: n},
}


def batches(api: Any, python: Any, source: Any) -> dict[str, Any]:
    ds = api.MapDataset.source(source)
    sampler = python.IndexSampler(len(source), python.NoSharding(), num_epochs=1)
    loader = python.DataLoader(
        data_source=source, sampler=sampler, operations=[python.Batch(2), python.Batch(2)]
    )
    return {
        "batch": ds.batch(2)[0],
        "batch of one": ds.batch(1)[0],
        "stream": next(iter(ds.to_iter_dataset().batch(2))),
        "rebatch": next(
            iter(api.experimental.RebatchIterDataset(ds.to_iter_dataset().batch(2), 3))
        ),
        "loader": next(iter(loader)),
    }


@pytest.mark.parametrize("name", RECORDS)
def test_every_path_orders_keys_as_grain_does(name: str):
    source = [RECORDS[name](number) for number in range(6)]
    expected, made = (batches(*side, source) for side in SIDES)
    for path in expected:
        assert ordered(made[path]) == ordered(expected[path]), path


def test_columns_and_rows_order_keys_alike():
    columns = ArraySource({"b": np.arange(6), "a": {"d": np.ones(6), "c": np.zeros(6)}})
    rows = [columns[index] for index in range(6)]
    for worker_count in (0, 1):
        made = []
        for source in (columns, rows):
            with gristmill.load(
                source, num_epochs=1, batch_size=3, worker_count=worker_count
            ) as loader:
                made.append([ordered(batch) for batch in loader])
        assert made[0] == made[1]
        assert [key for key, _ in made[0][0][1]] == ["a", "b"]


def test_packed_rows_have_grains_order():
    documents = [{"b": np.arange(3), "a": np.arange(2)} for _ in range(6)]
    made: list[Any] = []
    for api, python in SIDES:
        ds = api.MapDataset.source(documents).to_iter_dataset()
        lengths = {"b": 4, "a": 4}
        packed = api.experimental.FirstFitPackIterDataset(
            ds, length_struct=lengths, num_packing_bins=2
        )
        split = api.experimental.ConcatThenSplitIterDataset(ds, length_struct=lengths)
        records = (
            python.Record(python.RecordMetadata(n), document)
            for n, document in enumerate(documents)
        )
        operation = api.experimental.PackAndBatchOperation(lengths, 2)
        made.append(
            [
                ordered(next(iter(packed))),
                ordered(next(iter(split))),
                ordered(next(operation(records)).data),
            ]
        )
    assert made[1] == made[0]


def test_keys_that_cannot_be_compared_keep_their_order():
    (batch,) = gristmill.MapDataset.source([{"b": 1, 2: 3}]).batch(1)
    assert list(batch) == ["b", 2]

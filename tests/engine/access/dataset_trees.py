"""Random trees of `MapDataset`s, as tuples that hypothesis prints, with absent and bad elements."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gristmill import ArraySource, FlatMap, Map, MapDataset
from gristmill._api.dataset.map_dataset import PlannedMapDataset
from gristmill._plan.nodes.steps import BatchNode
from gristmill.experimental import FlatMapMapDataset, WindowShuffleMapDataset, ZipMapDataset
from tests.properties.trees import change, total

Tree = tuple[Any, ...]


@dataclass(frozen=True)
class Records:
    """A source with a bad record."""

    num_records: int
    bad: int

    def __len__(self) -> int:
        return self.num_records

    def __getitem__(self, index: int) -> dict[str, int]:
        if index == self.bad:
            raise OSError(f"record {index} is bad")
        return {"x": index}


class RecordsAtOnce(Records):
    """The same, read many at a time."""

    def __getitems__(self, indices: Any) -> list[dict[str, int]]:
        return [self[index] for index in indices]


class Own(MapDataset[Any]):
    """A dataset of the user's own with absent elements."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return None if index % 5 == 2 else {"x": index}


LEAVES: dict[str, Callable[[int], MapDataset[Any]]] = {
    "range": MapDataset.range,
    "array": lambda size: MapDataset.source(np.arange(3 * size).reshape(size, 3)),
    "columns": lambda size: MapDataset.source(
        ArraySource({"x": np.arange(size, dtype=np.int32), "y": np.arange(size) * 0.5})
    ),
    "records": lambda size: MapDataset.source(Records(size, bad=7)),
    "records at once": lambda size: MapDataset.source(RecordsAtOnce(size, bad=6)),
    "own": Own,
}


class Add(Map):
    """Adds to each number; fails for some elements, by rows as by columns."""

    def __init__(self, by: int, bad: int) -> None:
        self._by = by
        self._bad = bad

    def map(self, element: Any) -> Any:
        if total(_numbers(element)) % self._bad == 1:
            raise ValueError("cannot add")
        return change(lambda leaf: leaf + self._by, _numbers(element))

    def map_batch(self, columns: Any) -> Any:
        leaves = list(columns.values()) if isinstance(columns, dict) else [columns]
        count = len(leaves[0])
        sums = [sum(int(np.sum(leaf[row])) for leaf in leaves) for row in range(count)]
        if any(number % self._bad == 1 for number in sums):
            raise ValueError("cannot add")
        return change(lambda leaf: leaf + self._by, columns)


class Repeat(FlatMap):
    """Each element zero to two times, and too often for some."""

    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [element] * (total(_numbers(element)) % 3 + total(_numbers(element)) % 11 // 10)


def build(tree: Tree) -> MapDataset[Any]:
    """Return the dataset of a tree."""
    match tree:
        case ("leaf", name, size):
            return LEAVES[name](size)
        case ("zip", *parts):
            datasets = [build(part) for part in parts]
            length = min(map(len, datasets))
            return ZipMapDataset([dataset.slice(slice(0, length)) for dataset in datasets])
        case ("concatenate", *parts):
            return MapDataset.concatenate([build(part) for part in parts])
        case ("mix", *parts):
            datasets = [dataset for dataset in map(build, parts) if len(dataset)]
            return MapDataset.mix(datasets) if datasets else MapDataset.range(3)
        case (kind, part, *arguments):
            return _step(build(part), kind, *arguments)
    raise AssertionError(tree)


def _step(dataset: MapDataset[Any], kind: str, *arguments: Any) -> MapDataset[Any]:  # noqa: C901
    match (kind, *arguments):
        case ("shuffle", seed):
            return dataset.shuffle(seed=seed)
        case ("window shuffle", size, seed):
            return WindowShuffleMapDataset(dataset, window_size=size, seed=seed)
        case ("slice", start, step):
            return dataset.slice(slice(start, None, step))
        case ("repeat", num_epochs, reseeds):
            return dataset.repeat(num_epochs, reseed_each_epoch=reseeds)
        case ("map", by, bad):
            return dataset.map(Add(by, bad))
        case ("map with index",):
            return dataset.map_with_index(_add_index)
        case ("random map", seed):
            return dataset.random_map(_add_random, seed=seed)
        case ("filter", modulus):
            return dataset.filter(lambda element: total(_numbers(element)) % modulus > 0)
        case ("flat map",):
            return FlatMapMapDataset(dataset, Repeat())
        case ("batch", size, drop_remainder, function):
            # Not by `batch`, which refuses a dataset that may have absent elements.
            node = BatchNode(
                site="here",
                parent=dataset._plan_node,
                size=size,
                drop_remainder=drop_remainder,
                function=function,
            )
            return PlannedMapDataset(node, (dataset,))
    raise AssertionError(kind)


def _numbers(element: Any) -> Any:
    """Replace what is not a number: elements of a zip may be absent."""
    if isinstance(element, dict):
        return {key: _numbers(value) for key, value in element.items()}
    if isinstance(element, tuple | list):
        return tuple(map(_numbers, element))
    return 0 if element is None else element


def _add_index(index: int, element: Any) -> Any:
    return change(lambda leaf: leaf + index, _numbers(element))


def _add_random(element: Any, rng: np.random.Generator) -> Any:
    return change(lambda leaf: leaf + int(rng.integers(99)), _numbers(element))


def first_unless_three(elements: Any) -> Any:
    """Return a batch that is `None` for some sizes."""
    return None if len(elements) == 3 else _numbers(elements[0])


STEPS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "shuffle": st.tuples(st.integers(0, 5)),
    "window shuffle": st.tuples(st.integers(1, 5), st.integers(0, 5)),
    "slice": st.tuples(st.integers(0, 2), st.integers(1, 3)),
    "repeat": st.tuples(st.integers(1, 3), st.booleans()),
    "map": st.tuples(st.integers(0, 3), st.sampled_from([5, 1000])),
    "map with index": st.tuples(),
    "random map": st.tuples(st.integers(0, 5)),
    "filter": st.tuples(st.integers(2, 4)),
    "flat map": st.tuples(),
    "batch": st.tuples(
        st.integers(1, 4), st.booleans(), st.sampled_from([None, None, first_unless_three])
    ),
}


@st.composite
def trees(draw: st.DrawFn, depth: int = 4) -> Tree:
    """Draw a tree; each kind of node is as likely as any other."""
    kind = draw(st.sampled_from(["leaf", "zip", "concatenate", "mix", *STEPS])) if depth else "leaf"
    if kind in STEPS:
        return (kind, draw(trees(depth - 1)), *draw(STEPS[kind]))
    if kind == "leaf":
        return (kind, draw(st.sampled_from([*LEAVES])), draw(st.integers(1, 12)))
    return (kind, *draw(st.lists(trees(depth - 1), min_size=1, max_size=3)))

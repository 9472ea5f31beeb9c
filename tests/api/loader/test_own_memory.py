"""A batch is always the user's own memory: writing into it changes nothing else."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gristmill as gm

TOTAL = 12
CACHED = np.arange(6).reshape(2, 3)
CONSTANT = np.arange(100_000).reshape(-1, 2)


class Cached(gm.Map):
    def map(self, element: Any) -> Any:
        return {"x": CACHED}


class Same(gm.Map):
    def map(self, element: Any) -> Any:
        return element

    def map_batch(self, columns: Any) -> Any:
        return columns


class Constant(gm.Map):
    def map(self, element: Any) -> Any:
        return CONSTANT[0]

    def map_batch(self, columns: Any) -> Any:
        return np.broadcast_to(CONSTANT[0], (len(columns["x"]), 2))


class SharedColumns(gm.Map):
    """Yields a part of an array that it keeps."""

    def map(self, element: Any) -> Any:
        return CONSTANT[int(element["y"])]

    def map_batch(self, columns: Any) -> Any:
        keys = columns["y"]
        if np.any(np.diff(keys) != 1):  # a block that continues into the next epoch
            return CONSTANT[keys]
        return CONSTANT[int(keys[0]) : int(keys[-1]) + 1]


class Twice(gm.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> Any:
        return [element, element]


class Keep(gm.Filter):
    def filter(self, element: Any) -> bool:
        return True


def arrays() -> dict[str, Any]:
    return {"x": np.arange(TOTAL * 4.0).reshape(TOTAL, 4), "y": np.arange(TOTAL)}


def memmap(folder: Path, mode: Any) -> Any:
    path = folder / f"{mode}.npy"
    np.save(path, arrays()["x"])
    return np.load(path, mmap_mode=mode)


def read_only() -> Any:
    array = arrays()["x"]
    array.flags.writeable = False
    return array


SOURCES: dict[str, Any] = {
    "list of arrays": lambda _: list(arrays()["x"]),
    "list of dicts": lambda _: [{"x": row, "t": (row, [row])} for row in arrays()["x"]],
    "one array many times": lambda _: [CACHED] * TOTAL,
    "large arrays": lambda _: list(np.arange(TOTAL * 10_000.0).reshape(TOTAL, 10_000)),
    "fortran arrays": lambda _: list(np.asfortranarray(np.ones((TOTAL, 3, 4)))),
    "strided arrays": lambda _: list(np.ones((TOTAL, 8))[:, ::2]),
    "big-endian arrays": lambda _: list(np.ones((TOTAL, 3), ">f4")),
    "structured arrays": lambda _: list(np.zeros((TOTAL, 2), [("a", "i4")])),
    "structured scalars": lambda _: list(np.zeros(TOTAL, [("a", "i4")])),
    "text arrays": lambda _: list(np.full((TOTAL, 2), "abc")),
    "0-d arrays": lambda _: [np.array(i) for i in range(TOTAL)],
    "jax arrays": lambda _: list(jnp.ones((TOTAL, 3))),
    "ArraySource": lambda _: gm.ArraySource(arrays()),
    "ArraySource of text": lambda _: gm.ArraySource(np.full((TOTAL, 2), "abc")),
    "ArraySource of structs": lambda _: gm.ArraySource(np.zeros(TOTAL, [("a", "i4")])),
    "ArraySource read only": lambda _: gm.ArraySource({"x": read_only()}),
    "array": lambda _: arrays()["x"],
    "big-endian array": lambda _: np.ones((TOTAL, 3), ">f4"),
    "memmap read only": lambda folder: memmap(folder, "r"),
    "memmap": lambda folder: memmap(folder, "r+"),
    "list of memmap rows": lambda folder: list(memmap(folder, "r+")),
    "shared memory": lambda _: gm.SharedMemoryDataSource([{"x": row} for row in arrays()["x"]]),
}


def leaves(tree: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for part in tree:
            yield from leaves(part)
    else:
        assert type(tree) is np.ndarray
        yield tree


def content(tree: Any) -> list[tuple[Any, ...]]:
    return [(leaf.dtype.str, leaf.shape, leaf.tobytes()) for leaf in leaves(tree)]


def scribble(batch: Any) -> None:
    for leaf in leaves(batch):
        assert leaf.flags.writeable
        leaf[...] = np.full((), 7, leaf.dtype)


def assert_own_memory(loader: gm.DataLoader, source: Any) -> None:
    """Write into batch after batch; no later batch, no other reading and no source may change."""
    source_before = copy.deepcopy([np.asarray(x) for x in source]) if _is_flat(source) else None
    batches = list(loader)
    expected = [content(batch) for batch in batches]
    for number, batch in enumerate(batches):
        scribble(batch)
        assert [content(later) for later in batches[number + 1 :]] == expected[number + 1 :]
    assert [content(batch) for batch in loader] == expected
    if source_before is not None:
        for now, before in zip(source, source_before, strict=True):
            np.testing.assert_array_equal(np.asarray(now), before)


def _is_flat(source: Any) -> bool:
    return isinstance(source, np.ndarray) or (
        isinstance(source, list) and not isinstance(source[0], dict)
    )


def loader_over(source: Any, *operations: Any, shuffle: bool = False) -> gm.DataLoader:
    return gm.DataLoader(
        data_source=source,
        sampler=gm.IndexSampler(TOTAL, shuffle=shuffle, seed=3, num_epochs=2),
        operations=operations,
    )


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("size", [1, 5, 2 * TOTAL])
@pytest.mark.parametrize("name", SOURCES)
def test_writing_into_a_batch_changes_no_source_and_no_other_batch(
    name: str, size: int, shuffle: bool, tmp_path: Path
):
    source = SOURCES[name](tmp_path)
    assert_own_memory(loader_over(source, gm.Batch(size), shuffle=shuffle), source)


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize(
    "steps",
    [
        [Cached()],
        [Same()],
        [Constant()],
        [SharedColumns()],
        [Same(), Same()],
        [Keep()],
        [Keep(), Cached()],
        [Twice()],
        [gm.Batch(2)],
        [lambda x: (x, x)],
        [lambda x: x["x"]],
        [lambda x: x["x"].T],
        [Keep(), gm.Batch(1), lambda x: x],
    ],
)
def test_writing_into_a_batch_after_any_step_changes_nothing_else(steps: list[Any], size: int):
    source = gm.ArraySource(arrays())
    before = copy.deepcopy(source.arrays)
    kept = CACHED.copy(), CONSTANT.copy()
    assert_own_memory(loader_over(source, *steps, gm.Batch(size)), source)
    np.testing.assert_array_equal(source.arrays["x"], before["x"])
    np.testing.assert_array_equal(source.arrays["y"], before["y"])
    np.testing.assert_array_equal(CACHED, kept[0])
    np.testing.assert_array_equal(CONSTANT, kept[1])


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_writing_into_a_batch_changes_no_file(tmp_path: Path, mode: str):
    source = memmap(tmp_path, mode)
    path = tmp_path / f"{mode}.npy"
    before = path.read_bytes()
    for batch in loader_over(source, gm.Batch(1)):
        batch[...] = -1
    source.flush()
    assert path.read_bytes() == before


def test_two_leaves_of_a_batch_made_of_one_array_are_apart():
    (batch,) = gm.load(
        list(arrays()["x"]), num_epochs=1, transformations=[lambda x: (x, x)], batch_size=TOTAL
    )
    batch[0][...] = -1
    np.testing.assert_array_equal(batch[1], arrays()["x"])


@pytest.mark.parametrize("step", [Same(), SharedColumns(), lambda x: x])
def test_elements_taken_from_columns_are_the_users_own_too(step: Any):
    source = gm.ArraySource(arrays())
    loader = loader_over(source, step, lambda x: x["x"] if isinstance(x, dict) else x)
    expected = [element.copy() for element in loader]
    kept = CONSTANT.copy()
    for element in loader:
        element[...] = -1
    np.testing.assert_array_equal(CONSTANT, kept)
    for element, before in zip(loader, expected, strict=True):
        np.testing.assert_array_equal(element, before)


def test_a_batch_stays_as_it_is_while_the_loader_goes_on():
    iterator = iter(loader_over(gm.ArraySource(arrays()), gm.Batch(3)))
    first = next(iterator)
    before = copy.deepcopy(first)
    for _ in iterator:
        pass
    np.testing.assert_array_equal(first["x"], before["x"])

"""A fast path skips work whose result is known: elements, types and states are the plain one's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import ArraySource, Batch, DataLoader, Filter, IndexSampler, Map
from tests.policies import EAGER, fixed_blocks
from tests.properties.pipelines import (
    AHEAD,
    INLINE,
    SOURCES,
    Pipeline,
    Plus,
    PlusColumns,
    pipelines,
)
from tests.properties.runs import outcome, outcome_with_states
from tests.properties.trees import plain

LAW = settings(deadline=None, print_blob=True, max_examples=100)


@dataclass(frozen=True)
class Hidden:
    """A source of which only `__len__` and `__getitem__` show."""

    source: Any
    reported: str

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return self.source[index]

    def __repr__(self) -> str:
        return self.reported


@pytest.mark.parametrize("name", [*SOURCES])
@given(pipeline=pipelines())
@settings(deadline=None, print_blob=True, max_examples=25)
def test_a_source_yields_what_its_records_one_by_one_yield(pipeline: Pipeline, name: str):
    pipeline = replace(pipeline, source_name=name)
    fast = pipeline.loader()
    plain_source = Hidden(pipeline.source(), reported=_label(fast))

    expected = outcome_with_states(iter(pipeline.loader(source=plain_source)))

    assert outcome_with_states(iter(fast)) == expected


def _label(loader: DataLoader) -> str:
    node: Any = loader._plan_node
    while hasattr(node, "parent"):
        node = node.parent
    return node.label


@given(pipeline=pipelines(), by=st.integers(0, 3), place=st.integers(0, 5))
@LAW
def test_map_batch_yields_what_map_yields(pipeline: Pipeline, by: int, place: int):
    pipeline = replace(pipeline, source_name="ArraySource")
    before, after = pipeline.operations[:place], pipeline.operations[place:]

    fast = replace(pipeline, operations=[*before, PlusColumns(by), *after]).loader()
    slow = replace(pipeline, operations=[*before, Plus(by), *after]).loader()

    assert outcome(iter(fast)) == outcome(iter(slow))


@given(pipeline=pipelines())
@LAW
def test_running_ahead_yields_what_running_inline_yields(pipeline: Pipeline):
    inline = outcome_with_states(iter(pipeline.loader(INLINE)))

    assert outcome_with_states(iter(pipeline.loader(AHEAD))) == inline


@given(
    pipeline=pipelines(),
    size=st.integers(1, 100),
    window=st.integers(1, 20),
    read_options=st.sampled_from([INLINE, AHEAD]),
)
@LAW
def test_blocks_and_windows_of_any_size_yield_the_same(
    pipeline: Pipeline, size: int, window: int, read_options: Any
):
    expected = outcome_with_states(iter(pipeline.loader()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gristmill._engine.access.records.WINDOW", window)
        loader = pipeline.loader(read_options, policy=fixed_blocks(size, EAGER))
        assert outcome_with_states(iter(loader)) == expected


@pytest.mark.parametrize("limit", [1, 2, 3, 64])
@given(pipeline=pipelines(fails=False))
@settings(deadline=None, print_blob=True, max_examples=20)
def test_a_limit_to_the_size_of_blocks_changes_nothing(pipeline: Pipeline, limit: int):
    expected = outcome_with_states(iter(pipeline.loader()))

    policy = replace(EAGER, max_block_positions=limit, max_block_records=limit)
    assert outcome_with_states(iter(pipeline.loader(policy=policy))) == expected


# One by one, what properties hardly meet.


def read(source: Any, *operations: Any) -> list[Any]:
    sampler = IndexSampler(len(source), num_epochs=1, seed=0)
    loader = DataLoader(
        data_source=source, sampler=sampler, operations=operations, read_options=INLINE
    )
    return [plain(element) for element in loader]


ARRAYS = {
    "bool": np.arange(7) % 2 == 0,
    "uint8": np.arange(7, dtype=np.uint8),
    "float16": np.arange(14, dtype=np.float16).reshape(7, 2),
    "complex64": np.arange(7, dtype=np.complex64),
    "big endian": np.arange(7, dtype=">i4"),
    "times": np.arange(7).astype("datetime64[s]"),
    "texts": np.array(["", "a", "abc", "ab", "a", "", "b"]),
    "bytes": np.array([b"", b"a", b"abc", b"ab", b"a", b"", b"b"]),
    "objects": np.array([1, "a", None, 2.5, (1,), b"x", 3], dtype=object),
    "structured": np.zeros(7, dtype=[("a", np.int32), ("b", np.float32, (2,))]),
    "columns first": np.asfortranarray(np.arange(21.0).reshape(7, 3)),
    "backwards": np.arange(21)[::-3],
    "empty items": np.zeros((7, 0)),
    "many axes": np.arange(7 * 24).reshape(7, 2, 3, 4),
}


@pytest.mark.parametrize("size", [None, 1, 3])
@pytest.mark.parametrize("name", [*ARRAYS])
def test_an_array_yields_what_a_list_of_its_items_yields(name: str, size: int | None):
    array = ARRAYS[name]
    operations = [] if size is None else [Batch(size)]
    try:
        expected: Any = read([array[index] for index in range(len(array))], *operations)
    except ValueError as error:
        expected = type(error)  # a batch of `None` and others

    if isinstance(expected, type):
        with pytest.raises(expected):
            read(ArraySource(array), *operations)
    else:
        assert read(ArraySource(array), *operations) == expected


class KeepAndChange(Filter):
    """Writes into the element that it looks at."""

    def filter(self, element: Any) -> bool:
        element["x"] = element["x"] * 10
        return True


def test_a_filter_that_writes_into_its_element_does_so_whatever_the_source():
    columns = ArraySource({"x": np.arange(4)})
    records = [{"x": np.int64(number)} for number in range(4)]

    assert read(columns, KeepAndChange(), Batch(4)) == read(records, KeepAndChange(), Batch(4))


class ForgetsToReturn(Map):
    def map(self, element: Any) -> None:
        element["x"] = element["x"] + 1

    def map_batch(self, columns: Any) -> None:
        columns["x"] += 1


@pytest.mark.parametrize("source", [ArraySource({"x": np.arange(4)}), [{"x": 1}, {"x": 2}]])
def test_a_map_that_returns_none_is_refused_in_a_batch_whatever_the_source(source: Any):
    with pytest.raises(ValueError, match="None"):
        read(source, ForgetsToReturn(), Batch(2))


class LikeArray:
    """Stands for a `jax.Array`: no array of NumPy's, but can become one."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape = array.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.array, dtype=dtype)


class ToLikeArray(Map):
    def map(self, element: Any) -> LikeArray:
        return LikeArray(element)

    def map_batch(self, columns: Any) -> LikeArray:
        return LikeArray(columns)


def test_what_becomes_an_array_may_come_from_map_and_from_map_batch():
    array = np.arange(4, dtype=np.int32)

    assert read(ArraySource(array), ToLikeArray(), Batch(2)) == read(
        list(array), ToLikeArray(), Batch(2)
    )


class CountsCalls:
    """A source that keeps count of the ways it is asked."""

    def __init__(self) -> None:
        self.one_by_one = 0
        self.at_once = 0

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        self.one_by_one += 1
        return index

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        self.at_once += 1
        return list(indices)


def test_a_source_that_can_is_asked_for_many_records_at_once():
    source = CountsCalls()

    assert len(read(source, Batch(10))) == 10
    assert source.one_by_one == 0
    assert source.at_once <= 10

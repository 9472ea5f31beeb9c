"""One interpreter: a reader returns for many positions what it returns for each of them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gristmill import ArraySource, DataLoader, MapDataset, SequentialSampler
from gristmill._base.trees.columns import Columns
from gristmill._engine.access.context import Reader
from gristmill._engine.access.cut import cut_plan
from gristmill._engine.access.reader import open_cut, open_dataset, read_element
from gristmill._engine.blocks.block import BlockResult
from gristmill._plan.nodes.base import Node
from gristmill.errors import PlanError
from gristmill.types import Span
from tests.engine.access.dataset_trees import Tree, build, trees
from tests.properties.pipelines import Pipeline, pipelines
from tests.properties.trees import plain

LAW = settings(
    deadline=None,
    print_blob=True,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def describe_error(error: BaseException | None) -> Any:
    if error is None:
        return None
    return type(error).__name__, str(error), getattr(error, "__notes__", ())


def describe(results: Iterable[BlockResult]) -> dict[str, Any]:
    """Describe consecutive results as one, up to the first error."""
    found: dict[str, list[Any]] = {
        name: [] for name in ("elements", "origins", "starts", "ends", "skips", "counts")
    }
    error = None
    for result in results:
        lineage = result.block.lineage.sparse()
        found["elements"] += map(plain, result.block.rows())
        found["origins"] += lineage.origins.tolist()
        found["starts"] += lineage.starts.tolist()
        found["ends"] += lineage.ends.tolist()
        found["skips"] += [(skip.cursor, skip.record) for skip in result.skips]
        found["counts"] += [
            (counts.num_above, int(position), bool(has_passed))
            for counts in result.filter_counts
            for position, has_passed in zip(counts.positions, counts.has_passed, strict=True)
        ]
        error = result.error
        if error is not None:
            break
    found["skips"].sort(key=repr)  # those of one step come before those of the next
    found["counts"].sort()
    return {**found, "error": describe_error(error)}


def one_by_one(read: Reader, span: Sequence[int]) -> Iterable[BlockResult]:
    return (read(range(position, position + 1)) for position in span)


def dataset_of(tree: Tree) -> MapDataset[Any]:
    try:
        return build(tree)
    except PlanError:  # such as the shuffle of an empty dataset
        assume(False)
        raise


@given(tree=trees(), start=st.integers(0, 40), length=st.integers(0, 30))
@LAW
def test_a_range_of_a_dataset_equals_its_elements_one_by_one(tree: Tree, start: int, length: int):
    node = dataset_of(tree)._plan_node
    span = range(start, start + length)

    assert describe([open_dataset(node)(span)]) == describe(one_by_one(open_dataset(node), span))


@given(tree=trees(), indices=st.lists(st.integers(0, 40), max_size=20))
@LAW
def test_any_indices_of_a_dataset_equal_its_elements_one_by_one(tree: Tree, indices: list[int]):
    node = dataset_of(tree)._plan_node
    span = np.array(indices, dtype=np.int64)

    assert describe([open_dataset(node)(span)]) == describe(one_by_one(open_dataset(node), indices))


@given(tree=trees(), keeps_none=st.booleans(), start=st.integers(0, 9), length=st.integers(0, 30))
@LAW
def test_a_stream_of_a_dataset_leaves_out_what_is_absent(
    tree: Tree, keeps_none: bool, start: int, length: int
):
    dataset = dataset_of(tree)
    stream: Any = dataset.to_iter_dataset(allow_nones=keeps_none)
    cut = cut_plan(stream._plan_node.parent, skips_errors=False, below_batches=False)
    assume(len(dataset))

    positions = range(start, start + length)
    by_index = describe([open_dataset(dataset._plan_node)(positions)])
    kept = [
        row
        for row, element in enumerate(by_index["elements"])
        if keeps_none or element != plain(None)
    ]

    streamed = describe([open_cut(cut)(positions)])
    for name in ("elements", "origins", "starts", "ends"):
        assert streamed[name] == [by_index[name][row] for row in kept]
    assert streamed["error"] == by_index["error"]


def plan_of(pipeline: Pipeline) -> Node:
    return pipeline.loader()._plan_node


@given(
    pipeline=pipelines(),
    skips_errors=st.booleans(),
    below_batches=st.booleans(),
    data=st.data(),
)
@LAW
def test_positions_of_a_sampled_plan_equal_each_of_them(
    pipeline: Pipeline, skips_errors: bool, below_batches: bool, data: st.DataObject
):
    cut = cut_plan(plan_of(pipeline), skips_errors=skips_errors, below_batches=below_batches)
    length = cut.base.length()
    assume(length)
    start = data.draw(st.integers(0, length - 1))
    span = range(start, data.draw(st.integers(start + 1, length)))
    anywhere = data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=12))

    for positions in (span, np.array(anywhere, dtype=np.int64)):
        many = describe([open_cut(cut)(positions)])
        each = describe(one_by_one(open_cut(cut), [int(position) for position in positions]))
        assert many == each


def columns_until(span: Span, *steps: Any) -> bool:
    dataset: Any = MapDataset.source(ArraySource({"x": np.arange(9)}))
    for step in steps:
        dataset = step(dataset)
    return isinstance(open_dataset(dataset._plan_node)(span).block.data, Columns)


def test_columns_stay_columns_through_the_nodes_that_only_move_elements():
    assert columns_until(range(4))
    assert columns_until(range(7, 12), lambda ds: ds.seed(1).shuffle()[1::2].repeat(3))
    assert columns_until(np.array([3, 1]), lambda ds: MapDataset.concatenate([ds, ds]))
    assert not columns_until(range(4), lambda ds: ds.filter(lambda element: True))


class RecordsReads:
    """A source that records which indices it is read with."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        raise AssertionError("read one by one")

    def __getitems__(self, indices: Sequence[int]) -> Sequence[int]:
        self.spans.append(indices)
        return list(indices)


def test_consecutive_indices_reach_the_source_as_a_range():
    source = RecordsReads()
    dataset = MapDataset.source(source)[10:90].map(lambda x: x).repeat(2).batch(5)

    read = open_dataset(dataset._plan_node)
    read(range(2, 4))
    read(np.array([16, 17]))  # of the second epoch

    assert source.spans == [range(20, 30), range(10, 20)]


def test_sampled_records_reach_the_source_as_a_range_when_in_order():
    source = RecordsReads()
    loader = DataLoader(data_source=source, sampler=SequentialSampler(100))
    cut = cut_plan(loader._plan_node, skips_errors=False, below_batches=False)

    open_cut(cut)(range(20, 30))

    assert source.spans == [range(20, 30)]


def test_one_element_is_read_or_its_error_raised():
    def reciprocal(x: int) -> float:
        return 1 / x

    read = open_dataset(MapDataset.range(3).map(reciprocal)._plan_node)

    assert read_element(read, 2) == 0.5
    with pytest.raises(ZeroDivisionError) as caught:
        read_element(read, 0)
    assert "on element 0" in "".join(caught.value.__notes__)


def test_an_index_of_an_empty_dataset_is_an_error():
    read = open_dataset(MapDataset.range(0).map(lambda x: x)._plan_node)

    assert len(read(range(0)).block) == 0
    with pytest.raises(IndexError, match="index 2 of an empty"):
        read_element(read, 2)


def test_a_node_of_a_stream_has_no_random_access():
    stream: Any = MapDataset.range(3).to_iter_dataset().map_with_index(lambda i, x: x)

    with pytest.raises(TypeError, match=r"MapWithIndex <lambda> has no random access"):
        open_dataset(stream._plan_node)

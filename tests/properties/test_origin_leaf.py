"""`provenance=True` adds the record of each row, and changes nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import Batch, DataLoader, IndexSampler, MapDataset, ReadOptions, feed, load
from gristmill.errors import BatchError, PlanTypeError, ProvenanceError
from gristmill.python.experimental import PackAndBatchOperation
from tests.properties.pipelines import AHEAD, INLINE, Pipeline
from tests.properties.test_provenance import loader_pipelines
from tests.properties.trees import plain

LAW = settings(deadline=None, print_blob=True, max_examples=100)


def with_leaf(pipeline: Pipeline, read_options: ReadOptions) -> DataLoader:
    return DataLoader(
        data_source=pipeline.source(),
        sampler=pipeline.sampler,
        operations=pipeline.operations,
        shard_options=pipeline.shard,
        read_options=read_options,
        provenance=True,
    )


def split_leaf(element: Any) -> tuple[Any, Any]:
    """Return an element and its leaf."""
    if isinstance(element, dict):
        return {key: value for key, value in element.items() if key != "provenance"}, element[
            "provenance"
        ]
    *others, leaf = element
    return others[0] if len(others) == 1 else tuple(others), leaf


@pytest.mark.filterwarnings("ignore::gristmill.errors.GristmillWarning")
@given(pipeline=loader_pipelines(), read_options=st.sampled_from([INLINE, AHEAD]))
@LAW
def test_the_leaf_names_the_records_that_provenance_names(
    pipeline: Pipeline, read_options: ReadOptions
):
    without, iterator = iter(pipeline.loader()), iter(with_leaf(pipeline, read_options))

    for element in iterator:
        value, leaf = split_leaf(element)
        assert plain(value) == plain(next(without))
        records = iterator.provenance().records
        assert [replace(one, location=None) for one in iterator.origins(leaf)] == [
            replace(one, location=None) for one in records
        ]
        assert iterator.get_state() == without.get_state()
    assert next(without, None) is None


def documents(count: int) -> list[dict[str, Any]]:
    return [{"tokens": np.arange(1 + number % 5) + 10 * number} for number in range(count)]


def test_packing_keeps_the_leaf_of_each_segment():
    loader = DataLoader(
        data_source=documents(20),
        sampler=IndexSampler(20, shuffle=True, seed=4, num_epochs=1),
        operations=[
            PackAndBatchOperation(batch_size=2, length_struct={"tokens": 8, "provenance": 4})
        ],
        provenance=True,
    )
    iterator = iter(loader)
    seen: list[int] = []

    for values, ids, _ in iterator:
        for row in range(2):
            found = iterator.origins(values["provenance"][row])  # its padding is left out
            tokens = values["tokens"][row][ids["tokens"][row] > 0]
            expected = np.concatenate([documents(20)[one.index]["tokens"] for one in found] or [[]])
            assert tokens.tolist() == expected.tolist()
            seen += [one.index for one in found]

    assert sorted(seen) == list(range(20))


def test_a_feed_keeps_the_leaf():
    with feed(load(np.arange(40), shuffle=True, seed=1, batch_size=4, provenance=True)) as batches:
        values, leaf = next(batches)

        assert [one.index for one in batches.origins(leaf)] == values.tolist()


def test_a_feed_of_something_else_has_no_leaf():
    with feed(iter_of_dataset()) as batches, pytest.raises(ProvenanceError, match="Feed a `Data"):
        batches.origins([1])


def iter_of_dataset() -> Any:

    return iter(MapDataset.range(8).batch(2))


@pytest.mark.parametrize("worker_count", [1, 2])
def test_workers_add_the_leaf(worker_count: int):
    records = [{"x": number} for number in range(30)]
    loader = load(
        records,
        shuffle=True,
        seed=1,
        num_epochs=1,
        batch_size=4,
        provenance=True,
        worker_count=worker_count,
    )
    with loader:
        iterator = iter(loader)
        for batch in iterator:
            assert [one.index for one in iterator.origins(batch["provenance"])] == batch[
                "x"
            ].tolist()


def test_a_batch_function_of_the_users_gets_no_leaf():
    def collate(elements: Sequence[Any]) -> dict[str, Any]:
        assert all(set(element) == {"x"} for element in elements)
        return {"y": len(elements)}

    loader = load(
        [{"x": number} for number in range(5)],
        num_epochs=1,
        transformations=[Batch(2, batch_fn=collate)],
        provenance=True,
    )

    assert [(one["y"], one["provenance"].tolist()) for one in loader] == [
        (2, [1, 2]),
        (2, [3, 4]),
        (1, [5]),
    ]


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_key_of_that_name_is_an_error(batch_size: int | None):
    loader = load([{"provenance": 1}] * 4, num_epochs=1, batch_size=batch_size, provenance=True)

    with pytest.raises(BatchError, match="have a key 'provenance' already"):
        next(iter(loader))


@pytest.mark.parametrize("leaf", ["x", 0.5, [[1.0]], None])
def test_what_is_no_leaf_is_refused(leaf: Any):
    iterator = iter(load(range(3), provenance=True))

    with pytest.raises(ProvenanceError, match="consists of integers, but this has the type"):
        iterator.origins(leaf)


def test_the_argument_must_be_a_bool():
    with pytest.raises(PlanTypeError, match="`provenance` must be"):
        load(range(3), provenance="yes")  # pyright: ignore[reportArgumentType]


def increment(element: Any) -> Any:
    return element + 1


def test_a_map_keeps_the_argument():
    loader = load(range(3), num_epochs=1, provenance=True).map(increment)

    assert [(x, int(leaf)) for x, leaf in loader] == [(1, 1), (2, 2), (3, 3)]

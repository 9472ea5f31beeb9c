"""First-fit and best-fit packing: Grain's rows, from any place in the stream."""

from typing import Any

import grain
import grain.python
import numpy as np
import pytest
from grain._src.python.experimental.example_packing.packing import (
    PackAndBatchOperation as GrainPackAndBatch,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.dataset.packing import (
    BestFitPackIterDataset,
    FirstFitPackIterDataset,
    PackAndBatchOperation,
)
from gristmill._data.sampling.record import Record, RecordMetadata
from gristmill._engine.stateful.packing.bins import _ScannedBins, open_bins
from gristmill.errors import PlanError, PlanTypeError
from tests.compat.both_sides import REFUSED, STEADY, assert_resumes, assert_same, take

FIRST = (FirstFitPackIterDataset, grain.experimental.FirstFitPackIterDataset)
BEST = (BestFitPackIterDataset, grain.experimental.BestFitPackIterDataset)

Element = dict[str, Any]


class Elements:
    """A source of elements that are held as they are."""

    def __init__(self, elements: list[Element]):
        self._elements = elements

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, index: int) -> Element:
        return self._elements[index]

    def __repr__(self) -> str:
        return "Elements()"


def ours(elements: list[Element]):
    return MapDataset.source(Elements(elements)).to_iter_dataset()


def theirs(elements: list[Element]):
    return grain.MapDataset.source(Elements(elements)).to_iter_dataset()


def assert_same_rows(kinds: tuple[Any, Any], elements: list[Element], **options: Any) -> list[Any]:
    expected = list(kinds[1](theirs(elements), **options))
    rows = list(kinds[0](ours(elements), **options))
    assert_same(rows, expected, "rows")
    return rows


def documents(lengths: list[int]) -> list[Element]:
    return [
        {"tokens": np.arange(1, n + 1, dtype=np.int32) + 100 * number}
        for number, n in enumerate(lengths)
    ]


@st.composite
def cases(draw: Any) -> tuple[list[Element], dict[str, Any]]:
    """Elements of one to three features of random lengths, and options of the packing."""
    names = draw(st.sampled_from([["a"], ["a"], ["a", "b"], ["b", "a", "c"]]))
    capacities = {name: draw(st.integers(1, 12)) for name in names}
    is_scalar = {name: draw(st.integers(0, 9)) == 0 for name in names}
    trailing = {name: draw(st.sampled_from([(), (), (2,)])) for name in names}
    kinds = {name: draw(st.sampled_from([np.int32, np.float32, np.uint8])) for name in names}
    elements = []
    for number in range(draw(st.integers(0, 40))):
        element: Element = {"extra": number, "id": f"doc{number}"}
        for name in names:
            length = draw(st.integers(0, capacities[name]))
            size = (length, *trailing[name])
            values = (np.arange(int(np.prod(size))) + number + 1).reshape(size).astype(kinds[name])
            element[name] = number if is_scalar[name] else values
        elements.append(element)
    metas = draw(st.sampled_from([[], [], ["id"], names[:1], [*names[1:], "id"]]))
    options: dict[str, Any] = {
        "length_struct": capacities,
        "num_packing_bins": draw(st.integers(1, 6)),
        "seed": draw(st.integers(0, 5)),
        "shuffle_bins": draw(st.booleans()),
        "meta_features": metas,
        "max_sequences_per_bin": draw(st.sampled_from([None, None, 1, 2, 3])),
    }
    if draw(st.booleans()):
        options["pack_alignment_struct"] = {name: draw(st.integers(1, 4)) for name in names}
    if draw(st.booleans()):
        options["padding_struct"] = {name: draw(st.sampled_from([None, 7])) for name in names}
    if options["shuffle_bins"] and draw(st.booleans()):
        packed = [name for name in names if name not in metas]
        options["shuffle_bins_group_by_feature"] = draw(
            st.sampled_from([*names, *(f"{name}_segment_ids" for name in packed)])
        )
    return elements, options


@pytest.mark.parametrize("kinds", [FIRST, BEST], ids=["first", "best"])
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of Grain
@STEADY
@given(case=cases())
def test_rows_are_those_of_grain(kinds: Any, case: Any):
    elements, options = case
    assert_same_rows(kinds, elements, **options)


@pytest.mark.parametrize("kinds", [FIRST, BEST], ids=["first", "best"])
@settings(STEADY, max_examples=25)
@given(case=cases())
def test_a_checkpoint_at_any_row_yields_the_rest(kinds: Any, case: Any):
    elements, options = case
    assert_resumes(kinds[0](ours(elements), **options))


@pytest.mark.parametrize("kinds", [FIRST, BEST], ids=["first", "best"])
def test_many_documents_of_lognormal_lengths_are_packed_as_by_grain(kinds: Any):
    drawn = np.exp(np.random.default_rng(0).normal(3, 1, 3000)).astype(int)
    elements = documents(np.minimum(drawn, 256).tolist())
    rows = assert_same_rows(
        kinds, elements, length_struct={"tokens": 256}, num_packing_bins=16, seed=3
    )
    assert len(rows) > 200


@STEADY
@given(
    needs=st.lists(st.integers(0, 9), max_size=60),
    count=st.integers(1, 8),
    is_best_fit=st.booleans(),
    alignment=st.integers(1, 4),
    cut=st.integers(0, 60),
)
def test_the_fast_bins_choose_as_the_plain_ones(
    needs: list[int], count: int, is_best_fit: bool, alignment: int, cut: int
):
    costs = [-(-need // alignment) * alignment for need in needs]
    fast = open_bins([9], count, is_best_fit=is_best_fit)
    plain = _ScannedBins([9], count, is_best_fit=is_best_fit, max_documents=None)
    placed = fast.assign([needs[:cut]], [costs[:cut]], 0)
    if len(placed) == len(needs[:cut]):
        placed += fast.assign([needs], [costs], len(placed))
    assert placed == plain.assign([needs], [costs], 0)


def test_a_nested_meta_feature_is_packed_leaf_by_leaf():
    elements = [
        {"a": np.arange(n), "m": {"x": np.arange(n) * 2, "y": [np.ones(1), np.zeros(2)]}}
        for n in (1, 3, 2, 2)
    ]
    lengths = {"a": 4, "m": {"x": 4, "y": [3, 6]}}
    rows = assert_same_rows(
        FIRST, elements, length_struct=lengths, num_packing_bins=2, meta_features=["m"]
    )
    assert rows[0]["m"]["y"][1].shape == (6,)


def test_rows_have_the_type_of_the_first_document_of_their_bins():
    elements = [
        {"a": np.arange(3, dtype=np.int32)},
        {"a": np.arange(2, dtype=np.float64) + 0.5},
        {"a": np.float32(1.5)},
        {"a": True},
        {"a": np.arange(4, dtype=np.uint8)},
        {"a": 2},
    ]
    options: dict[str, Any] = {"length_struct": {"a": 4}, "num_packing_bins": 1}
    assert_same_rows(FIRST, elements, **options)
    assert_same_rows(FIRST, elements[3:], **options)
    assert_same_rows(FIRST, [{"a": 1.5}, {"a": 2}], **options)
    assert_same_rows(FIRST, [{"a": "xyz"}, {"a": "wxyz"}], **options)


def test_trailing_axes_are_broadcast_as_by_grain():
    elements = [{"a": np.ones((2, 3))}, {"a": np.full((1, 1), 4.0)}]
    assert_same_rows(FIRST, elements, length_struct={"a": 4}, num_packing_bins=1)


def test_a_filter_and_a_batch_around_it_can_be_resumed():
    dataset = FirstFitPackIterDataset(
        ours(documents([3, 1, 4, 1, 5, 2, 6, 5, 3, 5])).filter(lambda x: len(x["tokens"]) != 4),
        length_struct={"tokens": 6},
        num_packing_bins=2,
    )
    assert_resumes(dataset.batch(2))
    assert_resumes(dataset.map(lambda row: row["tokens"]).filter(lambda row: row[0] % 2 == 1))


@pytest.mark.parametrize("kinds", [FIRST, BEST], ids=["first", "best"])
def test_a_document_longer_than_a_row_fails_after_the_rows_that_grain_yields(kinds: Any):
    elements = documents([3, 4, 2, 1, 4, 5, 1])
    options = {"length_struct": {"tokens": 4}, "num_packing_bins": 2, "shuffle_bins": False}
    iterator = iter(kinds[0](ours(elements), **options))
    oracle = iter(kinds[1](theirs(elements), **options))
    *expected, refused = take(oracle)
    assert refused == REFUSED
    assert_same([next(iterator) for _ in expected], expected)
    state = iterator.get_state()
    for _ in range(2):  # the stream stands before it
        with pytest.raises(PlanError) as caught:
            next(iterator)
        message = str(caught.value)
        assert "'tokens'" in message
        assert "length 5" in message
        assert "a row has 4" in message
        assert "Truncate it in a map" in message
        assert "FitPack(tokens=4, num_packing_bins=2)" in caught.value.__notes__[0]
        assert iterator.get_state() == state


def test_an_error_below_comes_after_the_rows_that_were_complete():
    def fail(element: Element) -> Element:
        if element["tokens"][0] > 400:
            raise RuntimeError("bad document")
        return element

    dataset = ours(documents([3, 4, 4, 3, 1, 2])).map(fail)
    packed = FirstFitPackIterDataset(dataset, length_struct={"tokens": 4}, num_packing_bins=2)
    iterator = iter(packed)
    assert len([next(iterator), next(iterator)]) == 2
    with pytest.raises(RuntimeError, match="bad document"):
        next(iterator)


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([{"a": np.ones(1)}, {"b": np.ones(1)}], "Parent element has structure ['b'], without 'a'"),
        ([{"a": np.ones(1)}, 3], "Parent element has structure int, without 'a'"),
        ([{"a": {"b": 1}}], "must be an array or a number, got dict"),
        ([{"a": np.ones((1, 2))}, {"a": np.ones((1, 3))}], "only the first axis may differ"),
    ],
)
def test_elements_that_cannot_be_packed_are_reported_with_a_remedy(
    elements: list[Any], message: str
):
    dataset = FirstFitPackIterDataset(ours(elements), length_struct={"a": 4}, num_packing_bins=2)
    with pytest.raises(PlanError) as caught:
        list(dataset)
    assert message in str(caught.value)


def test_a_meta_feature_that_an_element_lacks_is_reported():
    dataset = FirstFitPackIterDataset(
        ours([{"a": np.ones(1)}]),
        length_struct={"a": 4},
        num_packing_bins=2,
        meta_features=["id"],
    )
    with pytest.raises(PlanError, match="`meta_features` has 'id'"):
        list(dataset)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length_struct": 4}, "must be a dict"),
        ({"length_struct": {}}, "must be a dict"),
        ({"length_struct": {"a": 0}}, "`length_struct['a']` must be at least 1, got 0"),
        ({"length_struct": {"a": {"b": 1}}}, "Flatten the feature"),
        ({"length_struct": {"a": 1, "a_positions": 1}}, "Rows would have 'a_positions' twice"),
        ({"num_packing_bins": 0}, "`num_packing_bins` must be at least 1, got 0"),
        ({"max_sequences_per_bin": 0}, "`max_sequences_per_bin` must be at least 1, got 0"),
        ({"meta_features": "id"}, "Put it in brackets"),
        (
            {"pack_alignment_struct": {}},
            "`pack_alignment_struct` must have the structure of `length_struct`",
        ),
        (
            {"padding_struct": {"b": 1}},
            "`padding_struct` must have the structure of `length_struct`",
        ),
        ({"shuffle_bins_group_by_feature": "b"}, "must be one of a, a_segment_ids, a_positions"),
        ({"seed": -1}, "`seed` must be at least 0"),
    ],
)
def test_arguments_that_cannot_work_are_reported_where_they_are_written(
    options: dict[str, Any], message: str
):
    arguments: dict[str, Any] = {"length_struct": {"a": 4}, "num_packing_bins": 2, **options}
    for kind in (FirstFitPackIterDataset, BestFitPackIterDataset):
        with pytest.raises(PlanError) as caught:
            kind(ours([]), **arguments)
        assert message in str(caught.value)


def test_a_length_that_is_no_integer_is_a_type_error():
    with pytest.raises(PlanTypeError):
        FirstFitPackIterDataset(ours([]), length_struct={"a": "4"}, num_packing_bins=2)


@settings(STEADY, max_examples=50)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=20),
    most=st.sampled_from([None, 1, 2]),
)
def test_pack_and_batch_yields_the_batches_of_grain(lengths: Any, most: int | None):
    struct = {"b": [5], "a": 3}

    def records(record: Any, metadata: Any) -> Any:
        for number, (first, second) in enumerate(lengths):
            data = {"b": [np.arange(first)], "a": np.ones((second, 2), np.float32) * number}
            yield record(metadata(index=number, record_key=number), data)

    expected = list(
        GrainPackAndBatch(struct, 2, most)(
            records(grain.python.Record, grain.python.RecordMetadata)
        )
    )
    made = list(PackAndBatchOperation(struct, 2, most)(records(Record, RecordMetadata)))
    assert len(made) == len(expected)
    for batch, other in zip(made, expected, strict=True):
        assert batch.metadata.index == other.metadata.index
        assert_same(batch.data, other.data)


def test_pack_and_batch_yields_nothing_for_nothing_and_refuses_what_is_too_long():
    assert list(PackAndBatchOperation({"a": 2}, 2)(iter([]))) == []
    long = Record(RecordMetadata(index=0), {"a": np.ones(3)})
    with pytest.raises(PlanError, match="length 3, but a row has 2"):
        list(PackAndBatchOperation({"a": 2}, 2)(iter([long])))

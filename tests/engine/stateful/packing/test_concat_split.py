"""Concat-then-split packing: Grain's rows, from any place in the stream."""

from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.dataset.packing import BOSHandling, ConcatThenSplitIterDataset
from gristmill.errors import PlanError
from tests.compat.both_sides import STEADY, assert_resumes, assert_same, take

Element = dict[str, Any]

GrainBOSHandling = grain.experimental.BOSHandling


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


def ours(elements: list[Element], **options: Any) -> Any:
    dataset = MapDataset.source(Elements(elements)).to_iter_dataset()
    return ConcatThenSplitIterDataset(dataset, **options)


def theirs(elements: list[Element], **options: Any) -> Any:
    dataset = grain.MapDataset.source(Elements(elements)).to_iter_dataset()
    if "bos_handling" in options:
        options["bos_handling"] = GrainBOSHandling[options["bos_handling"].name]
    return grain.experimental.ConcatThenSplitIterDataset(dataset, **options)


def assert_same_rows(elements: list[Element], **options: Any) -> list[Element]:
    rows = take(iter(ours(elements, **options)))
    assert_same(rows, take(iter(theirs(elements, **options))), "rows")
    return rows


def documents(lengths: list[int]) -> list[Element]:
    return [
        {"tokens": np.arange(1, n + 1, dtype=np.int32) + 100 * number}
        for number, n in enumerate(lengths)
    ]


@st.composite
def cases(draw: Any, most_features: int = 3) -> tuple[list[Element], dict[str, Any]]:
    """Elements of a few features of random lengths, longer than a row too, and options."""
    names = draw(st.sampled_from([["a"], ["a", "b"], ["b", "a", "c"]][:most_features]))
    capacities = {name: draw(st.integers(1, 9)) for name in names}
    metas = draw(st.sampled_from([[], [], names[1:], names[-1:]])) if len(names) > 1 else []
    trailing = {name: draw(st.sampled_from([(), (), (2,)])) for name in names}
    kinds = {name: draw(st.sampled_from([np.int32, np.float32, np.uint8])) for name in names}
    has_bos = draw(st.booleans())
    elements = []
    for number in range(draw(st.integers(0, 25))):
        element: Element = {}
        for name in names:
            most = capacities[name] if name in metas else 3 * capacities[name]
            # Where a row is full and an empty document follows, Grain has no place for a BOS.
            length = draw(st.integers(1 if has_bos else 0, max(1, most)))
            size = (length, *trailing[name])
            values = np.arange(int(np.prod(size))) + 50 * number + 1
            element[name] = values.reshape(size).astype(kinds[name])
        elements.append(element)
    options: dict[str, Any] = {
        "length_struct": capacities,
        "meta_features": metas,
        "split_full_length_features": draw(st.booleans()),
    }
    packed = [name for name in names if name not in metas]
    if has_bos and len(packed) == 1:
        options["bos_handling"] = BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS
        options["bos_features"] = packed
        options["bos_token_id"] = 77
    return elements, options


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(STEADY, max_examples=300)
@given(case=cases())
def test_rows_are_those_of_grain(case: Any):
    elements, options = case
    rows = take(iter(ours(elements, **options)))
    expected = take(iter(theirs(elements, **options)), most=1000)
    packed = [name for name in options["length_struct"] if name not in options["meta_features"]]
    if len(packed) == 1 or num_tokens(expected, packed) == num_tokens(elements, packed):
        assert_same(rows, expected, "rows")
    elif rows[-1:] != ["refused"]:  # here Grain repeats tokens, or never ends
        for name in packed:
            laid = [row[name][row[f"{name}_segment_ids"] > 0] for row in rows]
            wanted = np.concatenate([element[name] for element in elements])
            assert np.sort(np.concatenate(laid), axis=0).tobytes() == np.sort(wanted, 0).tobytes()


def num_tokens(rows: list[Any], names: list[str]) -> list[int]:
    """Count the tokens of each feature, in documents or in rows."""
    return [
        sum(
            int(np.count_nonzero(row[f"{name}_segment_ids"]))
            if f"{name}_segment_ids" in row
            else len(row[name])
            for row in rows
            if row != "refused"
        )
        for name in names
    ]


@settings(STEADY, max_examples=60)
@given(case=cases())
def test_a_checkpoint_at_any_row_yields_the_rest(case: Any):
    elements, options = case
    dataset = ours(elements, **options)
    if "refused" not in map(str, take(iter(dataset))[-1:]):
        assert_resumes(dataset)


@STEADY
@given(case=cases(most_features=1))
def test_one_feature_is_laid_as_the_first_of_two_alike(case: Any):
    """The short way for one feature, and the one for any number."""
    elements, options = case
    twins = [{"a": element["a"], "b": element["a"]} for element in elements]
    lengths = {"a": options["length_struct"]["a"], "b": options["length_struct"]["a"]}
    alone = list(ours(elements, **options))
    both = list(ours(twins, **{**options, "length_struct": lengths}))
    names = alone[0] if alone else ()
    assert_same([{name: row[name] for name in names} for row in both], alone)


def test_many_documents_of_lognormal_lengths_are_laid_as_by_grain():
    drawn = np.exp(np.random.default_rng(0).normal(3, 1.5, 3000)).astype(int)
    rows = assert_same_rows(documents(drawn.tolist()), length_struct={"tokens": 64})
    assert len(rows) == -(-int(drawn.sum()) // 64)


def test_documents_of_the_length_of_a_row_pass_after_the_open_one():
    elements = documents([3, 6, 2, 5, 6, 4])
    rows = assert_same_rows(elements, length_struct={"tokens": 6}, split_full_length_features=False)
    assert [row["tokens"][0] for row in rows] == [1, 101, 302, 401, 503]
    assert_resumes(ours(elements, length_struct={"tokens": 6}, split_full_length_features=False))


def test_scalars_and_lists_are_documents_too():
    numbers = [{"a": n} for n in range(7)]
    assert_same_rows(numbers, length_struct={"a": 3})
    assert_same_rows([{"a": True}, {"a": False}], length_struct={"a": 3})
    assert_same_rows([{"a": [1, 2, 3, 4]}, {"a": [5]}], length_struct={"a": 3})
    labelled = [{"a": np.arange(n), "label": n} for n in (1, 3, 5, 2, 9)]
    for metas in ([], ["label"]):
        assert_same_rows(labelled, length_struct={"a": 4, "label": 4}, meta_features=metas)
        assert_resumes(ours(labelled, length_struct={"a": 4, "label": 4}, meta_features=metas))


def test_each_row_has_the_type_of_its_first_document():
    elements = [
        {"a": np.arange(3, dtype=np.int32)},
        {"a": np.arange(4, dtype=np.float32) + 0.5},
        {"a": np.arange(5, dtype=np.uint8)},
    ]
    rows = assert_same_rows(elements, length_struct={"a": 4})
    assert [row["a"].dtype for row in rows] == [np.int32, np.float32, np.uint8]


def test_an_empty_document_after_a_full_row_is_no_trouble():
    options: dict[str, Any] = {
        "length_struct": {"tokens": 3},
        "bos_handling": BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS,
        "bos_features": ["tokens"],
        "bos_token_id": 9,
    }
    rows = list(ours(documents([3, 0, 2, 0]), **options))
    assert [row["tokens"].tolist() for row in rows] == [[9, 2, 3], [9, 202, 9]]


def test_a_filter_and_a_batch_around_it_can_be_resumed():
    dataset = MapDataset.source(Elements(documents([3, 1, 4, 1, 5, 9, 2, 6]))).to_iter_dataset()
    packed = ConcatThenSplitIterDataset(
        dataset.filter(lambda x: len(x["tokens"]) != 5), length_struct={"tokens": 4}
    )
    assert_resumes(packed.batch(2))
    assert_resumes(packed.filter(lambda row: row["tokens"][0] % 2 == 1))


def test_a_meta_feature_longer_than_its_row_fails_after_the_rows_before():
    elements = [{"a": np.arange(2), "m": np.ones(n)} for n in (1, 1, 1, 4, 1)]
    options: dict[str, Any] = {"length_struct": {"a": 4, "m": 3}, "meta_features": ["m"]}
    iterator = iter(ours(elements, **options))
    rows = [next(iterator), next(iterator)]
    expected = take(iter(theirs(elements, **options)))
    assert_same(rows, expected[:2])
    assert len(expected) == 3  # and the refusal
    for _ in range(2):
        with pytest.raises(PlanError) as caught:
            next(iterator)
        for part in ("'m'", "length 4", "a row has 3", "Truncate it in a map"):
            assert part in str(caught.value)


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([{"a": np.ones(5)}, {"b": np.ones(1)}], "Parent element has structure ['b'], without 'a'"),
        (
            [{"a": np.ones(5)}, {"a": np.ones(1), "b": 1}],
            "Parent element has structure ['a', 'b'], but `length_struct` has no length for b",
        ),
        ([{"a": np.ones(5)}, 3], "Parent element has structure int, without 'a'"),
        ([{"a": np.ones(5)}, {"a": {"b": 1}}], "must be an array or a number, got dict"),
        ([{"a": np.ones((5, 2))}, {"a": np.ones((1, 3))}], "only the first axis may differ"),
    ],
)
def test_elements_that_do_not_fit_are_reported_after_the_rows_before(elements: Any, message: str):
    iterator = iter(ours([*elements, *elements[:1]], length_struct={"a": 4}))
    assert next(iterator)["a"].shape[0] == 4
    with pytest.raises(PlanError) as caught:
        next(iterator)
    assert message in str(caught.value)
    assert "ConcatThenSplit(a=4)" in caught.value.__notes__[0]


def test_an_element_that_never_ends_in_grain_ends():
    elements = [{"a": np.arange(n), "b": np.arange(m)} for n, m in ((1, 2), (27, 5))]
    options: dict[str, Any] = {"length_struct": {"a": 1, "b": 3}}
    assert len(take(iter(theirs(elements, **options)), most=500)) == 500
    rows = list(ours(elements, **options))
    assert [row["a"][0] for row in rows] == [0, *range(27)]
    laid = np.concatenate([row["b"][row["b_segment_ids"] > 0] for row in rows])
    assert laid.tolist() == [0, 1, 0, 1, 2, 3, 4]


def test_a_number_that_would_have_to_be_cut_is_reported():
    elements = [{"a": np.ones(1), "n": 1}] * 3
    with pytest.raises(PlanError, match="'n' is a number, which cannot be split"):
        list(ours(elements, length_struct={"a": 4, "n": 2}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length_struct": {"a": 0}}, "must be at least 1, got 0"),
        ({"length_struct": {"m": {"b": 1}}, "meta_features": ["m"]}, "must be flat"),
        ({"bos_token_id": 1}, "have no effect with `bos_handling`"),
        ({"bos_features": ["a"]}, "have no effect with `bos_handling`"),
        ({"bos_features": "a"}, "Put it in brackets"),
        (
            {"bos_handling": BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS},
            "needs a token. Pass `bos_token_id=`",
        ),
        (
            {
                "bos_handling": BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS,
                "bos_token_id": 1,
                "bos_features": ["a"],
                "meta_features": ["a"],
            },
            "'a' is in `bos_features` and in `meta_features`",
        ),
    ],
)
def test_arguments_that_cannot_work_are_reported_where_they_are_written(
    options: dict[str, Any], message: str
):
    with pytest.raises(PlanError) as caught:
        ours([], **{"length_struct": {"a": 4}, **options})
    assert message in str(caught.value)

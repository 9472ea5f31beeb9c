"""`statistics`: of any data, in one pass, the same for shards that are added."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as gm

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 9, 7, 3), np.uint8)


def test_the_statistics_of_images_by_channel():
    image = gm.statistics(gm.ArraySource({"image": IMAGES}), axis=-1)["image"]

    assert image.mean == pytest.approx(IMAGES.mean(axis=(0, 1, 2)))
    assert image.std == pytest.approx(IMAGES.std(axis=(0, 1, 2)))
    assert np.array_equal(np.asarray(image.min), IMAGES.min(axis=(0, 1, 2)))
    assert image.count == IMAGES.size


def test_the_first_axis_of_each_element_and_images_of_several_sizes():
    images = [np.full((3, size, 2), size, np.float32) for size in (1, 2)]

    record = gm.statistics(images, axis=0)["record"]

    assert record.mean == pytest.approx([10 / 6] * 3)
    assert gm.statistics(images)["record"].mean == pytest.approx(10 / 6)


def sources() -> list[Any]:
    rows = [{"image": image, "label": n % 3} for n, image in enumerate(IMAGES)]
    arrays = gm.ArraySource({"image": IMAGES, "label": np.arange(50) % 3})
    return [
        rows,
        arrays,
        iter(rows),
        gm.MapDataset.source(arrays),
        gm.MapDataset.source(rows).to_iter_dataset(),
        gm.load(rows, num_epochs=1),
        gm.load(arrays, num_epochs=1, batch_size=8),
        iter(gm.load(arrays, num_epochs=1, batch_size=8)),
    ]


@pytest.mark.parametrize("number", range(8))
def test_all_ways_to_read_the_same_elements_agree(number: int):
    image = gm.statistics(sources()[number])["image"]

    assert image.mean == pytest.approx(IMAGES.mean())
    assert image.std == pytest.approx(IMAGES.std())
    assert (image.min, image.max) == (IMAGES.min(), IMAGES.max())


def test_workers_compute_the_elements():
    loader = gm.load(range(40), num_epochs=1, transformations=[lambda x: x * 2.0], worker_count=1)
    with loader:
        assert gm.statistics(loader)["record"].mean == 39.0


def test_labels_are_counted():
    labels = gm.statistics([{"label": n} for n in (3, 1, 3)])["label"]
    assert labels.counts == {3: 2, 1: 1}
    assert list(labels.counts or ()) == [3, 1]


def test_names_are_counted_and_numbers_with_a_fraction_are_not():
    found = gm.statistics([{"name": "cat", "x": 0.5}, {"name": "dog", "x": 1}])
    assert found["name"].counts == {"cat": 1, "dog": 1}
    assert found["x"].counts is None


def test_missing_nested_and_ragged_values():
    records: list[Any] = [
        {"x": float("nan"), "n": {"t": [1, 2]}, "l": ["a"]},
        {"x": None, "n": {"t": [3]}},
        {"x": 4.0, "n": {"t": []}, "l": ["b", "c"]},
    ]

    found = gm.statistics(records)

    assert (found["x"].mean, found["x"].num_missing, found["x"].count) == (4.0, 2, 1)
    assert found['n["t"]'].mean == 2.0
    assert found["l[*]"].counts == {"a": 1, "b": 1, "c": 1}
    assert found.num_elements == 3


def test_elements_that_a_filter_removed_are_left_out():
    assert gm.statistics(gm.MapDataset.range(10).filter(lambda x: x > 7))["record"].mean == 8.5


@given(numbers=st.lists(st.floats(-1e6, 1e6) | st.none(), max_size=30), cut=st.integers(0, 30))
def test_the_statistics_of_shards_add_up(numbers: list[float | None], cut: int):
    records = [{"x": number} for number in numbers]

    whole = gm.statistics(records)
    added = gm.statistics(records[:cut]) + gm.statistics(records[cut:])

    assert added.num_elements == whole.num_elements
    assert set(added) == set(whole)
    for name in whole:
        assert added[name].mean == pytest.approx(whole[name].mean, rel=1e-9, abs=1e-6, nan_ok=True)
        assert added[name].std == pytest.approx(whole[name].std, rel=1e-6, abs=1e-5, nan_ok=True)
        assert (added[name].min, added[name].max) == (whole[name].min, whole[name].max)
        assert added[name].num_missing == whole[name].num_missing


def test_statistics_can_be_pickled_and_added():
    first = pickle.loads(pickle.dumps(gm.statistics([1, 2], axis=-1)))
    assert (first + gm.statistics([6]))["record"].mean == 3.0


def test_nulls_do_not_disturb_an_axis():
    records = [{"x": None}, {"x": np.array([1.0, 2.0])}, {"x": None}]
    assert gm.statistics(records, axis=-1)["x"].mean == pytest.approx([1.0, 2.0])


def test_the_source_is_not_changed():
    values = np.arange(6.0)
    gm.statistics(gm.ArraySource(values))
    assert values.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("values", "left_out", "note"),
    [
        ([b"a", b"b"], {"bytes": 2}, "x: 2 values of bytes left out; decode them first"),
        ([1, "a"], {"strings": 1}, "x: 1 string left out; convert them"),
        (["a", "a"], {"strings": 2}, "`counts` has how often each comes."),
        (["a" * 101], {"strings": 1}, "1 string left out; convert them"),
        ([1j, 2], {"complex numbers": 1}, "map them to real numbers first"),
        ([np.complex64(1j)] * 2, {"complex numbers": 2}, "map them to real numbers first"),
        ([np.datetime64("2020-01-01")], {"times": 1}, "x: 1 time left out; map them to numbers"),
        ([object()], {"other objects": 1}, "map them to numbers or arrays first."),
        ([np.array([["a", "b"]])], {"strings": 1}, "x: 1 string left out"),
    ],
)
def test_what_has_no_mean_is_named_with_a_remedy(
    values: list[Any], left_out: dict[str, int], note: str
):
    found = gm.statistics([{"x": value} for value in values])

    assert found["x"].num_left_out == left_out
    assert note in str(found)
    assert note in found._repr_html_()
    assert f"{sum(left_out.values())} {next(iter(left_out))} left out" in repr(found["x"])


def test_what_is_left_out_adds_up():
    found = gm.statistics([{"x": b"a"}]) + gm.statistics([{"x": b"b"}, {"x": 1.0}])
    assert found["x"].num_left_out == {"bytes": 2}


def test_numbers_and_lists_of_strings_need_no_remedy_for_the_lists():
    found = gm.statistics([{"t": ["a"], "x": 1}])
    assert (found["t"].num_left_out, found["x"].num_left_out) == ({}, {})


def test_no_elements():
    found = gm.statistics([])
    assert (found.num_elements, len(found)) == (0, 0)
    assert str(found).split() == ["leaf", "values", "missing", "mean", "std", "min", "max"]


def test_an_axis_of_several_sizes_is_an_error_that_names_the_leaf():
    with pytest.raises(
        gm.errors.PlanError, match="3 entries in some elements and 2 in others"
    ) as e:
        gm.statistics([{"x": np.zeros(3)}, {"x": np.zeros(2)}], axis=-1)
    assert "In the leaf 'x'." in e.value.__notes__


@pytest.mark.parametrize(
    "endless", [gm.load(range(3)), gm.MapDataset.range(3).repeat(), gm.load([1], batch_size=1)]
)
def test_what_never_ends_is_an_error(endless: Any):
    with pytest.raises(gm.errors.PlanError, match=r"`source` never ends\. Pass"):
        gm.statistics(endless)


def test_a_path_is_not_a_source():
    with pytest.raises(gm.errors.PlanTypeError, match="`data_source` is the string"):
        gm.statistics("a.csv")


def test_the_axis_must_be_an_integer():
    with pytest.raises(gm.errors.PlanTypeError, match="`axis` must be an integer"):
        gm.statistics([1], axis=1.5)  # pyright: ignore[reportArgumentType]


def test_an_unknown_leaf_is_named_with_the_known_ones():
    with pytest.raises(KeyError, match=r"no leaf 'y'\. There are: 'x'"):
        gm.statistics([{"x": 1}])["y"]


def test_tables_and_representations_escape_names_and_hold_no_address():
    found = gm.statistics([{"<b>\x1b[2J": 1.0}])

    assert repr(found) == "<Statistics: 1 elements, 1 leaves>"
    assert "\x1b" not in str(found) + found._repr_html_()
    assert "&lt;b&gt;\\x1b[2J" in found._repr_html_()
    assert repr(gm.statistics([float("nan"), float("inf")])["record"]) == (
        "<LeafStatistics: 0 values, 1 missing, 1 infinite, inf to inf>"
    )

"""Which records a dataset has: splits, folds and weighted draws, in every epoch."""

import warnings
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill import MapDataset
from gristmill._base import log_once
from gristmill.errors import GristmillWarning, PlanError, StateError


def epoch_of(ds: Any, epoch: int) -> list[Any]:
    return [ds[index] for index in range(epoch * len(ds), (epoch + 1) * len(ds))]


@pytest.fixture
def nothing_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_once, "_seen", set[str]())


def test_the_parts_are_the_same_in_every_epoch():
    train, test = MapDataset.range(1000).split([0.8, 0.2], seed=0)
    train = train.shuffle(seed=1)
    first, held_out = set(epoch_of(train, 0)), set(epoch_of(test, 0))
    assert first | held_out == set(range(1000))
    for epoch in range(1, 4):
        assert set(epoch_of(train, epoch)) == first
        assert set(epoch_of(test, epoch)) == held_out
    assert epoch_of(train, 0) != epoch_of(train, 1)
    assert set(train.repeat(3)) == first


def test_random_steps_below_differ_between_epochs():
    def jitter(x: int, rng: np.random.Generator) -> tuple[int, int]:
        return x, int(rng.integers(10**9))

    ds = MapDataset.range(20).random_map(jitter, seed=0)
    train, _ = ds.split([0.5, 0.5], seed=0)
    one, other = epoch_of(train, 0), epoch_of(train, 1)
    assert [x for x, _ in one] == [x for x, _ in other]
    assert all(a != b for (_, a), (_, b) in zip(one, other, strict=True))


def test_a_split_is_sharded_filtered_and_batched_like_any_dataset():
    train, test = MapDataset.range(40).split([30, 10], seed=0)
    shards = [
        train[shard::3].to_iter_dataset().filter(lambda x: x % 2).batch(2) for shard in (0, 1, 2)
    ]
    seen = [int(x) for shard in shards for batch in shard for x in batch]
    assert sorted(seen) == sorted(x for x in train if x % 2)
    (batch,) = test.batch(10)
    assert batch.tolist() == list(test)


def test_stratified_parts_by_a_column_a_function_or_labels():
    labels = np.arange(60) % 3
    source = gm.ArraySource({"x": np.arange(60), "y": labels})
    by_key = MapDataset.source(source).split([0.5, 0.5], seed=0, stratify="y")
    by_labels = MapDataset.source(source).split([0.5, 0.5], seed=0, stratify=labels)
    by_function = (
        MapDataset.source(source)
        .map(dict)
        .split([0.5, 0.5], seed=0, stratify=lambda record: record["y"])
    )
    for parts in (by_key, by_labels, by_function):
        assert [sorted(r["x"] for r in part) for part in parts] == [
            sorted(r["x"] for r in part) for part in by_key
        ]
        assert np.bincount([record["y"] for record in parts[0]]).tolist() == [10, 10, 10]


def test_folds_are_disjoint_in_every_epoch():
    ds = MapDataset.range(11)
    tested: list[int] = []
    for i in range(3):
        train, test = ds.k_fold(3, i, seed=0)
        for epoch in range(2):
            assert sorted(epoch_of(train, epoch) + epoch_of(test, epoch)) == list(range(11))
        tested += test
    assert sorted(tested) == list(range(11))


def test_the_seed_of_the_dataset_is_the_default():
    one, other = (list(MapDataset.range(30).seed(3).split([0.5, 0.5])[0]) for _ in range(2))
    assert one == other
    with pytest.raises(PlanError, match="`split` requires a seed"):
        MapDataset.range(30).split([0.5, 0.5])
    with pytest.raises(PlanError, match="`k_fold` requires a seed"):
        MapDataset.range(30).k_fold(2, 0)
    with pytest.raises(PlanError, match="`sample` requires a seed"):
        MapDataset.range(3).sample([1, 1, 1])


def test_what_would_share_elements_cannot_be_split():
    ds = MapDataset.range(10)
    for method, split in (
        ("split", lambda ds: ds.split([0.5, 0.5], seed=0)),
        ("k_fold", lambda ds: ds.k_fold(2, 0, seed=0)),
    ):
        with pytest.raises(PlanError, match=rf"`{method}` cannot follow Shuffle\(seed=1\), added"):
            split(ds.shuffle(seed=1).map(str))
        with pytest.raises(PlanError, match=rf"`{method}` cannot follow Sample\("):
            split(ds.sample([1] * 10, seed=0))
        with pytest.raises(PlanError, match=rf"`{method}` cannot follow Mix\(.*each dataset"):
            split(MapDataset.mix([ds, ds]))
        with pytest.raises(PlanError, match=rf"`{method}` cannot follow `repeat`"):
            split(ds.repeat(2))
        with pytest.raises(PlanError, match=rf"`{method}` needs at least one element"):
            split(ds[:0])
    train, _ = MapDataset.concatenate([ds, ds.map(str)]).split([0.5, 0.5], seed=0)
    assert len(train) == 10


def test_a_split_of_a_split():
    train, rest = MapDataset.range(100).split([0.6, 0.4], seed=0)
    valid, test = rest.split([0.5, 0.5], seed=0)
    assert sorted([*train, *valid, *test]) == list(range(100))


def test_a_state_of_one_part_does_not_restore_the_other():
    train, test = MapDataset.range(20).split([10, 10], seed=0)
    iterator = iter(train)
    next(iterator)
    with pytest.raises(StateError, match="another order"):
        iter(test).set_state(iterator.get_state())


@pytest.mark.usefixtures("nothing_warned_of")
def test_disjoint_slices_of_a_shuffled_dataset_warn_once():
    ds = MapDataset.range(1000).shuffle(seed=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train, test = ds[:800], ds[800:]
        _ = train.repeat(2), test.repeat(2), ds[:10], ds[990:]
    (warning,) = caught
    assert warning.category is GristmillWarning
    assert "from the second epoch on" in str(warning.message)
    assert "\n    ds = ds.shuffle(seed=0);" in str(warning.message)
    assert warning.filename == __file__
    leaked = set(epoch_of(train, 1)) & set(epoch_of(test, 0))
    assert leaked  # which is what the warning is about


@pytest.mark.usefixtures("nothing_warned_of")
@pytest.mark.parametrize(
    "build",
    [
        lambda ds: [(s := ds.shuffle(seed=0).map(str))[:500], s[500:]],
        lambda ds: [(s := ds.shuffle(seed=0))[100:200], s[:100]],
        lambda ds: [(s := ds.shuffle(seed=0)).take(800), s.skip(800)],
        lambda ds: [(s := ds.shuffle(seed=0)).skip(800), s[:800]],
        lambda ds: [ds.shuffle(seed=0)[:800], ds.shuffle(seed=0)[800:]],
        lambda ds: [(s := ds.shuffle(seed=0)).map(str)[:800], s.map(int)[800:]],
    ],
)
def test_variants_of_the_trap_warn(build: Any):
    with pytest.warns(GristmillWarning, match="Use `split`"):
        build(MapDataset.range(1000))


@pytest.mark.usefixtures("nothing_warned_of")
def test_what_is_no_trap_does_not_warn():
    ds = MapDataset.range(100).shuffle(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shard in range(4):
            ds[shard::4].repeat(2)
        _ = ds[:10].repeat(), ds[:20], ds[5:30]
        ds[:].repeat()
        plain = MapDataset.range(100)
        _ = plain[:80].shuffle(seed=0).repeat(), plain[80:].repeat()
        fixed = ds.repeat(1, reseed_each_epoch=False)
        _ = fixed[:80].repeat(), fixed[80:].repeat()


def test_elements_are_drawn_by_weights_in_every_form():
    source = gm.ArraySource({"x": np.arange(4), "w": np.array([0.0, 1.0, 2.0, 0.0])})
    ds = MapDataset.source(source)
    by_key = [r["x"] for r in ds.sample("w", num_samples=50, seed=0)]
    by_list = [r["x"] for r in ds.sample([0, 1, 2, 0], num_samples=50, seed=0)]
    by_function = [r["x"] for r in ds.sample(lambda r: r["w"], num_samples=50, seed=0)]
    assert by_key == by_list == by_function
    assert set(by_key) == {1, 2}


def test_draws_are_those_of_the_sampler():
    weights = [1, 2, 3, 0, 5]
    for replacement in (True, False):
        options: dict[str, Any] = {"replacement": replacement, "seed": 4}
        drawn = MapDataset.range(5).sample(weights, **options).repeat(3)
        sampler = gm.WeightedSampler(weights, num_epochs=3, **options)
        assert list(drawn) == list(gm.DataLoader(data_source=range(5), sampler=sampler))


def test_classes_are_balanced():
    kinds = ["cat"] * 90 + ["dog"] * 10
    drawn = list(MapDataset.source(kinds).sample(balance=kinds, num_samples=2000, seed=0))
    assert 900 < drawn.count("dog") < 1100


def test_draws_differ_between_epochs_and_are_drawn_without_replacement():
    ds = MapDataset.range(30).sample([1] * 30, replacement=False, seed=0)
    assert epoch_of(ds, 0) != epoch_of(ds, 1)
    assert sorted(epoch_of(ds, 1)) == list(range(30))


def test_either_weights_or_classes_are_needed():
    with pytest.raises(PlanError, match="either `weights` or `balance`"):
        MapDataset.range(3).sample(seed=0)
    with pytest.raises(PlanError, match="either `weights` or `balance`"):
        MapDataset.range(3).sample([1] * 3, balance=[1] * 3, seed=0)
    with pytest.raises(PlanError, match="`sample` needs a finite dataset"):
        MapDataset.range(3).repeat().sample([1] * 3, seed=0)


@pytest.mark.parametrize("name", ["split", "k_fold", "sample"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_resumes_anywhere_with_any_number_of_workers(name: str, num_workers: int):
    ds = MapDataset.range(60)
    chosen = {
        "split": lambda: ds.split([0.75, 0.25], seed=0, stratify=np.arange(60) % 4)[0],
        "k_fold": lambda: ds.k_fold(4, 1, seed=0)[0],
        "sample": lambda: ds.sample(np.arange(60), replacement=False, num_samples=45, seed=0),
    }[name]()
    stream = chosen.shuffle(seed=5).repeat(2).to_iter_dataset().batch(7)
    expected = [batch.tolist() for batch in stream]
    other = stream.mp_prefetch(gm.MultiprocessingOptions(num_workers=num_workers))
    for taken in (0, 3, 9):
        iterator = iter(stream)
        for _ in range(taken):
            next(iterator)
        with iter(other) as resumed:
            resumed.set_state(iterator.get_state())
            assert [batch.tolist() for batch in resumed] == expected[taken:]

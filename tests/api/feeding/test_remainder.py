"""A batch with fewer rows than the others is kept, dropped or padded."""

import json
import re
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import gristmill as gm
from gristmill._api.feeding.remainder import RemainderMode
from gristmill.errors import FeedError, PlanError
from tests.api.feeding.batches import (
    EACH_PREFETCH,
    UNSUPPORTED,
    Sample,
    Watched,
    fed,
    lists,
    loader,
    numbers,
    of,
)


@pytest.mark.parametrize(
    ("remainder", "expected"),
    [
        ("keep", [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]),
        ("drop", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (
            "pad",
            [
                ([0, 1, 2, 3], [True] * 4),
                ([4, 5, 6, 7], [True] * 4),
                ([8, 9, 0, 0], [True, True, False, False]),
            ],
        ),
    ],
)
@EACH_PREFETCH
def test_the_last_batch_is_kept_dropped_or_padded(
    remainder: RemainderMode, expected: list[Any], prefetch: int
):
    assert fed(loader(), remainder=remainder, prefetch=prefetch) == expected


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
def test_full_batches_are_all_fed(remainder: RemainderMode):
    batches = fed(loader(8), remainder=remainder)

    assert len(batches) == 2
    if remainder == "pad":
        assert [mask for _, mask in batches] == [[True] * 4] * 2


def test_a_dict_gets_its_mask_as_a_leaf():
    ds = numbers(3).map(lambda x: {"x": x, "y": np.full(2, x)}).batch(2)

    assert fed(ds, remainder="pad") == [
        {"x": [0, 1], "y": [[0, 0], [1, 1]], "mask": [True, True]},
        {"x": [2, 0], "y": [[2, 2], [0, 0]], "mask": [True, False]},
    ]
    assert [set(batch) for batch in fed(ds, remainder="pad", mask="real")] == [
        {"x", "y", "real"}
    ] * 2


def test_a_leaf_named_as_the_mask_is_not_overwritten():
    ds = numbers(3).map(lambda x: {"x": x, "mask": x}).batch(2)

    with pytest.raises(FeedError, match="already has a leaf 'mask'"):
        fed(ds, remainder="pad")
    assert fed(ds, remainder="pad", mask="real")[1]["real"] == [True, False]


def test_registered_dataclasses_and_arrays_of_jax_are_padded():
    ds = numbers(3).batch(2).map(lambda x: Sample(jnp.asarray(x) + 1, x))

    batches = fed(ds, remainder="pad")

    assert batches == [(Sample([1, 2], [0, 1]), [True, True]), (Sample([3, 0], [2, 0]), [True, 0])]


def test_scalars_and_random_keys_are_not_padded():
    key = jax.random.key(3)
    ds = numbers(3).batch(2).map(lambda x: {"x": x, "a_step": 7, "key": key})

    with gm.feed(ds, remainder="pad") as iterator:
        batch = list(iterator)[-1]

    assert np.asarray(batch["x"]).tolist() == [2, 0]
    assert batch["a_step"] == 7
    assert batch["key"] == key


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.uint8, ml_dtypes.bfloat16, ">i4"])
def test_padding_is_zero_for_every_dtype(dtype: Any):
    ds = gm.MapDataset.range(3).map(lambda _: np.ones(2, dtype)).batch(2)

    with gm.feed(ds, remainder="pad") as iterator:
        array, _ = list(iterator)[-1]

    assert array.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.asarray(array, np.float32).tolist() == [[1, 1], [0, 0]]


EPOCHS = [[0, 1], [2, 3], [4]] * 2


@pytest.mark.parametrize(
    ("remainder", "expected"),
    [
        ("keep", EPOCHS),
        ("drop", [batch for batch in EPOCHS if len(batch) == 2]),
        (
            "pad",
            [([*b, 0][:2], [True, len(b) == 2]) for b in EPOCHS],
        ),
    ],
)
def test_each_epoch_may_end_with_a_smaller_batch(remainder: RemainderMode, expected: list[Any]):
    ds = numbers(5).batch(2).repeat(2)

    assert fed(ds, remainder=remainder) == expected

    for count in range(len(expected)):  # and it resumes exactly there
        with gm.feed(ds, remainder=remainder) as iterator:
            head = lists(islice(iterator, count))
            state = json.loads(json.dumps(iterator.get_state()))
        with gm.feed(ds, remainder=remainder) as resumed:
            resumed.set_state(state)
            assert head + lists(resumed) == expected


@pytest.mark.parametrize(("remainder", "num_compilations"), [("keep", 2), ("drop", 1), ("pad", 1)])
def test_jax_compiles_again_only_for_a_kept_smaller_batch(
    remainder: RemainderMode, num_compilations: int
):
    traced: list[Any] = []

    @jax.jit
    def step(total: jax.Array, batch: Any) -> jax.Array:
        traced.append(jax.tree.map(jnp.shape, batch))
        return total + batch["x"].sum()

    ds = numbers(18).map(lambda x: {"x": x}).batch(4).repeat(2)
    total, num_steps = jnp.int32(0), 0
    with gm.feed(ds, remainder=remainder) as iterator:
        for batch in iterator:
            total = step(total, batch)
            num_steps += 1

    assert len(traced) == num_compilations
    assert num_steps == (8 if remainder == "drop" else 10)
    assert total == 2 * sum(range(16 if remainder == "drop" else 18))


def test_batches_whose_rows_cannot_be_counted_raise():
    with pytest.raises(FeedError, match=re.escape('batch["a"]: 2, batch["b"]: 3')):
        fed(of({"a": np.ones(2), "b": np.ones(3)}), remainder="pad", batch_size=4)
    with pytest.raises(FeedError, match="no array with rows"):
        fed(of({"a": 1}), remainder="drop", batch_size=4)
    for kind in ("strings", "records", "objects", "anything"):
        with pytest.raises(FeedError, match="no array with rows"):
            fed(of({"a": UNSUPPORTED[kind]}), remainder="pad", batch_size=4, unsupported="pass")
    with pytest.raises(FeedError, match=r"has 4 rows, but `batch_size` is 3"):
        fed(loader(), remainder="pad", batch_size=3)


def test_the_batch_size_can_be_passed_if_the_pipeline_does_not_determine_it():
    data = Watched(iter(loader()))

    with pytest.raises(PlanError, match=r"does not determine. Pass `batch_size`"):
        gm.feed(data, remainder="drop")
    assert fed(data, remainder="drop", batch_size=4) == [[0, 1, 2, 3], [4, 5, 6, 7]]

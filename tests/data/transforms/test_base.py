from typing import Any

import numpy as np
import pytest

import gristmill
from gristmill import Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap, TfRandomMap
from gristmill.errors import PlanError, PlanTypeError
from gristmill.transforms import SupportsMapBatch


@pytest.mark.parametrize("kind", [Map, RandomMap, TfRandomMap, MapWithIndex, Filter, FlatMap])
def test_a_transform_without_its_verb_cannot_be_made(kind: Any):
    unfinished = type("Unfinished", (kind,), {})
    with pytest.raises(TypeError, match="abstract method"):
        unfinished()


def test_grains_longer_names_are_the_same_classes():
    assert gristmill.MapTransform is Map
    assert gristmill.RandomMapTransform is RandomMap
    assert gristmill.MapWithIndexTransform is MapWithIndex
    assert gristmill.FilterTransform is Filter
    assert gristmill.FlatMapTransform is FlatMap
    assert gristmill.BatchTransform is Batch


def test_map_batch_is_optional():
    class Plain(Map):
        def map(self, element: Any) -> Any:
            return element

    class Columnar(Plain):
        def map_batch(self, columns: Any) -> Any:
            return columns

    assert not isinstance(Plain(), SupportsMapBatch)
    assert isinstance(Columnar(), SupportsMapBatch)


def test_a_batch_takes_numpy_integers_and_booleans():
    batch = Batch(np.int16(4), np.bool_(True))  # pyright: ignore[reportArgumentType]
    assert batch == Batch(4, True)
    assert type(batch.batch_size) is int
    assert type(batch.drop_remainder) is bool


@pytest.mark.parametrize("size", [0, -1, -128])
def test_a_batch_of_nothing_is_refused(size: int):
    with pytest.raises(PlanError, match=rf"^batch_size must be positive, got {size}\."):
        Batch(size)


@pytest.mark.parametrize("size", [2.0, "2", None, True, np.float32(2), [2]], ids=repr)
def test_a_batch_size_that_is_no_integer_is_refused(size: Any):
    with pytest.raises(PlanTypeError, match=r"^`batch_size` must be an integer, got "):
        Batch(size)


@pytest.mark.parametrize("value", [2, 1.0, "yes", None], ids=repr)
def test_drop_remainder_is_true_or_false(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`drop_remainder` must be True or False, got "):
        Batch(2, drop_remainder=value)


def test_a_batch_fn_that_cannot_be_called_is_refused():
    wrong: Any = "stack"
    with pytest.raises(PlanTypeError, match=r"^`batch_fn` must be callable, got 'stack'\."):
        Batch(2, batch_fn=wrong)

"""What elements look like is reported as by Grain, and where it cannot be, the step is named."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from gristmill import ArraySource
from gristmill._api.dataset.element_spec import get_element_spec
from gristmill._api.dataset.stream_datasets import (
    RebatchIterDataset,
    RepeatIterDataset,
    ZipIterDataset,
)
from gristmill._plan.element_spec import ShapeDtypeStruct, ShapeDtypeStructProtocol
from gristmill.errors import SpecError
from tests.compat.both_sides import SIDES, double, jitter, number, ours, passes, splitting


def halving(api: Any) -> Any:
    class Halve(api.transforms.Map):
        def map(self, element: Any) -> Any:
            return {"half": np.float32(element / 2), "both": (element, element)}

        def output_spec(self, input_spec: Any) -> Any:
            half = api.experimental.ShapeDtypeStruct(input_spec.shape, np.float32)
            return {"half": half, "both": (input_spec, input_spec)}

    return Halve()


def telling(api: Any, kind: str, method: str) -> Any:
    def same(self: Any, *elements: Any) -> Any:
        return elements[0]

    def output_spec(self: Any, input_spec: Any) -> Any:
        return api.experimental.ShapeDtypeStruct((*input_spec.shape, 2), np.int8)

    return type(
        "Tell", (getattr(api.transforms, kind),), {method: same, "output_spec": output_spec}
    )()


class Padded:
    """A batch function that reports what it yields."""

    def __call__(self, elements: Any, size: int = 3) -> Any:
        return elements

    def output_spec(self, input_spec: Any, batch_size: int, drop_remainder: bool) -> Any:
        return type(input_spec)((batch_size, int(drop_remainder)), input_spec.dtype)


KNOWN = {
    "range": lambda api: api.MapDataset.range(9),
    "same elements": lambda api: api.experimental.WindowShuffleMapDataset(
        api.MapDataset.range(9).seed(1).shuffle()[2:].repeat(2).filter(passes(2)),
        window_size=3,
        seed=1,
    ),
    "batch": lambda api: api.MapDataset.range(9).batch(2),
    "even batch": lambda api: api.MapDataset.range(9).batch(2, drop_remainder=True).batch(3),
    "map": lambda api: api.MapDataset.range(9).map(halving(api)).batch(2),
    "random map": lambda api: api.MapDataset.range(9).random_map(
        telling(api, "RandomMap", "random_map"), seed=1
    ),
    "map with index": lambda api: api.MapDataset.range(9).map_with_index(
        telling(api, "MapWithIndex", "map_with_index")
    ),
    "zip": lambda api: api.experimental.ZipMapDataset(
        [api.MapDataset.range(9), api.MapDataset.range(9).map(halving(api))]
    ),
    "mix": lambda api: api.MapDataset.mix([api.MapDataset.range(9), api.MapDataset.range(9)]),
    "interleave": lambda api: api.experimental.InterleaveIterDataset(
        [api.MapDataset.range(9).to_iter_dataset(), api.MapDataset.range(3).to_iter_dataset()],
        cycle_length=2,
    ),
    "concatenate": lambda api: api.MapDataset.concatenate([api.MapDataset.range(9)] * 2),
    "batch function": lambda api: api.MapDataset.range(9).batch(3, batch_fn=Padded()),
    "part of a batch function": lambda api: api.MapDataset.range(9).batch(
        3, batch_fn=partial(Padded(), size=2), drop_remainder=True
    ),
    "stream": lambda api: (
        api.MapDataset.range(9)
        .to_iter_dataset()
        .seed(3)
        .filter(passes(2))
        .map(halving(api))
        .batch(2)
    ),
    "stream of random and indexed maps": lambda api: (
        api.MapDataset.range(9)
        .to_iter_dataset()
        .random_map(telling(api, "RandomMap", "random_map"), seed=1)
        .map_with_index(telling(api, "MapWithIndex", "map_with_index"))
    ),
    "run ahead": lambda api: api.experimental.ThreadPrefetchIterDataset(
        api.MapDataset.range(9).to_iter_dataset(), prefetch_buffer_size=2
    ),
    "with options": lambda api: api.experimental.WithOptionsIterDataset(
        api.MapDataset.range(9).to_iter_dataset(), api.experimental.DatasetOptions()
    ),
    "workers": lambda api: (
        api.MapDataset.range(9)
        .to_iter_dataset()
        .mp_prefetch(api.MultiprocessingOptions(num_workers=1))
    ),
}


def plain(spec: Any) -> Any:
    """A spec of either side as values that can be compared."""
    if isinstance(spec, dict):
        return {key: plain(value) for key, value in spec.items()}
    if isinstance(spec, tuple):
        return tuple(map(plain, spec))
    return spec.shape, spec.dtype


@pytest.mark.parametrize("program", KNOWN.values(), ids=KNOWN.keys())
def test_the_spec_is_grains(program: Any):
    theirs, own = (api.experimental.get_element_spec(program(api)) for api in SIDES)
    assert plain(own) == plain(theirs)


UNKNOWN = {
    "a source": (lambda api: api.MapDataset.source([1, 2]), "are not known before they are read"),
    "a function": (lambda api: api.MapDataset.range(3).map(double).batch(2), "Map double"),
    "a random function": (
        lambda api: api.MapDataset.range(3).random_map(jitter, seed=1),
        "RandomMap jitter",
    ),
    "a function with index": (
        lambda api: api.MapDataset.range(3).to_iter_dataset().map_with_index(number),
        "MapWithIndex number",
    ),
    "pieces": (
        lambda api: api.experimental.FlatMapMapDataset(api.MapDataset.range(3), splitting(api, 2)),
        "FlatMap",
    ),
    "a batch function": (lambda api: api.MapDataset.range(3).batch(2, batch_fn=list), "`batch_fn`"),
}


@pytest.mark.parametrize(("program", "described"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_is_not_known_is_an_error_that_names_the_step(program: Any, described: str):
    with pytest.raises((ValueError, NotImplementedError)):
        SIDES[0].experimental.get_element_spec(program(SIDES[0]))
    for kind in (SpecError, ValueError, NotImplementedError):  # Grain raises either of the two
        with pytest.raises(kind, match=described):
            get_element_spec(program(ours))


def test_arrays_report_what_they_hold():
    source = ArraySource({"x": np.zeros((5, 3), np.float32), "y": np.arange(5)})
    spec = get_element_spec(ours.MapDataset.source(source).batch(2, drop_remainder=True))
    assert spec == {
        "x": ShapeDtypeStruct((2, 3), np.dtype("float32")),
        "y": ShapeDtypeStruct((2,), np.dtype("int64")),
    }


def test_users_own_datasets_may_report():
    class Own(ours.MapDataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: Any) -> Any:
            return index

    with pytest.raises(SpecError, match="`_element_spec`"):
        get_element_spec(Own())

    class Telling(Own):
        @property
        def _element_spec(self) -> Any:
            return ShapeDtypeStruct((), np.int8)

    assert get_element_spec(Telling().shuffle(1)) == ShapeDtypeStruct((), np.int8)


def test_arrays_and_our_structs_fulfil_the_protocol():
    assert isinstance(ShapeDtypeStruct((), np.int8), ShapeDtypeStructProtocol)
    assert isinstance(np.zeros(3), ShapeDtypeStructProtocol)
    assert not isinstance(3, ShapeDtypeStructProtocol)


def test_streams_of_other_sizes_report_what_they_yield():
    ds = ours.MapDataset.range(9).batch(2, drop_remainder=True).to_iter_dataset()
    again = RepeatIterDataset(RebatchIterDataset(ds, 4))
    assert get_element_spec(again) == ShapeDtypeStruct((4,), np.int64)
    assert get_element_spec(ZipIterDataset([ds, ds])) == (ShapeDtypeStruct((2,), np.int64),) * 2

from typing import Any

import pytest

import gristmill as grain
from gristmill._base.argument_advice import advises
from gristmill.errors import PlanTypeError

MAP = grain.MapDataset.range(4)
STREAM: Any = MAP.to_iter_dataset()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda load, loader: load([1], num_workers=2),
            r"`load` has no argument `num_workers`\. P",
        ),
        (lambda load, loader: load([1], batch_sizes=2), r"Did you mean `batch_size`\?$"),
        (lambda load, loader: load([1], zzz=2), r"`load` has no argument `zzz`\.$"),
        (lambda load, loader: load([1], 2), r"`load` takes the source, and keyword arguments"),
        (lambda load, loader: loader([1], batch_size=4), r"`gristmill.load\(source, batch_size=32"),
        (lambda load, loader: loader([1], [0]), r"`DataLoader` takes keyword arguments"),
        (lambda load, loader: loader(data_source=[1]), r"needs the argument `sampler`\. Pass `Ind"),
    ],
)
def test_arguments_of_other_loaders_are_answered_by_what_to_write(call: Any, message: str):
    with pytest.raises(PlanTypeError, match=message):
        call(grain.load, grain.DataLoader)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: grain.IterDataset.concatenate(STREAM, STREAM), r"takes a list of datasets\. Wr"),  # pyright: ignore
        (lambda: grain.MapDataset.concatenate(MAP, MAP), r"takes a list of datasets\. Write"),  # pyright: ignore
        (lambda: MAP.bucket_by_length([2], batch_sizes=1), r"`lengths`\. .* `to_iter_dataset\(\)`"),  # pyright: ignore
    ],
)
def test_methods_of_datasets_are_explained(call: Any, message: str):
    with pytest.raises(PlanTypeError, match=message):
        call()


def test_an_error_from_within_a_function_stays_as_it_is():
    @advises("f", {"x": "Pass it."})
    def fails(x: int) -> None:
        raise TypeError("from within")

    with pytest.raises(TypeError, match="from within") as caught:
        fails(1)
    assert type(caught.value) is TypeError


def test_other_calls_that_do_not_fit_raise_the_error_of_python():
    @advises("f", {})
    def one(x: int) -> int:
        return x

    anything: Any = one
    for call in (lambda: anything(), lambda: anything(1, 2)):
        with pytest.raises(TypeError, match="positional argument"):
            call()


@pytest.mark.parametrize(
    "name", ["split", "k_fold", "sample", "reduce", "group_by_window", "chain"]
)
def test_a_stream_suggests_what_to_use_for_methods_of_other_libraries(name: str):
    with pytest.raises(AttributeError, match=rf"^`IterDataset` has no `{name}`: (use|call) "):
        getattr(STREAM, name)

"""Options are checked when they are created, and errors name the accepted values."""

import math
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill.errors import PlanError, PlanTypeError

INTEGERS: list[tuple[Any, str, int]] = [
    (gm.WorkerOptions, "max_restarts", 0),
    (gm.WorkerOptions, "memory_budget_bytes", 1),
    (gm.SkipErrors, "budget", 0),
]


def test_by_default_workers_are_replaced_without_limits_on_time_and_memory():
    options = gm.WorkerOptions()

    assert options.worker_init_fn is None
    assert options.max_restarts > 0
    assert options.block_timeout_s is None
    assert options.memory_budget_bytes is None


@pytest.mark.parametrize(("options", "name", "minimum"), INTEGERS)
@pytest.mark.parametrize("convert", [int, np.int32, np.uint64])
def test_integers_of_any_type_become_python_integers(
    options: Any, name: str, minimum: int, convert: Any
):
    for number in (minimum, 7, 10**9):
        value = getattr(options(**{name: convert(number)}), name)
        assert value == number
        assert type(value) is int


@pytest.mark.parametrize(("options", "name", "minimum"), INTEGERS)
def test_a_number_below_the_minimum_is_refused(options: Any, name: str, minimum: int):
    with pytest.raises(
        PlanError, match=rf"^`{name}` must be at least {minimum}, got {minimum - 1}\.$"
    ):
        options(**{name: minimum - 1})


@pytest.mark.parametrize(("options", "name", "minimum"), INTEGERS)
@pytest.mark.parametrize("value", [1.0, "3", True, [1], Fraction(3)], ids=repr)
def test_a_value_that_is_not_an_integer_is_refused(
    options: Any, name: str, minimum: int, value: Any
):
    with pytest.raises(PlanTypeError, match=rf"^`{name}` must be an integer, got "):
        options(**{name: value})


@pytest.mark.parametrize("value", [1, 0.5, 3600.0, np.float64(2.0)], ids=repr)
def test_a_time_limit_is_any_number_above_zero(value: Any):
    seconds = gm.WorkerOptions(block_timeout_s=value).block_timeout_s

    assert seconds == value
    assert type(seconds) is float


@pytest.mark.parametrize("value", [0, -1, -0.5, math.nan], ids=repr)
def test_a_time_limit_that_is_not_positive_is_refused(value: float):
    with pytest.raises(PlanError, match=r"^`block_timeout_s` must be above 0, got "):
        gm.WorkerOptions(block_timeout_s=value)


@pytest.mark.parametrize("value", ["60", True, [1], 1j], ids=repr)
def test_a_time_limit_that_is_not_a_number_is_refused(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`block_timeout_s` must be a number of seconds, got"):
        gm.WorkerOptions(block_timeout_s=value)


@pytest.mark.parametrize("seconds", [1e7, 1e300, math.inf])
def test_a_time_limit_may_be_arbitrarily_long(seconds: float):
    with iter(
        gm.DataLoader(
            data_source=range(4),
            sampler=gm.IndexSampler(4, num_epochs=1),
            worker_count=1,
            worker_options=gm.WorkerOptions(block_timeout_s=seconds),
        )
    ) as iterator:
        assert list(iterator) == [0, 1, 2, 3]


@pytest.mark.parametrize("value", [3, "print", [print]], ids=repr)
def test_an_init_fn_that_is_not_callable_is_refused(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`worker_init_fn` must be a function, got "):
        gm.WorkerOptions(worker_init_fn=value)


@pytest.mark.parametrize("value", [-1, -0.001, float("nan")])
def test_an_idle_timeout_must_not_be_negative(value: Any):
    with pytest.raises(PlanError, match=r"^`idle_timeout_s` must be at least 0, got "):
        gm.WorkerOptions(idle_timeout_s=value)


@pytest.mark.parametrize("value", ["60", None, True, [1]])
def test_an_idle_timeout_must_be_a_number(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`idle_timeout_s` must be a number of seconds, got"):
        gm.WorkerOptions(idle_timeout_s=value)


@pytest.mark.parametrize("value", [0, 1e300, float("inf")])
def test_any_other_idle_timeout_works(value: float):
    options = gm.WorkerOptions(idle_timeout_s=value)
    loader = gm.DataLoader(
        data_source=range(4),
        sampler=gm.SequentialSampler(4),
        worker_count=1,
        worker_options=options,
    )
    with loader:
        assert list(loader) == list(loader) == [0, 1, 2, 3]


@pytest.mark.parametrize("options", [gm.WorkerOptions(), gm.SkipErrors(3)], ids=repr)
def test_options_are_immutable_and_comparable(options: Any):
    assert replace(options) == options
    assert hash(replace(options)) == hash(options)
    with pytest.raises(FrozenInstanceError):
        options.budget = options.max_restarts = 1


def test_worker_options_are_keyword_only():
    make: Any = gm.WorkerOptions
    with pytest.raises(TypeError):
        make(None, 20)


def test_the_budget_is_required():
    make: Any = gm.SkipErrors
    with pytest.raises(TypeError, match="budget"):
        make()


def load(**arguments: Any) -> gm.DataLoader:
    return gm.DataLoader(
        data_source=range(4), sampler=gm.IndexSampler(4, num_epochs=1), **arguments
    )


@pytest.mark.parametrize("value", ["skip", None, 3, True, gm.SkipErrors], ids=repr)
def test_on_error_must_be_raise_or_skip_errors(value: Any):
    with pytest.raises(
        PlanTypeError,
        match=r'^`on_error` must be SkipErrors, got .* Pass "raise" or `SkipErrors\(budget=',
    ):
        load(on_error=value)


@pytest.mark.parametrize("value", [20, {"max_restarts": 3}, gm.WorkerOptions], ids=repr)
def test_worker_options_of_another_type_are_refused(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`worker_options` must be WorkerOptions, got "):
        load(worker_options=value)


@pytest.mark.parametrize("value", [-1, -100])
def test_a_negative_number_of_workers_is_refused(value: int):
    with pytest.raises(PlanError, match=rf"^`worker_count` must be at least 0, got {value}\.$"):
        load(worker_count=value)


@pytest.mark.parametrize("value", [1.0, "2", True, [2]], ids=repr)
def test_a_number_of_workers_that_is_not_an_integer_is_refused(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`worker_count` must be an integer, got "):
        load(worker_count=value)

"""Checks of arguments: accepted values are normalized, others are refused by name."""

import math
from typing import Any

import numpy as np
import pytest

from gristmill._base.checks import (
    as_bool,
    as_int,
    as_kind,
    as_list,
    as_seconds,
    as_seed,
)
from gristmill.errors import PlanError, PlanTypeError


class Index:
    def __index__(self) -> int:
        return 5

    def __repr__(self) -> str:
        return "Index()"


@pytest.mark.parametrize("value", [5, np.int8(5), np.uint64(5), np.array(5), Index()], ids=repr)
def test_anything_with_an_index_is_an_integer(value: Any):
    number = as_int("n", value)

    assert (number, type(number)) == (5, int)


@pytest.mark.parametrize("value", [True, 5.0, "5", None, np.array([5, 6]), np.bool_(True)])
def test_other_types_are_not_integers(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`n` must be an integer, got "):
        as_int("n", value)


def test_bounds_are_inclusive():
    assert [as_int("n", number, minimum=1, maximum=3) for number in (1, 3)] == [1, 3]
    with pytest.raises(PlanError, match=r"^`n` must be at least 1, got 0\.$"):
        as_int("n", 0, minimum=1, maximum=3)
    with pytest.raises(PlanError, match=r"^`n` must be at most 3, got 4\.$"):
        as_int("n", 4, minimum=1, maximum=3)


def test_seeds_have_32_bits_by_default():
    assert as_seed(2**32 - 1) == 2**32 - 1
    assert as_seed(2**32, bits=64) == 2**32
    with pytest.raises(
        PlanError, match=r"^Seed must be an integer between 0 and 2\*\*32-1, got 4294967296\.$"
    ):
        as_seed(2**32)


@pytest.mark.parametrize("value", [0, -1, math.nan, -math.inf])
def test_seconds_are_positive(value: float):
    with pytest.raises(PlanError, match=r"^`timeout_s` must be above 0, got "):
        as_seconds("timeout_s", value)


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (np.bool_(False), False), (0, False), (1, True)]
)
def test_booleans_and_zero_and_one_are_booleans(value: Any, expected: bool):
    assert as_bool("shuffle", value) is expected


@pytest.mark.parametrize("value", [2, 1.0, "True", None, [], np.array([True])], ids=repr)
def test_other_values_are_not_booleans(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`shuffle` must be True or False, got "):
        as_bool("shuffle", value)


@pytest.mark.parametrize("value", ["abc", b"abc", 3, {1, 2}, {"a": 1}], ids=repr)
def test_only_sequences_are_lists(value: Any):
    with pytest.raises(PlanTypeError, match=r"^`operations` must be a list, .*\. Put it in "):
        as_list("operations", value)


def test_a_list_is_copied():
    original = [1, 2]
    assert as_list("operations", original) is not original


def test_the_remedy_ends_the_message():
    with pytest.raises(PlanTypeError, match=r"^`x` must be str, got 3\. Pass a string\.$"):
        as_kind("x", 3, str, remedy="Pass a string.")

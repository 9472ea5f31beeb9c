"""Functions that call a debugger are found wherever a plan has functions."""

import pdb
from typing import Any

import pytest

import gristmill as gm
from gristmill._plan.breakpoints import calls_breakpoint


def stops(number: int) -> int:
    breakpoint()
    return number


def traces(number: int) -> int:
    pdb.set_trace()
    return number


class Stops(gm.Map):
    """A step as a class."""

    def map(self, element: int) -> int:
        breakpoint()
        return element


class StoppingSource:
    """A source that is debugged."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        breakpoint()
        return index


RANGE = gm.MapDataset.range(6)


@pytest.mark.parametrize(
    "dataset",
    [
        RANGE.map(stops),
        RANGE.map(traces),
        RANGE.map(Stops()),
        RANGE.filter(lambda x: bool(breakpoint())),
        RANGE.to_iter_dataset().map(stops).batch(2).map(abs),
        gm.MapDataset.source(StoppingSource()).map(abs),
    ],
)
def test_a_call_is_found(dataset: Any):
    assert calls_breakpoint(dataset._plan_node)


@pytest.mark.parametrize("dataset", [RANGE, RANGE.map(abs).batch(2), RANGE.map(lambda x: x + 1)])
def test_other_functions_are_not(dataset: Any):
    assert not calls_breakpoint(dataset._plan_node)

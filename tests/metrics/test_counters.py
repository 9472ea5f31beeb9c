"""What one iterator counts."""

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

from gristmill._metrics.counters import Counters, StepClock, num_bytes
from gristmill._metrics.step_time import computing

Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        (np.zeros((3, 4), np.float32), 48),
        (np.float64(1.0), 8),
        (np.array(["ab", "c"]), 16),
        (b"12345", 5),
        ("text", 4),
        (bytearray(7), 7),
        (3, 0),
        (None, 0),
        (range(3), 0),
        ([], 0),
        ({"x": np.zeros(2), "y": {"z": b"abc"}}, 19),
        ((np.zeros(1), [np.zeros(1), "ab"]), 18),
        (Pair(np.zeros(1), b"1"), 9),
        (OrderedDict(x=np.zeros(3)), 24),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_bytes_of_an_element_are_those_of_its_arrays_and_texts(element: Any, expected: int):
    assert num_bytes(element) == expected


def test_before_anything_happens_all_is_zero():
    stats = Counters(["reading", "Map f"]).stats()

    assert (stats.num_elements, stats.output_bytes, stats.elapsed_s, stats.waited_s) == (
        0,
        0,
        0.0,
        0.0,
    )
    assert [(step.name, step.elapsed_s) for step in stats.steps] == [
        ("reading", 0.0),
        ("Map f", 0.0),
    ]
    assert stats.executor == "inline"
    assert stats.waited_share == 0.0


def test_time_is_counted_for_the_lowest_steps_and_by_clocks_for_those_above():
    counters = Counters(["reading", "Map f", "Batch(2)"])
    counters.count_steps((computing(1.0), computing(2.0)))
    counters.count_steps((computing(0.5),))
    counters.steps[2].add(computing(0.25))
    counters.steps[2].add(computing(0.25))

    assert [step.elapsed_s for step in counters.stats().steps] == [1.5, 2.0, 0.5]


def test_a_clock_has_a_name():
    assert StepClock("Map f").name == "Map f"


def test_stats_do_not_change_once_they_are_given():
    counters = Counters(["reading"])
    before = counters.stats()

    counters.count_steps((computing(1.0),))
    counters.skipped += 1

    assert before.steps[0].elapsed_s == 0.0
    assert before.num_skipped == 0
    assert counters.stats().num_skipped == 1

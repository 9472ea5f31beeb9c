"""A block that lacks a file on all nodes is computed in this process, whose result counts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import gristmill as gm
from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.pools.open_job import OpenJob
from gristmill._engine.executors.ray.missing import computed_here, find_missing, missing_skips


class Reads(gm.Map):
    """Cannot read the records of some files."""

    def __init__(self) -> None:
        self.missing: set[int] = set()

    def map(self, element: Any) -> Any:
        if element in self.missing:
            raise FileNotFoundError(2, "No such file", f"{element}.jpg")
        if element == 5:
            raise ValueError("not a JPEG")
        return element


def result_of(job: Job, step: Reads, missing: set[int]) -> Any:
    step.missing = missing
    return OpenJob(job).read(range(8))


@pytest.mark.parametrize(
    ("there", "here", "expected"),
    [
        ({2}, set[int](), [0, 1, 2, 3, 4, 6, 7]),
        ({2, 3}, {3}, [0, 1, 2, 4, 6, 7]),
        ({2}, {2}, [0, 1, 3, 4, 6, 7]),
        ({2}, {4}, [0, 1, 3, 4, 6, 7]),  # what the nodes have, and this machine has not
    ],
)
def test_what_this_process_computes_counts_unless_it_lacks_more(
    make_cut: Callable[..., Cut], there: set[int], here: set[int], expected: list[int]
):
    step = Reads()
    job = Job(replace(make_cut(range(8), step), skips_errors=True), gm.ReadOptions(num_threads=0))
    remote = result_of(job, step, there)
    assert len(missing_skips(remote)) == len(there)

    step.missing = here
    assert list(computed_here(job, range(8), remote).block.rows()) == expected


def test_an_error_may_be_due_to_a_missing_file():
    cause = FileNotFoundError(2, "No such file")
    error = ValueError("cannot decode")
    error.__cause__ = cause
    assert find_missing(error) is cause
    cause.__cause__ = error
    assert find_missing(error) is cause
    error.__cause__ = error
    assert find_missing(error) is None

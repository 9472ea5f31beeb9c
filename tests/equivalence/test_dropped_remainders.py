"""The records of a dropped remainder are read by no executor, so that a bad one ends no run."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as gm


class Noted:
    """A source that notes which records are read, and one of which may be bad."""

    def __init__(self, size: int, bad: int = -1) -> None:
        self.size = size
        self.bad = bad
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise ValueError(f"record {index} is bad")
        self.read.append(index)
        return index


def loader(source: Any, batches: list[tuple[int, bool]], **options: Any) -> gm.DataLoader:
    return gm.DataLoader(
        data_source=source,
        sampler=gm.SequentialSampler(source.size),
        operations=[gm.Batch(size, drop_remainder=drop, batch_fn=list) for size, drop in batches],
        **options,
    )


def used_by(batches: list[tuple[int, bool]], total: int) -> int:
    """Return how many of the first records are in some batch."""
    units = [1] * total
    for size, drop in batches:
        groups = [units[i : i + size] for i in range(0, len(units), size)]
        units = [sum(group) for group in groups if len(group) == size or not drop]
    return sum(units)


@pytest.mark.filterwarnings("ignore:There will be no batch")
@given(
    total=st.integers(1, 40),
    batches=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=3),
    num_threads=st.sampled_from([0, 1, 3]),
)
@settings(deadline=None, max_examples=200)
def test_the_records_of_all_batches_are_read_and_no_others(
    total: int, batches: list[tuple[int, bool]], num_threads: int
):
    source = Noted(total)
    options = gm.ReadOptions(num_threads=num_threads, prefetch_buffer_size=3)
    list(loader(source, batches, read_options=options))
    assert sorted(source.read) == list(range(used_by(batches, total)))


@pytest.mark.parametrize("options", [{}, {"worker_count": 2}], ids=["threads", "workers"])
def test_a_bad_record_of_a_remainder_below_another_batch_ends_no_run(options: dict[str, Any]):
    batches = [(3, True), (2, False)]
    stream = loader(Noted(4, bad=3), batches, **options)
    assert list(stream) == [[[0, 1, 2]]]
    stream.close()

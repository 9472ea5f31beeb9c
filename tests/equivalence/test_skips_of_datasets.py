"""Bad records below the steps of a dataset: each is left out alone, and listed, in any run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import MapDataset, MultiprocessingOptions, ReadOptions, SkipErrors, experimental
from gristmill.checkpoint import SkippedRecord
from tests.equivalence.executors import by_value
from tests.policies import EAGER, fixed_blocks, iterate

by_value(__name__)

NUM_RECORDS = 23
LENGTHS = [1 + index * 5 % 7 for index in range(NUM_RECORDS)]


@dataclass(frozen=True)
class Check:
    """Raises for some records."""

    bad: frozenset[int]

    def __call__(self, index: int) -> dict[str, Any]:
        if index in self.bad:
            raise ValueError(f"bad {index}")
        return {"id": index, "tokens": np.full(LENGTHS[index], index)}


@dataclass(frozen=True)
class Source:
    """Cannot read some records."""

    check: Check

    def __len__(self) -> int:
        return NUM_RECORDS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.check(index)


def ids(element: Any) -> list[int]:
    """Return the records of an element: of a batch, a tuple or a single record."""
    if isinstance(element, tuple):
        return [one for part in element for one in ids(part)]
    return np.ravel(element["id"]).tolist()


def buckets(ds: Any) -> Any:
    return ds.bucket_by_length([3, 7], lengths=LENGTHS, batch_sizes=[4, 3], length="tokens")


def mixed(ds: Any) -> Any:
    return MapDataset.mix([ds.shuffle(seed=1), ds[::2]], [2, 1])


SHAPES: dict[str, Callable[[Any], Any]] = {
    "records": lambda ds: ds.shuffle(seed=3),
    "batches": lambda ds: ds.shuffle(seed=3).pad_batch(4),
    "epochs": lambda ds: ds.shuffle(seed=3).pad_batch(4, drop_remainder=True).repeat(2),
    "one each": lambda ds: ds.pad_batch(1),
    "buckets": lambda ds: buckets(ds.shuffle(seed=3)).repeat(2),
    "shuffled batches": lambda ds: ds.pad_batch(4).shuffle(seed=5)[1:],
    "mapped batches": lambda ds: ds.pad_batch(4).map(dict).filter(lambda batch: True),
    "mixed": lambda ds: mixed(ds).pad_batch(4),
    "mixed batches": lambda ds: mixed(ds.pad_batch(3)),
    "cached": lambda ds: ds.cache().pad_batch(4),
    "cached batches": lambda ds: ds.pad_batch(4).cache().repeat(2),
    "zipped": lambda ds: experimental.ZipMapDataset([ds, ds.shuffle(seed=1)]),
    "split": lambda ds: ds.pad_batch(4).unbatch(),
}
"""Datasets over that of the records."""


def dataset(shape: str, bad: frozenset[int], *, in_source: bool) -> Any:
    if in_source:
        return SHAPES[shape](MapDataset.source(Source(Check(bad))))
    return SHAPES[shape](MapDataset.range(NUM_RECORDS).map(Check(bad)))


def expected(shape: str, bad: frozenset[int]) -> tuple[list[list[int]], list[int]]:
    """Return the records of each element, and those that are left out, in order."""
    elements: list[list[int]] = []
    left_out: list[int] = []
    for element in map(ids, dataset(shape, frozenset(), in_source=False).to_iter_dataset()):
        good = [index for index in element if index not in bad]
        left_out += [index for index in element if index in bad]
        if shape == "zipped" and len(good) < 2:
            continue  # the other half of a pair is no pair
        if good:
            elements.append(good)
    return elements, left_out


def run(iterator: Any) -> tuple[list[list[int]], list[SkippedRecord]]:
    return list(map(ids, iterator)), list(iterator.skipped)


@given(
    shape=st.sampled_from(sorted(SHAPES)),
    bad=st.frozensets(st.integers(0, NUM_RECORDS - 1)),
    in_source=st.booleans(),
    num_threads=st.sampled_from([0, 1, 3]),
    block_size=st.integers(1, 9),
    cut=st.integers(0, 30),
)
@settings(deadline=None, print_blob=True, max_examples=120)
def test_bad_records_alone_are_left_out_of_a_dataset_and_listed(
    shape: str,
    bad: frozenset[int],
    in_source: bool,
    num_threads: int,
    block_size: int,
    cut: int,
):
    elements, left_out = expected(shape, bad)
    ds = dataset(shape, bad, in_source=in_source).to_iter_dataset(
        ReadOptions(num_threads=num_threads), on_error=SkipErrors(1000)
    )
    found, skipped = run(iterate(ds, fixed_blocks(block_size, EAGER)))
    assert found == elements
    assert [entry.record for entry in skipped] == left_out
    step = "reading Source" if in_source else "Map Check"
    assert {entry.step.partition("(")[0] for entry in skipped} <= {step}
    assert [entry.error for entry in skipped] == [f"ValueError: bad {one}" for one in left_out]

    first = iter(ds)
    start = [ids(next(first)) for _ in range(cut % (len(elements) + 1))]
    state = json.loads(json.dumps(first.get_state()))
    rest = iterate(ds, fixed_blocks(block_size, EAGER))
    rest.set_state(state)
    found, resumed_skipped = run(rest)
    assert start + found == elements
    assert resumed_skipped == skipped


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_workers_leave_the_same_records_out(shape: str):
    bad = frozenset([0, 5, 6, 7, 22])
    ds = dataset(shape, bad, in_source=False).to_iter_dataset(on_error=SkipErrors(1000))
    with iter(ds) as inline, iter(ds.mp_prefetch(MultiprocessingOptions(num_workers=1))) as there:
        assert run(there) == run(inline)


def test_the_record_beyond_the_budget_raises_before_its_batch():
    bad = frozenset([2, 9, 10])
    ds = dataset("batches", bad, in_source=False).to_iter_dataset(on_error=SkipErrors(1))
    whole = list(dataset("batches", frozenset(), in_source=False).to_iter_dataset())
    elements, left_out = expected("batches", bad)
    number = next(row for row, batch in enumerate(map(ids, whole)) if left_out[1] in batch)
    for _ in range(2):  # each run raises at the same element, and lists what came before
        iterator = iter(ds)
        for one in elements[:number]:
            assert ids(next(iterator)) == one
        for _ in range(2):
            with pytest.raises(ValueError, match=f"bad {left_out[1]}"):
                next(iterator)
        assert len(iterator.skipped) == sum(one in bad for b in whole[:number] for one in ids(b))


def test_an_error_above_a_batch_is_raised_since_it_would_take_all_of_its_records():
    def refuse(batch: Any) -> Any:
        raise ValueError("no")

    ds = dataset("batches", frozenset(), in_source=False)
    for stream in (
        ds.map(refuse).to_iter_dataset(on_error=SkipErrors(1000)),
        ds.to_iter_dataset(on_error=SkipErrors(1000)).map(refuse),
    ):
        with pytest.raises(ValueError, match="no"):
            list(stream)


def test_other_absent_elements_in_a_batch_are_still_refused():
    ds = MapDataset.range(8).map(lambda x: None if x == 5 else 8 // (x - 2)).batch(4)
    with pytest.raises(ValueError, match="An element of the batch is absent"):
        list(ds.to_iter_dataset(on_error=SkipErrors(5)))


def test_provenance_names_the_records_that_are_left():
    iterator = iter(
        dataset("batches", frozenset([3]), in_source=False).to_iter_dataset(on_error=SkipErrors(5))
    )
    for element in iterator:
        origins = iterator.provenance().rows
        assert [origin.index for row in origins for origin in row] == ids(element)

"""Operations over iterators of records among those of a loader: the elements that Grain yields."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import grain.python as grain_python
import numpy as np
import pytest
from grain.experimental import PackAndBatchOperation as GrainPackAndBatch

import gristmill as gm
from gristmill.errors import GristmillWarning, PlanError, PlanTypeError, StateError
from gristmill.experimental import PackAndBatchOperation
from tests.compat.both_sides import assert_same

SIDES = (grain_python, gm.python)


def documents(count: int) -> list[dict[str, Any]]:
    lengths = np.random.default_rng(3).integers(1, 9, count)
    return [
        {"x": np.full(length, number), "y": np.full((length // 2, 2), float(number))}
        for number, length in enumerate(lengths)
    ]


def loader(api: Any, source: Any, *operations: Any, seed: int = 5, **options: Any) -> Any:
    sampler = api.IndexSampler(len(source), api.NoSharding(), shuffle=True, num_epochs=2, seed=seed)
    return api.DataLoader(
        data_source=source, sampler=sampler, operations=list(operations), **options
    )


def pack(api: Any, most: int | None = None) -> Any:
    kind = GrainPackAndBatch if api is grain_python else PackAndBatchOperation
    return kind({"x": 10, "y": 5}, 3, most)


def reformat(api: Any) -> Any:
    class Reformat(api.MapTransform):
        def map(self, element: Any) -> Any:
            values, ids, positions = element
            return {"x": values["x"], "ids": ids["x"], "positions": positions["y"]}

    return Reformat()


class PairUp(gm.Operation):
    """A user's own operation: the sum of two neighbours, with the metadata of the second."""

    def __call__(self, input_iterator: Iterator[Any]) -> Iterator[Any]:
        for first in input_iterator:
            second = next(input_iterator, None)
            if second is not None:
                second.data += first.data
                yield second


def running_sum(records: Iterator[Any]) -> Iterator[Any]:
    total = 0
    for record in records:
        total += record.data
        record.data = total
        yield record


def with_metadata(records: Iterator[Any]) -> Iterator[Any]:
    for record in records:
        found = record.metadata
        record.data = (record.data, found.index, int(found.rng.integers(1000)))
        yield record


def triple(api: Any) -> Any:
    class Triple(api.MapTransform):
        def map(self, element: Any) -> Any:
            return 3 * element

    return Triple()


def jitter(api: Any) -> Any:
    class Jitter(api.RandomMapTransform):
        def random_map(self, element: Any, rng: np.random.Generator) -> Any:
            return element + int(rng.integers(1000))

    return Jitter()


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("worker_count", [0, 2])
@pytest.mark.parametrize("after", [False, True])
def test_packing_in_a_loader_yields_grains_batches(
    most: int | None, worker_count: int, after: bool
):
    source = documents(60)
    operations = [[pack(api, most), *([reformat(api)] if after else [])] for api in SIDES]
    expected = list(loader(grain_python, source, *operations[0]))
    with loader(gm, source, *operations[1], worker_count=worker_count) as running:
        assert_same(list(running), expected)


def test_grains_own_packing_operation_runs_in_our_loader():
    source = documents(30)
    expected = list(loader(grain_python, source, GrainPackAndBatch({"x": 10, "y": 5}, 3)))
    made = list(loader(gm, source, GrainPackAndBatch({"x": 10, "y": 5}, 3)))
    assert_same(made, expected)


def test_packing_resumes_at_every_batch_at_once():
    reads: list[int] = []

    class Source(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            reads.append(index)
            return super().__getitem__(index)

    options = gm.ReadOptions(num_threads=0)
    running = loader(gm, Source(documents(40)), pack(gm), reformat(gm), read_options=options)
    expected, iterator = list(running), iter(running)
    states = [iterator.get_state(), *(iterator.get_state() for _ in iterator)]
    for number, state in enumerate(states):
        other = iter(running)
        other.set_state(json.dumps(json.loads(state)).encode())
        reads.clear()
        rest = list(other)
        assert_same(rest, expected[number:])
        assert len(reads) <= 80 - 2 * number  # a batch has more than two records


USER_OPERATIONS: dict[str, Any] = {
    "pairs": lambda api: [PairUp()],
    "pairs of mapped": lambda api: [triple(api), PairUp()],
    "sums, then a map": lambda api: [running_sum, triple(api)],
    "metadata": lambda api: [with_metadata],
    "a random map after": lambda api: [PairUp(), jitter(api)],
    "batches after": lambda api: [running_sum, api.Batch(4)],
    "full batches after": lambda api: [running_sum, api.Batch(4, drop_remainder=True)],
    "metadata of batches": lambda api: [api.Batch(4, batch_fn=sum), with_metadata],
    "two of them": lambda api: [running_sum, PairUp(), running_sum],
    "older operations after": lambda api: [
        PairUp(),
        api.MapOperation(lambda x: x + 1),
        api.FilterOperation(lambda x: x % 3 > 0),
        api.RandomMapOperation(lambda x, rng: x + int(rng.integers(9))),
        api.BatchOperation(2),
    ],
}


@pytest.mark.filterwarnings("ignore::gristmill.errors.GristmillWarning")
@pytest.mark.parametrize("program", USER_OPERATIONS)
@pytest.mark.parametrize("worker_count", [0, 1])
def test_a_users_operation_yields_grains_elements(program: str, worker_count: int):
    grain_operations, operations = (USER_OPERATIONS[program](api) for api in SIDES)
    expected = list(loader(grain_python, range(21), *grain_operations))
    with loader(gm, range(21), *operations, worker_count=worker_count) as running:
        assert_same(list(running), expected)


@pytest.mark.filterwarnings("ignore::gristmill.errors.GristmillWarning")
@pytest.mark.parametrize("program", USER_OPERATIONS)
def test_a_users_operation_resumes_at_every_element(program: str):
    running = loader(gm, range(21), *USER_OPERATIONS[program](gm.python))
    expected, iterator = list(running), iter(running)
    for number in range(len(expected) + 1):
        other = iter(running)
        other.set_state(iterator.get_state())
        assert_same(list(other), expected[number:])
        next(iterator, None)


def test_a_users_operation_warns_about_the_cost_of_resuming():
    with pytest.warns(GristmillWarning, match=r"^The operation running_sum takes an iterator"):
        loader(gm, range(4), running_sum)


@pytest.mark.filterwarnings("ignore::gristmill.errors.GristmillWarning")
def test_an_error_of_a_users_operation_follows_the_elements_before_it():
    def fails(records: Iterator[Any]) -> Iterator[Any]:
        for number, record in enumerate(records):
            if number == 3:
                raise LookupError("no")
            yield record

    iterator = iter(loader(gm, range(9), fails))
    assert len([next(iterator) for _ in range(3)]) == 3
    for _ in range(2):  # the iterator stays before the element that failed
        with pytest.raises(LookupError, match="no") as caught:
            next(iterator)
        assert "In Operations(fails), added at" in caught.value.__notes__[0]


@pytest.mark.filterwarnings("ignore::gristmill.errors.GristmillWarning")
def test_operations_over_records_refuse_what_they_cannot_do():
    class Twice(gm.FlatMap):
        max_fan_out = 2

        def flat_map(self, element: Any) -> Any:
            return [element, element]

    with pytest.raises(PlanError, match="follows a FlatMap"):
        loader(gm, range(3), Twice(), running_sum)
    with pytest.raises(PlanTypeError, match=r"`operations\[1\]` must be a transformation"):
        loader(gm, range(3), running_sum, 7)
    state = iter(loader(grain_python, range(3))).get_state()
    iterator = gm.DataLoaderIterator(loader(gm, range(3), running_sum), validate_state=False)
    with pytest.raises(StateError, match="does not contain the records"):
        iterator.set_state(state)
    assert repr(iterator) == "DataLoaderIterator(Operations(running_sum))"


OLDER: dict[str, Any] = {
    "map": lambda api: api.MapOperation(lambda x: x * 2),
    "random map": lambda api: api.RandomMapOperation(lambda x, rng: x + int(rng.integers(99))),
    "filter": lambda api: api.FilterOperation(lambda x: x % 2),
    "batch": lambda api: api.BatchOperation(4),
    "full batches": lambda api: api.BatchOperation(4, drop_remainder=True),
    "batch function": lambda api: api.BatchOperation(4, batch_fn=sum),
}


@pytest.mark.parametrize("name", OLDER)
def test_older_operations_are_callable_on_records(name: str, caplog: pytest.LogCaptureFixture):
    made: list[Any] = []
    for api in SIDES:
        records = (
            api.Record(api.RecordMetadata(n, n, np.random.default_rng(n)), np.int64(n))
            for n in range(10)
        )
        with caplog.at_level(logging.CRITICAL):
            out = list(OLDER[name](api)(records))
        made.append([(r.metadata.index, r.metadata.record_key, r.data) for r in out])
    assert_same(made[1], made[0])


def test_an_older_operation_of_grains_is_a_step_of_ours():
    operations = [OLDER[name](grain_python) for name in ("map", "random map", "filter", "batch")]
    expected = list(loader(grain_python, range(20), *operations))
    assert_same(list(loader(gm, range(20), *operations)), expected)


@pytest.mark.parametrize("name", ["map", "random map", "filter"])
def test_a_function_of_an_older_operation_that_fails_raises_value_error(name: str):
    bad = {"map": gm.MapOperation, "filter": gm.FilterOperation}.get(name, gm.RandomMapOperation)
    with pytest.raises(ValueError, match="function of an operation raised"):
        list(bad(None)(iter([gm.Record(gm.RecordMetadata(0), 1)])))  # type: ignore[arg-type]

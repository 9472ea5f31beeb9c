import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gristmill import (
    Batch,
    DataLoader,
    Filter,
    FlatMap,
    Map,
    MapOperation,
    MapWithIndex,
    RandomMap,
    RecordMetadata,
    SequentialSampler,
    TfRandomMap,
)
from gristmill._data.transforms.operations import Operation
from gristmill._plan.record_operations import takes_an_iterator
from gristmill._plan.traverse import steps_of
from gristmill.errors import GristmillWarning, PlanError, PlanTypeError


class Double(Map):
    def map(self, element: Any) -> Any:
        return 2 * element


class Even(Filter):
    def filter(self, element: Any) -> bool:
        return element % 2 == 0


class Twice(FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [element, element]


class Draw(RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(1000))


class TfDraw(TfRandomMap):
    def np_random_map(self, element: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(1000))


class Indexed(MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return (index, element)


class OwnSampler:
    def __init__(self, rng: Any = None) -> None:
        self.rng = rng

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> RecordMetadata:
        return RecordMetadata(index, index, self.rng and self.rng(index))


def loader(*operations: Any, seed: int | None = 1, sampler: Any = None) -> DataLoader:
    return DataLoader(
        data_source=range(4),
        sampler=sampler or SequentialSampler(4, seed=seed),
        operations=operations,
    )


def plus(left: int, right: int) -> int:
    return left + right


class Callable:
    def __call__(self, element: int) -> int:
        return element + 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        functools.partial(plus, 1),
        (1).__add__,
        Callable(),
        Callable().__call__,
        functools.partial(np.add, 1),
        MapOperation(lambda x: x + 1),
    ],
)
def test_a_plain_function_is_taken_as_a_map(function: Any):
    assert list(loader(function)) == [1, 2, 3, 4]


def test_a_built_in_function_is_taken_as_a_map():
    assert list(loader(hex)) == ["0x0", "0x1", "0x2", "0x3"]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (Double(), [0, 2, 4, 6]),
        (Even(), [0, 2]),
        (Twice(), [0, 0, 1, 1, 2, 2, 3, 3]),
        (Indexed(), [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_transform_does_its_verb(operation: Any, expected: list[Any]):
    assert list(loader(operation)) == expected


def test_both_random_maps_draw_from_the_records_generator():
    expected = [
        int(np.random.Generator(np.random.Philox(key=1 + index)).integers(1000))
        for index in range(4)
    ]
    assert list(loader(Draw())) == list(loader(TfDraw())) == expected


def test_random_maps_of_one_record_draw_one_after_the_other():
    class Second(RandomMap):
        def random_map(self, element: Any, rng: np.random.Generator) -> Any:
            return element, int(rng.integers(1000))

    expected = []
    for index in range(4):
        rng = np.random.Generator(np.random.Philox(key=1 + index))
        expected.append((int(rng.integers(1000)), int(rng.integers(1000))))
    assert list(loader(Draw(), Second())) == expected


def test_a_users_sampler_yields_its_own_generators():
    sampler = OwnSampler(np.random.default_rng)
    expected = [int(np.random.default_rng(index).integers(1000)) for index in range(4)]
    assert list(loader(Draw(), sampler=sampler)) == expected


def test_a_random_map_over_a_sampler_without_generators_reports_what_is_missing():
    with pytest.raises(Exception, match=r"(?i)rng|generator|seed"):
        list(loader(Draw(), sampler=OwnSampler()))


@pytest.mark.parametrize("kind", [Map, Double, Even, Batch, Draw, str])
def test_a_class_instead_of_an_instance_is_refused_by_name(kind: Any):
    name = kind.__name__
    message = rf"^`operations\[1\]` is the class {name}\. Pass an instance of it: `{name}\(\)`\.$"
    with pytest.raises(PlanTypeError, match=message):
        loader(abs, kind)


@pytest.mark.parametrize("operation", [3, None, "double", [Double()], object()])
def test_what_is_no_step_is_refused_by_its_number(operation: Any):
    message = r"^`operations\[0\]` must be a transformation or a function, got .*\. Derive it from"
    with pytest.raises(PlanTypeError, match=message):
        loader(operation)


def test_an_operation_over_an_iterator_is_recognised_by_its_kind_or_argument():
    def over_records(records: Iterator[Any]) -> Iterator[Any]:
        yield from records

    def declared(records: Iterator[Any]) -> Iterator[Any]:
        return records

    def named(input_iterator: Any) -> Any:
        return input_iterator

    class OverRecords:
        def __call__(self, records: Iterator[Any]) -> Iterator[Any]:
            yield from records

    class Derived(Operation):
        def __call__(self, records: Any, /) -> Any:
            return records

    for operation in (over_records, declared, named, OverRecords(), Derived()):
        with pytest.warns(GristmillWarning, match=r"takes an iterator of records"):
            assert list(loader(operation)) == list(loader())
    assert not any(map(takes_an_iterator, [abs, str, lambda x: x, lambda: 0, Double(), 3]))


@pytest.mark.parametrize("operations", [Double(), None, 3, "map", iter([abs])])
def test_operations_that_are_no_list_are_refused(operations: Any):
    with pytest.raises(
        PlanTypeError, match=r"^`operations` must be a list, got .*\. Put it in brack"
    ):
        DataLoader(data_source=[1], sampler=SequentialSampler(1), operations=operations)


def test_a_random_map_needs_a_seed():
    message = r"^RandomMap .*Draw.* needs a seed\. Pass `seed=` to the sampler\.$"
    with pytest.raises(PlanError, match=message):
        loader(Draw(), seed=None)


def test_pieces_of_a_record_cannot_share_a_users_generator():
    with pytest.raises(PlanError, match=r"^RandomMap .* follows a FlatMap, whose outputs would"):
        loader(Twice(), Draw(), sampler=OwnSampler(np.random.default_rng))


@pytest.mark.parametrize("value", [2.0, "2", None, True], ids=repr)
def test_a_fan_out_that_is_no_integer_is_refused_by_name(value: Any):
    class Wrong(Twice):
        max_fan_out = value

    with pytest.raises(PlanTypeError, match=r"Wrong.*\.max_fan_out` must be an integer, got "):
        loader(Wrong())


def test_a_flat_map_without_its_fan_out_is_refused():
    class Missing(FlatMap):
        def flat_map(self, element: Any) -> list[Any]:
            return [element]

    with pytest.raises(PlanTypeError, match=r"Missing.*\.max_fan_out` must be an integer"):
        loader(Missing())


def test_a_negative_fan_out_is_refused():
    class Negative(Twice):
        max_fan_out = -1

    with pytest.raises(PlanError, match=r"Negative.*\.max_fan_out` must be at least 0, got -1\."):
        loader(Negative())


def test_more_pieces_than_the_fan_out_are_refused():
    class Thrice(Twice):
        def flat_map(self, element: Any) -> list[Any]:
            return [element] * 3

    message = (
        r"^FlatMap .*Thrice.* returned more than 2 elements for one, which is its `max_fan_out`"
    )
    with pytest.raises(PlanError, match=message):
        list(loader(Thrice()))


@pytest.mark.parametrize(
    "operations",
    [
        [Batch(5, drop_remainder=True)],
        [Even(), Batch(5, drop_remainder=True)],
        [Batch(2), Batch(3, drop_remainder=True)],
        [Twice(), Batch(9, drop_remainder=True)],
    ],
)
def test_a_batch_that_would_never_come_is_warned_of(operations: list[Any]):
    with pytest.warns(GristmillWarning, match=r"^There will be no batch: `drop_remainder` needs"):
        never = loader(*operations)
    assert list(never) == []


@pytest.mark.parametrize(
    "operations",
    [
        [Batch(4, drop_remainder=True)],
        [Batch(5)],
        [Batch(2), Batch(2, drop_remainder=True)],
        [Twice(), Batch(8, drop_remainder=True)],
    ],
)
def test_a_batch_that_comes_is_not_warned_of(operations: list[Any]):
    assert len(list(loader(*operations))) == 1  # warnings are errors here


def test_labels_name_the_users_functions_without_addresses():
    plan = loader(abs, Double(), Even(), Batch(2, True))._plan_node
    labels = [step.label for step in steps_of(plan)]
    assert labels == ["Map abs", "Map Double", "Filter Even", "Batch(2, drop_remainder=True)"]


def test_a_plan_cannot_be_changed():
    plan: Any = loader(Batch(2))._plan_node
    with pytest.raises(AttributeError):
        plan.size = 3

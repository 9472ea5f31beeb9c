"""Where a plan is cut, for each executor."""

from typing import Any

import pytest

from gristmill import Batch, DataLoader, Filter, FlatMap, Map, MapDataset, SequentialSampler
from gristmill._engine.access.cut import cut_plan, splits_batch
from gristmill._plan.nodes.base import Node


class AddOne(Map):
    def map(self, element: Any) -> Any:
        return element + 1


class KeepAll(Filter):
    def filter(self, element: Any) -> bool:
        return True


class Twice(FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [element, element]


def plan_of(*operations: Any) -> Node:
    return DataLoader(
        data_source=range(20), sampler=SequentialSampler(20), operations=operations
    )._plan_node


@pytest.mark.parametrize(
    ("operations", "options", "num_read"),
    [
        ([AddOne(), Batch(2), AddOne()], {}, 3),
        ([AddOne(), Batch(2), AddOne()], {"below_batches": True}, 1),
        ([AddOne(), Batch(2), AddOne()], {"skips_errors": True}, 1),
        ([AddOne(), Batch(2), AddOne()], {"in_order": True}, 1),
        ([AddOne(), Batch(2), AddOne()], {"max_read": 2}, 2),
        ([KeepAll(), Batch(2), AddOne()], {}, 1),
        ([Twice(), AddOne(), KeepAll()], {}, 3),
        ([], {}, 0),
    ],
)
def test_a_plan_is_cut_as_high_as_its_batches_allow(
    operations: list[Any], options: dict[str, Any], num_read: int
):
    plan = plan_of(*operations)
    cut = cut_plan(plan, **{"skips_errors": False, "below_batches": False, **options})

    assert cut.num_read == num_read
    assert cut.base == ([plan_of(), *cut.steps][num_read] if num_read else cut.base)
    assert len(cut.steps) == len(operations)


def test_a_cursor_has_an_entry_for_each_flat_map():
    cut = cut_plan(plan_of(Twice(), AddOne(), Twice()), skips_errors=False, below_batches=False)

    assert cut.num_flat_maps == 2


def test_an_absent_element_stops_a_read_only_where_batches_start_at_multiples():
    def stops(stream: Any, *, in_order: bool = False) -> bool:
        plan = stream._plan_node
        cut = cut_plan(plan, skips_errors=False, below_batches=True, in_order=in_order)
        return cut.stops_at_absent

    numbers = MapDataset.range(9).to_iter_dataset()
    filtered = MapDataset.range(9).filter(bool).to_iter_dataset()

    assert not stops(numbers)
    assert stops(numbers.batch(2))
    assert not stops(numbers.batch(2), in_order=True)
    assert not stops(filtered.batch(2))


def test_a_cursor_splits_a_batch_unless_it_is_at_a_multiple_or_the_end():
    plan = plan_of(AddOne(), Batch(6))

    assert [splits_batch(plan, (position,)) for position in (0, 5, 6, 7, 18, 19, 20)] == [
        False,
        True,
        False,
        True,
        False,
        True,
        False,
    ]

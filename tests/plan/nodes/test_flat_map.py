from typing import Any

from gristmill import DataLoader, FlatMap, SequentialSampler


class Count(FlatMap):
    max_fan_out = 3

    def flat_map(self, element: Any) -> Any:
        return (element for _ in range(element))


def loader(*operations: Any) -> DataLoader:
    return DataLoader(data_source=range(4), sampler=SequentialSampler(4), operations=operations)


def test_a_flat_map_has_as_many_positions_as_before_and_is_not_dense():
    plan = loader(Count())._plan_node
    assert plan.length() == 4
    assert not plan.is_dense
    assert plan.label == "FlatMap Count"


def test_a_flat_map_may_give_none_one_or_several_in_any_iterable():
    assert list(loader(Count())) == [1, 2, 2, 3, 3, 3]


def test_a_fan_out_of_none_is_allowed_while_nothing_comes():
    class Nothing(FlatMap):
        max_fan_out = 0

        def flat_map(self, element: Any) -> Any:
            return []

    assert list(loader(Nothing())) == []

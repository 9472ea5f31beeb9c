import pytest

from gristmill import Batch, DataLoader, SequentialSampler
from gristmill._plan.nodes.sampled import SampleNode, SourceNode
from gristmill._plan.nodes.steps import BatchNode, MapNode
from gristmill._plan.traverse import sample_of, steps_of


def test_steps_come_bottom_up_and_the_sample_is_below_them():
    loader = DataLoader(
        data_source=[1, 2], sampler=SequentialSampler(2), operations=[abs, Batch(2)]
    )
    assert [type(step) for step in steps_of(loader._plan_node)] == [MapNode, BatchNode]
    assert isinstance(sample_of(loader._plan_node), SampleNode)


def test_a_loader_without_operations_is_its_sample():
    loader = DataLoader(data_source=[1, 2], sampler=SequentialSampler(2))
    assert steps_of(loader._plan_node) == []
    assert sample_of(loader._plan_node) is loader._plan_node


def test_a_plan_without_a_sample_is_refused():
    with pytest.raises(TypeError, match=r"^list\(<1 records>\) is not sampled$"):
        sample_of(SourceNode(site="here:1", source=[1]))

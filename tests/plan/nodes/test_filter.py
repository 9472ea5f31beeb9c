from gristmill import DataLoader, FilterOperation, SequentialSampler


def test_a_filter_has_as_many_positions_as_before_and_is_not_dense():
    loader = DataLoader(
        data_source=range(6),
        sampler=SequentialSampler(6),
        operations=[FilterOperation(lambda x: x > 3)],
    )
    assert loader._plan_node.length() == 6
    assert not loader._plan_node.is_dense
    assert loader._plan_node.label == "Filter <lambda>"
    assert list(loader) == [4, 5]


def test_a_filter_that_lets_nothing_pass_ends_the_stream():
    loader = DataLoader(
        data_source=range(6),
        sampler=SequentialSampler(6),
        operations=[FilterOperation(lambda x: False)],
    )
    assert list(loader) == []

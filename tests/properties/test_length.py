"""A plan knows how many elements it yields, where that can be known without reading."""

from hypothesis import assume, given, settings

from tests.properties.pipelines import Pipeline, pipelines
from tests.properties.runs import outcome


@given(pipeline=pipelines(fails=False))
@settings(deadline=None, print_blob=True, max_examples=150)
def test_the_length_of_a_dense_plan_is_what_comes_out(pipeline: Pipeline):
    loader = pipeline.loader()
    elements = outcome(iter(loader))
    assume("ValueError" not in elements)  # a batch of batches, the last of them smaller

    if loader._plan_node.is_dense:
        assert loader._plan_node.length() == len(elements)
    else:
        assert any(
            hasattr(step, verb)
            for step in pipeline.operations
            for verb in ("filter", "flat_map", "condition_function")
        )

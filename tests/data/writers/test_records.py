from hypothesis import given
from hypothesis import strategies as st

from gristmill._data.example_proto.parse import parse_example
from gristmill._data.example_proto.serialize import format_example
from gristmill._data.writers.records import column_parser, sample_indices


@given(length=st.integers(1, 10_000), max_count=st.integers(1, 300))
def test_a_sample_is_spread_over_the_source_and_not_too_large(length: int, max_count: int):
    indices = sample_indices(length, max_count)

    assert 1 <= len(indices) <= max_count
    assert indices[0] == 0
    assert indices[-1] < length
    assert length - indices[-1] <= indices.step


def test_a_feature_is_a_scalar_only_if_it_is_one_in_the_whole_sample():
    records = [format_example({"x": 1, "y": [1]}), format_example({"x": 2, "y": [1, 2]})]
    assert len(parse_example(records[0])["y"]) == 1

    first, second = map(column_parser(records), records)

    assert (first["x"], second["x"]) == (1, 2)
    assert (first["y"].tolist(), second["y"].tolist()) == ([1], [1, 2])

"""Any chain of operations over any sampler yields Grain's stream, element for element."""

import hypothesis
import pytest
from hypothesis import given

from tests.compat.random_chains import Chain, chains
from tests.compat.side_by_side import STEADY, assert_same_stream


@pytest.mark.filterwarnings("ignore:There will be no batch")
@hypothesis.settings(STEADY, max_examples=250)
@given(chain=chains())
def test_any_chain_of_operations_yields_grains_stream(chain: Chain):
    assert_same_stream(chain)

"""Excluded records survive a state, however many there are, and damaged ones are refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._checkpoint.excluded_records import decode_excluded, encode_excluded


@given(
    st.one_of(
        st.sets(st.integers(0, 2**60), max_size=20).map(sorted),
        st.tuples(st.integers(0, 2**60), st.integers(1, 9), st.integers(1000, 1500)).map(
            lambda drawn: list(range(drawn[0], drawn[0] + drawn[1] * drawn[2], drawn[1]))
        ),
    )
)
def test_records_come_back(records: list[int]):
    ordered = tuple(records)

    assert decode_excluded(json.loads(json.dumps(encode_excluded(ordered)))) == ordered


def test_a_million_records_take_less_than_two_megabytes():
    records = range(5, 50_000_000, 50)

    assert len(json.dumps(encode_excluded(records))) < 2_000_000


def packed(**changes: Any) -> Any:
    encoded: Any = encode_excluded(range(0, 4000, 2))
    return {**encoded, **changes}


@pytest.mark.parametrize(
    "encoded",
    [
        [1, 1],
        [2, 1],
        packed(count=1999),
        packed(count=2001),
        packed(count=0),
        packed(count=2**40),
        packed(count="2000"),
        packed(differences="nothing"),
        packed(differences=5),
        packed(differences=packed()["differences"][:40]),
        encode_excluded([0] * 2000),
    ],
)
def test_damaged_records_are_refused(encoded: Any):
    with pytest.raises((ValueError, TypeError)):
        decode_excluded(encoded)


def test_numbers_that_are_no_integers_are_refused():
    with pytest.raises(TypeError):
        decode_excluded([1, 2.5])

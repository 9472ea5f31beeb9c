"""The bad records that were skipped, as a state reports them."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._checkpoint.state import Position, State, decode_state, encode_state

HERE = {"source": "a list", "order": ["in order"], "steps": ["in order", "Map f", "Batch(2)"]}


def state_at(*positions: Position) -> State:
    return State(positions=positions, shard=(0, 1) if len(positions) == 1 else None)


records = st.builds(
    SkippedRecord,
    position=st.integers(0, 2**62),
    record=st.one_of(st.none(), st.integers(0, 2**62)),
    step=st.text(),
    error=st.text(),
)
cursors = st.tuples(st.integers(0, 2**62), st.integers(0, 1000))


@given(cursor=cursors, skipped=st.lists(st.tuples(cursors, records)))
def test_a_ledger_comes_back_from_its_state_whatever_it_reports(cursor: Any, skipped: Any):
    state = state_at(Position(cursor, tuple(skipped)))

    assert decode_state(encode_state(state, HERE), HERE) == state


@given(skipped=st.lists(st.lists(st.tuples(cursors, records)), min_size=2))
def test_the_ledgers_of_all_shards_come_back(skipped: Any):
    state = state_at(*(Position((8, 0), tuple(some)) for some in skipped))

    assert decode_state(encode_state(state, HERE), HERE) == state


def test_a_state_is_readable():
    skip = SkippedRecord(position=7, record=3, step="Map decode", error="ValueError: not a JPEG")
    reported = encode_state(state_at(Position((8,), (((8,), skip),))), HERE)

    assert reported["skipped"] == [
        {
            "cursor": [8],
            "position": 7,
            "record": 3,
            "step": "Map decode",
            "error": "ValueError: not a JPEG",
        }
    ]


def test_a_state_without_skips_reports_that():
    assert encode_state(state_at(Position((8,))), HERE)["skipped"] == []


def test_reading_a_state_twice_yields_the_same():
    skip = SkippedRecord(position=7, record=None, step="Map f", error="ValueError")
    state = encode_state(state_at(Position((8,), (((8,), skip),))), HERE)

    assert decode_state(state, HERE) == decode_state(state, HERE)


def test_a_skipped_record_is_a_value():
    skip: Any = SkippedRecord(position=7, record=3, step="Map f", error="ValueError: x")

    assert skip == SkippedRecord(7, 3, "Map f", "ValueError: x")
    assert len({skip, SkippedRecord(7, 3, "Map f", "ValueError: x")}) == 1
    with pytest.raises(FrozenInstanceError):
        skip.record = 4

"""The bad records that were skipped, as a state tells them."""

import json
import zlib
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.checkpoint import Fingerprint, Position, SkippedRecord, decode_state, encode_state

HERE = Fingerprint(source="a list", order="in order", shard="0 of 1", steps=["Map f", "Batch(2)"])

records = st.builds(
    SkippedRecord,
    position=st.integers(0, 2**62),
    record=st.one_of(st.none(), st.integers(0, 2**62)),
    step=st.text(),
    error=st.text(),
)
cursors = st.tuples(st.integers(0, 2**62), st.integers(0, 1000))


@given(cursor=cursors, skipped=st.lists(st.tuples(cursors, records)))
def test_a_ledger_comes_back_from_its_state_whatever_it_says(cursor: Any, skipped: Any):
    position = Position(cursor, tuple(skipped))

    assert decode_state(encode_state(position, HERE), HERE) == position


def test_a_state_is_readable():
    skip = SkippedRecord(position=7, record=3, step="Map decode", error="ValueError: not a JPEG")
    told = json.loads(encode_state(Position((8,), (((8,), skip),)), HERE))

    assert told["skipped"] == [
        {
            "cursor": [8],
            "position": 7,
            "record": 3,
            "step": "Map decode",
            "error": "ValueError: not a JPEG",
        }
    ]


def test_a_state_without_skips_stays_as_small_as_it_was():
    assert len(encode_state(Position((8,)), HERE)) < 250


def test_a_state_of_before_there_were_ledgers_is_taken():
    told = json.loads(encode_state(Position((8,)), HERE))
    del told["skipped"], told["checksum"]
    checksum = zlib.crc32(json.dumps(told, sort_keys=True).encode())
    old = json.dumps({**told, "checksum": checksum}).encode()

    assert decode_state(old, HERE) == Position((8,))


def test_reading_a_state_twice_gives_the_same():
    skip = SkippedRecord(position=7, record=None, step="Map f", error="ValueError")
    state = encode_state(Position((8,), (((8,), skip),)), HERE)

    assert decode_state(state, HERE) == decode_state(state, HERE)


def test_a_skipped_record_is_a_value():
    skip: Any = SkippedRecord(position=7, record=3, step="Map f", error="ValueError: x")

    assert skip == SkippedRecord(7, 3, "Map f", "ValueError: x")
    assert len({skip, SkippedRecord(7, 3, "Map f", "ValueError: x")}) == 1
    with pytest.raises(FrozenInstanceError):
        skip.record = 4

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from gristmill.checkpoint import Fingerprint, Position, decode_state, encode_state
from gristmill.errors import StateError

HERE = Fingerprint(
    source="list(<5 records>)",
    order="SequentialSampler(num_records=5)",
    shard="0 of 1",
    steps=["Map f", "Batch(2)"],
)
STATE = encode_state(Position((4, 1, 0)), HERE)


def forged(**changes: Any) -> bytes:
    """Give a state with other content and a checksum that fits it."""
    body = {**json.loads(STATE), **changes}
    del body["checksum"]
    body["checksum"] = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    return json.dumps(body).encode()


@pytest.mark.parametrize("cursor", [(0,), (4,), (7, 0), (2**62, 3, 1)])
def test_a_cursor_comes_back(cursor: tuple[int, ...]):
    assert decode_state(encode_state(Position(cursor), HERE), HERE) == Position(cursor)


def test_a_state_is_a_few_readable_lines_of_json():
    body = json.loads(STATE)
    assert body["position"] == 4
    assert body["pieces"] == [1, 0]
    assert len(STATE) < 500


@pytest.mark.parametrize("convert", [bytes, bytearray, lambda state: state.decode()])
def test_bytes_and_their_text_are_both_taken(convert: Any):
    assert decode_state(convert(STATE), HERE) == Position((4, 1, 0))


def test_a_state_that_went_through_json_once_more_is_the_same():
    assert decode_state(json.dumps(json.loads(STATE)).encode(), HERE) == Position((4, 1, 0))


@pytest.mark.parametrize("wrong", [None, 4, {"position": 4}, ["a"]], ids=repr)
def test_anything_but_bytes_is_refused(wrong: Any):
    kind = type(wrong).__name__
    with pytest.raises(StateError, match=rf"^A state is bytes, got {kind}\. Pass what `get_state`"):
        decode_state(wrong, HERE)


@pytest.mark.parametrize("length", range(1, len(STATE)))
def test_a_truncated_state_is_told(length: int):
    with pytest.raises(StateError, match=rf"^The state is truncated: it ends after {length} char"):
        decode_state(STATE[:length], HERE)


def test_an_empty_state_is_told_as_truncated():
    with pytest.raises(StateError, match=r"^The state is truncated"):
        decode_state(b"", HERE)


@pytest.mark.parametrize("place", range(len(STATE)))
def test_no_changed_byte_goes_unnoticed(place: int):
    damaged = STATE[:place] + bytes([STATE[place] ^ 0x15]) + STATE[place + 1 :]
    with pytest.raises(StateError):
        decode_state(damaged, HERE)


@pytest.mark.parametrize("damaged", [b"\x80\x04\x95", b"nonsense", b"[" * 100_000, b"\0" * 40])
def test_what_is_no_json_is_told_as_corrupt(damaged: bytes):
    with pytest.raises(StateError, match=r"^The state is (corrupt|truncated)"):
        decode_state(damaged, HERE)


def test_another_number_than_the_checksums_is_told_as_corrupt():
    damaged = STATE.replace(b'"position": 4', b'"position": 5')
    with pytest.raises(StateError, match=r"^The state is corrupt: its checksum does not match\."):
        decode_state(damaged, HERE)


@pytest.mark.parametrize("other", [b"{}", b"[]", b"3", b'"text"', b"null", b'{"step": 3}'])
def test_json_of_somebody_else_is_told(other: bytes):
    with pytest.raises(StateError, match=r"^The state is not one of gristmill's\. Pass what"):
        decode_state(other, HERE)


@pytest.mark.parametrize("version", [0, 99, "2"])
def test_another_version_is_told(version: Any):
    with pytest.raises(
        StateError, match=rf"^The state is of version {version}, this gristmill reads"
    ):
        decode_state(forged(gristmill=version), HERE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source": "other"},
            r"belongs to another source: other there, list\(<5 records>\) here\.",
        ),
        ({"order": "other"}, r"belongs to another order: other there, SequentialSampler.* here\."),
        ({"shard": "1 of 2"}, r"belongs to another shard: 1 of 2 there, 0 of 1 here\."),
        ({"steps": ["x"]}, r"belongs to other steps: \[x\] there, \[Map f, Batch\(2\)\] here\."),
    ],
)
def test_a_state_of_another_pipeline_says_what_differs(changes: dict[str, Any], message: str):
    state = encode_state(Position((4, 1, 0)), replace(HERE, **changes))
    with pytest.raises(StateError, match=rf"^The state {message} Restore it into a pipeline like"):
        decode_state(state, HERE)


def test_without_a_fingerprint_any_pipelines_state_is_taken():
    state = encode_state(Position((4,)), replace(HERE, source="other"))

    assert decode_state(state, None) == Position((4,))

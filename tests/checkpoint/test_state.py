import json
import zlib
from typing import Any

import pytest

from gristmill._checkpoint.gather import gather_states
from gristmill._checkpoint.state import Position, State, decode_state, encode_state
from gristmill.errors import StateError

HERE = {
    "source": "list(<5 records>)",
    "order": ["SequentialSampler(num_records=5)"],
    "steps": ["SequentialSampler(num_records=5)", "Map f", "Batch(2)"],
}
WHERE = State(positions=(Position((4, 1, 0)),))
BODY = encode_state(WHERE, HERE)
STATE = json.dumps(BODY).encode()


def forged(**changes: Any) -> bytes:
    """Return a state with other content and a checksum that fits it; `None` leaves a key out."""
    body = {name: value for name, value in {**BODY, **changes}.items() if value is not None}
    del body["checksum"]
    body["checksum"] = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    return json.dumps(body).encode()


def at(*cursor: Any, **changes: Any) -> State:
    return State(positions=(Position(cursor),), **changes)


@pytest.mark.parametrize(
    "state",
    [
        at(0),
        at(7, 0),
        at(2**62, 3, 1),
        at(4, shard=(2, 3)),
        at(4, shard=(1, 2), is_contiguous=True),
        at(4, shard_history=(((1,), (2,)), ((3,),) * 500)),
        State(positions=(Position((4,)), Position((5,))), shard=None),
        State(positions=(Position((4,)),) * 3, shard=None, shard_history=(((1,),),)),
    ],
    ids=repr,
)
def test_a_state_comes_back(state: State):
    body = encode_state(state, HERE)

    assert decode_state(body, HERE) == state
    assert decode_state(json.dumps(body).encode(), HERE) == state


def test_a_state_is_a_few_readable_lines_of_json():
    assert BODY["cursor"] == [4, 1, 0]
    assert BODY["shard"] == [0, 1]
    assert len(STATE) < 500
    assert json.loads(STATE) == BODY


@pytest.mark.parametrize("convert", [bytes, bytearray, bytes.decode, json.loads])
def test_bytes_their_text_and_the_dict_are_all_taken(convert: Any):
    assert decode_state(convert(STATE), HERE) == WHERE


@pytest.mark.parametrize("wrong", [None, 4, ["a"], object], ids=repr)
def test_anything_else_is_refused(wrong: Any):
    kind = type(wrong).__name__
    with pytest.raises(
        StateError,
        match=rf"^A state must be bytes or a dict, got {kind}\. Pass the result of `get_state`",
    ):
        decode_state(wrong, HERE)


@pytest.mark.parametrize("length", range(1, len(STATE)))
def test_a_truncated_state_is_reported(length: int):
    with pytest.raises(StateError, match=rf"^The state is truncated: it ends after {length} char"):
        decode_state(STATE[:length], HERE)


def test_an_empty_state_is_reported_as_truncated():
    with pytest.raises(StateError, match=r"^The state is truncated"):
        decode_state(b"", HERE)


@pytest.mark.parametrize("place", range(len(STATE)))
def test_no_changed_byte_goes_unnoticed(place: int):
    damaged = STATE[:place] + bytes([STATE[place] ^ 0x15]) + STATE[place + 1 :]
    with pytest.raises(StateError):
        decode_state(damaged, HERE)


@pytest.mark.parametrize("damaged", [b"\x80\x04\x95", b"nonsense", b"[" * 100_000, b"\0" * 40])
def test_what_is_no_json_is_reported_as_corrupt(damaged: bytes):
    with pytest.raises(StateError, match=r"^The state is (corrupt|truncated)"):
        decode_state(damaged, HERE)


@pytest.mark.parametrize("name", ["cursor", "shard", "source", "order", "steps", "checksum"])
def test_a_dict_with_a_part_missing_is_reported_as_corrupt(name: str):
    damaged = {key: value for key, value in BODY.items() if key != name}
    with pytest.raises(StateError, match=r"^The state is corrupt: its checksum does not match\."):
        decode_state(damaged, HERE)


def test_another_number_than_the_checksums_is_reported_as_corrupt():
    with pytest.raises(StateError, match=r"^The state is corrupt: its checksum does not match\."):
        decode_state({**BODY, "cursor": [5, 1, 0]}, HERE)


@pytest.mark.parametrize(
    "changes",
    [
        {"cursor": None},
        {"cursor": 4},
        {"shard": [0]},
        {"shard": ["0", "1"]},
        {"shard": [0, 1, 2]},
        {"skipped": [3]},
        {"skipped": [{"cursor": [4]}]},
        {"skipped": [{"cursor": ["a"], "position": 1, "record": 1, "step": "Map f", "error": "x"}]},
        {"taken": 5},
        {"taken": [{}]},
        {"taken": [{"shards": "a", "each": [1]}]},
        {"taken": [{"shards": 0, "each": [1]}]},
        {"cursors": {"shards": 3, "cursors": [[1], [2]]}},
        {"cursors": {"shards": 0, "cursors": []}},
    ],
    ids=repr,
)
def test_nonsense_with_a_checksum_that_fits_is_reported_as_corrupt(changes: dict[str, Any]):
    with pytest.raises(
        StateError, match=r"^The state is corrupt: some fields are missing or wrong\."
    ):
        decode_state(forged(**changes), HERE)


@pytest.mark.parametrize(
    "other", [b"{}", b"[]", b"3", b'"text"', b"null", b'{"step": 3}', {"step": 3}]
)
def test_json_of_somebody_else_is_reported(other: Any):
    with pytest.raises(
        StateError, match=r"^The state was not written by gristmill\. Pass the result of"
    ):
        decode_state(other, HERE)


@pytest.mark.parametrize("version", [0, 99, "2"])
def test_another_version_is_reported(version: Any):
    with pytest.raises(
        StateError, match=rf"^The state has version {version}, but this gristmill reads"
    ):
        decode_state(forged(gristmill=version), HERE)


# Of another pipeline


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source": "other"},
            r"belongs to another source: other there, list\(<5 records>\) here\.",
        ),
        (
            {"source": {"a": HERE}},
            r"belongs to another source: \{'a': .* there, list\(<5 records>\) here\.",
        ),
        (
            {"order": ["other"]},
            r"belongs to another order: \[other\] there, \[SequentialSampler.*\] here\.",
        ),
        (
            {"steps": ["x"]},
            r"belongs to other steps: \[x\] there, \[Seq.*, Map f, Batch\(2\)\] here\.",
        ),
    ],
)
def test_a_state_of_another_pipeline_reports_what_differs(changes: dict[str, Any], message: str):
    state = encode_state(WHERE, {**HERE, **changes})
    with pytest.raises(StateError, match=rf"^The state {message} Restore it into a pipeline like"):
        decode_state(state, HERE)


def test_without_words_any_pipelines_state_is_taken():
    assert decode_state(encode_state(WHERE, {**HERE, "source": "other"}), None) == WHERE


MIXED = {"source": {"a": HERE, "b": HERE}, "order": [], "steps": ["Mix"]}


def test_a_difference_in_one_of_several_datasets_is_reported_with_its_name():
    other = {**MIXED, "source": {"a": HERE, "b": {**HERE, "order": ["other"]}}}

    with pytest.raises(StateError, match=r"belongs to another order in dataset b: \[other\] there"):
        decode_state(encode_state(WHERE, other), MIXED)


@pytest.mark.parametrize("names", ["a", "b", "abc", "ca"])
def test_datasets_of_a_named_mix_may_come_and_go(names: str):
    other = {**MIXED, "source": dict.fromkeys(names, HERE)}

    assert decode_state(encode_state(WHERE, other), MIXED) == WHERE


@pytest.mark.parametrize("names", ["a", "abc"])
def test_datasets_that_are_combined_otherwise_may_not(names: str):
    zipped = {**MIXED, "steps": ["Zip"]}
    other = {**zipped, "source": dict.fromkeys(names, HERE)}

    with pytest.raises(StateError, match=r"another source: \[a.*\] there, \[a, b\] here\."):
        decode_state(encode_state(WHERE, other), zipped)


# Of all shards


def shards(*numbers: tuple[int, int], **changes: Any) -> list[dict[str, Any]]:
    return [
        encode_state(at(index, shard=(index, count)), HERE | changes) for index, count in numbers
    ]


def test_the_states_of_all_shards_are_gathered_in_any_order():
    gathered = decode_state(gather_states(shards((2, 3), (0, 3), (1, 3))), HERE)

    assert gathered.shard is None
    assert [position.cursor for position in gathered.positions] == [(0,), (1,), (2,)]


def test_states_of_all_shards_that_are_alike_are_one():
    state = gather_states(shards((0, 2), (1, 2)))

    assert gather_states([state, state, state]) == state


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([], r"^There is no state to gather\."),
        (shards((0, 3), (1, 3)), r"^The states are of the shards 0 of 3, 1 of 3\. Pass one of"),
        (shards((0, 2), (0, 2)), r"^The states are of the shards 0 of 2\."),
        (shards((0, 1), (1, 2)), r"^The states are of the shards 0 of 1, 1 of 2\."),
        (
            [*shards((0, 2)), *shards((1, 2), source="other")],
            r"^The state belongs to another source: other there, list",
        ),
        (
            [gather_states(shards((0, 1))), gather_states(shards((1, 2), (0, 2)))],
            r"^Each state is of all shards, but the states differ",
        ),
        ([b"{"], r"^The state is truncated"),
    ],
)
def test_states_that_are_not_of_all_shards_of_one_run_are_refused(states: Any, message: str):
    with pytest.raises(StateError, match=message):
        gather_states(states)

"""The state of an iterator: a position in its stream as JSON, with the plan it belongs to.

A state holds the position, not how the iterator got there: executor, workers and buffers do not
appear in it. The states of all shards together describe the remaining records, for any number of
new shards.

    {"gristmill": 1, "cursor": [64], "shard": [0, 2], "skipped": [], "source": "...",
     "order": ["Shuffle(seed=1)"], "steps": ["Shuffle(seed=1)", "Map f"], "checksum": 1234}

A state of all shards has `"cursors"` instead of `"cursor"` and `"shard"`. `"taken"` and
`"contiguous"` are added by runs that resumed with another number of shards, `"excluded"` or
`"exclusions"` (`excluded_records.py`) by those that leave records out.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast, final

from gristmill._base.version import VERSION as LIBRARY
from gristmill._checkpoint.array_state import is_array_state, state_from_arrays
from gristmill._checkpoint.excluded_records import (
    Exclusion,
    decode_exclusions,
    encode_exclusions,
)
from gristmill._checkpoint.grain_state import not_a_gristmill_state
from gristmill._checkpoint.mismatch import Description, compare_descriptions
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill.errors import StateError
from gristmill.types import Cursor, JsonObject

VERSION = 1

MAX_SHARDS = 2**16
"""A state of more shards is corrupt: it would take more memory than any run needs."""

_MAX_RESHARDS = 2**10


@final
@dataclass(frozen=True)
class Position:
    """A position in a stream, and the records that were skipped before it."""

    cursor: Cursor
    skipped: tuple[tuple[Cursor, SkippedRecord], ...] = ()
    """Each skipped record with the cursor after it."""


@final
@dataclass(frozen=True, kw_only=True)
class State:
    """The position of one shard, or of all shards if their states were gathered."""

    positions: tuple[Position, ...]
    """One position, or the positions of all shards in order."""
    shard: tuple[int, int] | None = (0, 1)
    """Index and number of shards; `None` if the state is of all shards."""
    shard_history: tuple[tuple[Cursor, ...], ...] = ()
    """The cursors of all shards at the end of each earlier run with another number of shards."""
    exclusions: tuple[Exclusion, ...] = ()
    """Records that are left out."""
    is_contiguous: bool = False
    """Whether each of the first shards was a contiguous range of records, shuffled by itself."""


def encode_state(state: State, description: Description) -> JsonObject:
    """Return a state as a dict that can be written as JSON.

    >>> description = {"source": "a list", "order": ["in order"], "steps": ["Batch(2)"]}
    >>> state = State(positions=(Position((4,)),))
    >>> decode_state(encode_state(state, description), description) == state
    True
    """
    (*cursors,) = (position.cursor for position in state.positions)
    skipped = [
        [{"cursor": after, **asdict(record)} for after, record in position.skipped]
        for position in state.positions
    ]
    body: JsonObject = {"gristmill": VERSION}
    if state.shard is None:
        body |= {"cursors": _pack(cursors), "skipped": skipped if any(skipped) else []}
    else:
        body |= {"cursor": cursors[0], "shard": state.shard, "skipped": skipped[0]}
    if state.shard_history:
        body["taken"] = [_pack(cursors) for cursors in state.shard_history]
    if state.is_contiguous:
        body["contiguous"] = True
    body |= encode_exclusions(state.exclusions)
    body = cast(JsonObject, _as_json({**body, **description, "library": LIBRARY}))
    return {**body, "checksum": _checksum(body)}


def decode_state(state: Any, description: Description | None) -> State:
    """Parse a state, and check that it belongs to the pipeline with this description.

    Raises:
        StateError: If the state is corrupt, or belongs to another pipeline.
    """
    body = parse_body(state)
    try:
        if description is not None:
            compare_descriptions(body, description)
        return _read(body)
    except StateError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, MemoryError):
        raise StateError(
            "The state is corrupt: some fields are missing or wrong. Restore an earlier checkpoint."
        ) from None


def _pack(cursors: Sequence[Cursor]) -> JsonObject:
    """Return the cursors of all shards as JSON: one, if they are equal."""
    if all(cursor == cursors[0] for cursor in cursors):
        return {"shards": len(cursors), "each": cursors[0]}
    return {"shards": len(cursors), "cursors": list(cursors)}


def _unpack(packed: JsonObject) -> tuple[Cursor, ...]:
    if type(packed["shards"]) is not int or not 1 <= packed["shards"] <= MAX_SHARDS:
        raise ValueError(packed["shards"])
    if "each" in packed:
        cursors = (tuple(packed["each"]),) * packed["shards"]
    else:
        cursors = tuple(tuple(cursor) for cursor in packed["cursors"])
    if len(cursors) != packed["shards"]:
        raise ValueError(len(cursors))
    return cursors


def _read(body: JsonObject) -> State:
    is_gathered = "cursors" in body
    cursors = _unpack(body["cursors"]) if is_gathered else (tuple(body["cursor"]),)
    skipped: list[list[JsonObject]] = body["skipped"] if is_gathered else [body["skipped"]]
    skipped = skipped or [[]] * len(cursors)
    history = body.get("taken", [])
    is_contiguous = body.get("contiguous", False)
    if len(history) > _MAX_RESHARDS or type(is_contiguous) is not bool:
        raise ValueError(len(history), is_contiguous)
    return State(
        exclusions=decode_exclusions(body),
        positions=tuple(
            Position(cursor, tuple(_read_skip(**entry) for entry in some))
            for cursor, some in zip(cursors, skipped, strict=True)
        ),
        shard=None if is_gathered else _read_shard(*body["shard"]),
        shard_history=tuple(_unpack(packed) for packed in history),
        is_contiguous=is_contiguous,
    )


def _read_shard(index: object, count: object) -> tuple[int, int]:
    if type(index) is not int or type(count) is not int:
        raise TypeError(index, count)
    return index, count


def _read_skip(cursor: list[int], **record: Any) -> tuple[Cursor, SkippedRecord]:
    if not all(type(number) is int for number in cursor):
        raise TypeError(cursor)
    entry = SkippedRecord(**record)
    is_number = type(entry.position) is int and type(entry.record) in (int, type(None))
    if not is_number or type(entry.step) is not str or type(entry.error) is not str:
        raise TypeError(record)
    return tuple(cursor), entry


def parse_body(state: object) -> JsonObject:
    """Return the fields of a state after checking its version and checksum."""
    if isinstance(state, bytes | bytearray | str):
        state = load_json(state if isinstance(state, str) else state.decode(errors="replace"))
    elif not isinstance(state, dict):
        raise StateError(
            f"A state must be bytes or a dict, got {type(state).__name__}. Pass the result of "
            "`get_state`."
        )
    if not isinstance(state, dict):
        raise not_a_gristmill_state(state)
    found = dict(cast(JsonObject, state))
    if is_array_state(found):
        found = state_from_arrays(found)
    if "gristmill" not in found:
        raise not_a_gristmill_state(found)
    if found["gristmill"] != VERSION:
        raise StateError(
            f"The state has version {str(found['gristmill'])[:20]}, but this gristmill reads "
            f"{VERSION}. Use the release that wrote it."
        )
    checksum = found.pop("checksum", None)
    try:
        is_intact = checksum == _checksum(found)
    except (RecursionError, MemoryError):  # nested deeper than any state
        is_intact = False
    if not is_intact:
        raise StateError(
            "The state is corrupt: its checksum does not match. Restore an earlier checkpoint."
        )
    return found


def load_json(text: str) -> Any:
    """Parse JSON, and raise a `StateError` that distinguishes truncated from corrupt input."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] in ("{", "") and not text.rstrip().endswith("}"):
            raise StateError(
                f"The state is truncated: it ends after {len(text)} characters. "
                "Restore an earlier checkpoint."
            ) from None
        raise StateError(
            "The state is corrupt: it is not JSON. Restore an earlier checkpoint."
        ) from None


def _checksum(body: JsonObject) -> int:
    try:
        return zlib.crc32(json.dumps(body, sort_keys=True).encode())
    except (TypeError, ValueError):  # the state of a user's iterator need not be JSON
        return zlib.crc32(repr(body).encode(errors="surrogatepass"))


def _as_json(value: object) -> object:
    """Convert tuples to lists, so that a state equals itself after a round trip through JSON."""
    if isinstance(value, NotImplementedError):  # from a user's iterator without a state
        raise NotImplementedError(*value.args)  # a new one: the old one would keep its frames alive
    if isinstance(value, tuple | list):
        return [_as_json(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in cast("dict[object, object]", value).items()}
    return value

"""The state of an iterator: a few integers in JSON, and what they belong to.

It holds the position, not how one got there: executor, workers and buffers do not show in it.
Where it belongs to a shard, those of all shards together tell what is left, for any others.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, cast, final

from gristmill.checkpoint._grain import not_ours
from gristmill.checkpoint._ledger import SkippedRecord
from gristmill.errors import StateError

VERSION = 1

Words: TypeAlias = Mapping[str, Any]
"""What a plan gives, in words: its source, order and steps."""

Cursor: TypeAlias = tuple[Any, ...]

_GATHER = (
    "For another number of shards, gather the states of all of them with "
    "`gristmill.checkpoint.gather_states`, and restore that."
)


@final
@dataclass(frozen=True)
class Position:
    """Where a stream stands, and which records it left out on its way there."""

    cursor: Cursor
    skipped: tuple[tuple[Cursor, SkippedRecord], ...] = ()
    """With the cursor after each."""


@final
@dataclass(frozen=True, kw_only=True)
class State:
    """Where one shard stands; or all shards, if they were gathered."""

    positions: tuple[Position, ...]
    """Of the one shard, or of all in order."""
    shard: tuple[int, int] | None = (0, 1)
    """Which one of how many; `None` if it is all of them."""
    takings: tuple[tuple[Cursor, ...], ...] = ()
    """Where all shards of earlier runs stood, which left off with others in their place."""
    is_contiguous: bool = False
    """Whether each of the first shards was a piece of the records, shuffled by itself."""


def encode_state(state: State, words: Words) -> dict[str, Any]:
    """Write a state.

    >>> words = {"source": "a list", "order": ["in order"], "steps": ["Batch(2)"]}
    >>> state = State(positions=(Position((4,)),))
    >>> decode_state(encode_state(state, words), words) == state
    True
    """
    (*cursors,) = (position.cursor for position in state.positions)
    skipped = [
        [{"cursor": after, **asdict(record)} for after, record in position.skipped]
        for position in state.positions
    ]
    body: dict[str, Any] = {"gristmill": VERSION}
    if state.shard is None:
        body |= {"cursors": _pack(cursors), "skipped": skipped if any(skipped) else []}
    else:
        body |= {"cursor": cursors[0], "shard": state.shard, "skipped": skipped[0]}
    if state.takings:
        body["taken"] = [_pack(cursors) for cursors in state.takings]
    if state.is_contiguous:
        body["contiguous"] = True
    body = _as_json({**body, **words})
    return {**body, "checksum": _checksum(body)}


def decode_state(state: Any, words: Words | None) -> State:
    """Read a state that belongs to this pipeline; refuse any other, saying why."""
    body = _parse(state)
    try:
        if words is not None:
            _compare(body, words)
        return _read(body)
    except StateError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise StateError(
            "The state is corrupt: something is missing in it. Restore an earlier checkpoint."
        ) from None


def gather_states(states: Sequence[Any]) -> Any:
    """Make one state of those of all shards, for any other number of shards.

    With it, each shard of a new run goes on with its part of what is left: every record comes
    exactly once. Pass the states of all shards, in any order, as `get_state` gave them.

    >>> import gristmill as grain
    >>> def shard(index, count):
    ...     sampler = grain.samplers.IndexSampler(9, num_epochs=1)
    ...     options = grain.sharding.ShardOptions(index, count)
    ...     return iter(grain.DataLoader(
    ...         data_source=range(9), sampler=sampler, shard_options=options))
    >>> old = [shard(0, 3), shard(1, 3), shard(2, 3)]
    >>> [next(iterator) for iterator in old]
    [0, 1, 2]
    >>> state = gather_states([iterator.get_state() for iterator in old])
    >>> new = [shard(0, 2), shard(1, 2)]
    >>> for iterator in new: iterator.set_state(state)
    >>> [list(iterator) for iterator in new]
    [[3, 5, 7], [4, 6, 8]]
    """
    if not states:
        raise StateError("There is no state to gather. Pass those of all shards.")
    bodies = [_parse(state) for state in states]
    words = {name: bodies[0][name] for name in ("source", "order", "steps")}
    parts = [decode_state(state, words) for state in states]
    shards = [part.shard for part in parts]
    if None in shards:
        if any(body != bodies[0] for body in bodies):
            raise StateError(
                "The states are each of all shards, and differ: the shards did not go in step. "
                "Restore one of them, or an earlier checkpoint."
            )
        return states[0]
    if len(shards) > 1 and set(shards) == {(0, 1)}:
        raise StateError(
            "None of the states is of a shard: each pipeline reads everything, or is cut into "
            "shards in a way that only you know. Restore one of the states, or each its own."
        )
    counts = {count for _, count in cast("list[tuple[int, int]]", shards)}
    wanted = [(index, len(parts)) for index in range(len(parts))]
    if len(counts) > 1 or sorted(cast("list[tuple[int, int]]", shards)) != wanted:
        told = ", ".join(f"{index} of {count}" for index, count in sorted(filter(None, shards)))
        raise StateError(f"The states are of the shards {told}. Pass one of each shard.")
    first = parts[0]
    if any(
        (one.takings, one.is_contiguous) != (first.takings, first.is_contiguous) for one in parts
    ):
        raise StateError("The states are not of one run: they were not dealt the same records.")
    ordered = sorted(parts, key=lambda part: part.shard or (0, 0))
    gathered = State(
        positions=tuple(part.positions[0] for part in ordered),
        shard=None,
        takings=first.takings,
        is_contiguous=first.is_contiguous,
    )
    made = encode_state(gathered, words)
    return made if isinstance(states[0], dict) else json.dumps(made).encode()


def _pack(cursors: Sequence[Cursor]) -> dict[str, Any]:
    """Write the cursors of all shards: as one, if they stand alike."""
    if all(cursor == cursors[0] for cursor in cursors):
        return {"shards": len(cursors), "each": cursors[0]}
    return {"shards": len(cursors), "cursors": list(cursors)}


def _unpack(packed: dict[str, Any]) -> tuple[Cursor, ...]:
    if "each" in packed:
        cursors = (tuple(packed["each"]),) * packed["shards"]
    else:
        cursors = tuple(tuple(cursor) for cursor in packed["cursors"])
    if not cursors or len(cursors) != packed["shards"]:
        raise ValueError(packed)
    return cursors


def _read(body: dict[str, Any]) -> State:
    is_gathered = "cursors" in body
    cursors = _unpack(body["cursors"]) if is_gathered else (tuple(body["cursor"]),)
    skipped: list[Any] = body["skipped"] if is_gathered else [body["skipped"]]
    skipped = skipped or [[]] * len(cursors)
    return State(
        positions=tuple(
            Position(cursor, tuple(_read_skip(**entry) for entry in some))
            for cursor, some in zip(cursors, skipped, strict=True)
        ),
        shard=None if is_gathered else _read_shard(*body["shard"]),
        takings=tuple(_unpack(packed) for packed in body.get("taken", ())),
        is_contiguous=body.get("contiguous", False),
    )


def _read_shard(index: Any, count: Any) -> tuple[int, int]:
    if type(index) is not int or type(count) is not int:
        raise TypeError(index, count)
    return index, count


def _read_skip(cursor: list[Any], **record: Any) -> tuple[Cursor, SkippedRecord]:
    if not all(type(number) is int for number in cursor):
        raise TypeError(cursor)
    return tuple(cursor), SkippedRecord(**record)


def _parse(state: Any) -> dict[str, Any]:
    if isinstance(state, bytes | bytearray | str):
        state = load_json(state if isinstance(state, str) else state.decode(errors="replace"))
    elif not isinstance(state, dict):
        raise StateError(
            f"A state is bytes or a dict, got {type(state).__name__}. Pass what `get_state` gave."
        )
    if not isinstance(state, dict) or "gristmill" not in state:
        raise not_ours(state)
    found: dict[str, Any] = dict(state)  # pyright: ignore[reportUnknownArgumentType] - JSON
    if found["gristmill"] != VERSION:
        raise StateError(
            f"The state is of version {found['gristmill']}, this gristmill reads {VERSION}. "
            "Use the version that wrote it."
        )
    checksum = found.pop("checksum", None)
    if checksum != _checksum(found):
        raise StateError(
            "The state is corrupt: its checksum does not match. Restore an earlier checkpoint."
        )
    return found


def load_json(text: str) -> Any:
    """Parse a state; say of one that cannot be whether its end is missing."""
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


def _checksum(body: dict[str, Any]) -> int:
    try:
        return zlib.crc32(json.dumps(body, sort_keys=True).encode())
    except (TypeError, ValueError):  # what a user's iterator told is no JSON: it is not ours to say
        return zlib.crc32(repr(body).encode())


def _as_json(value: Any) -> Any:
    """Give a state as JSON would bring it back, so that it is the same before and after."""
    if isinstance(value, NotImplementedError):  # by an iterator of the user's that has none
        raise NotImplementedError(*value.args)  # another one: that one would hold its frames
    if isinstance(value, tuple | list):
        return [_as_json(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in cast("dict[Any, Any]", value).items()}
    return value


def _compare(there: Words, here: Words, within: str = "") -> None:
    """Refuse the words of another plan, naming the first difference."""
    sources = there.get("source"), here["source"]
    if isinstance(sources[0], dict) and isinstance(sources[1], dict):
        one, other = cast("tuple[dict[str, Any], dict[str, Any]]", sources)
        if there.get("steps", [""])[0] == here["steps"][0] == "Mix":  # they may come and go
            other = {name: words for name, words in other.items() if name in one}
        elif one.keys() != other.keys():
            raise _difference("source", list(one), list(other), within)
        for name, words in other.items():
            _compare(one[name], words, f" in dataset {name}")
    elif sources[0] != sources[1]:
        raise _difference("source", *sources, within)
    for name in ("order", "steps"):
        if there.get(name) != here[name]:
            raise _difference(name, there.get(name), here[name], within)


def _difference(name: str, there: Any, here: Any, within: str) -> StateError:
    what = {"source": "another source", "order": "another order", "steps": "other steps"}[name]
    there, here = _told(there), _told(here)
    remedy = "Restore it into a pipeline like the one it was taken from, or start anew."
    if name == "order" and ("Shard" in there) != ("Shard" in here):
        remedy = "Cut into shards at the same place, with `ds[0::1]` if there is only one."
    return StateError(f"The state belongs to {what}{within}: {there} there, {here} here. {remedy}")


def _told(words: Any) -> str:
    return f"[{', '.join(map(str, words))}]" if isinstance(words, list) else str(words)  # pyright: ignore[reportUnknownArgumentType]


def check_shard(there: tuple[int, int], here: tuple[int, int]) -> None:
    """Refuse the state of another shard."""
    if there != here:
        raise StateError(
            f"The state belongs to another shard: {there[0]} of {there[1]} there, {here[0]} of "
            f"{here[1]} here. {_GATHER}"
        )

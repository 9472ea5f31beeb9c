"""The state of an iterator: a few integers in JSON, and what they belong to.

It holds the position, not how one got there: executor, workers and buffers do not show in it.
"""

import json
import zlib
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, final

from gristmill.checkpoint._ledger import SkippedRecord
from gristmill.errors import StateError

VERSION = 1


@final
@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What a state belongs to, in words: so that a mismatch can be explained."""

    source: str
    order: str
    shard: str
    steps: list[str]

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Its parts by name."""
        return asdict(self)


@final
@dataclass(frozen=True)
class Position:
    """Where a stream stands, and which records it left out on its way there."""

    cursor: tuple[int, ...]
    skipped: tuple[tuple[tuple[int, ...], SkippedRecord], ...] = ()
    """With the cursor after each."""


def encode_state(position: Position, fingerprint: Fingerprint) -> bytes:
    """Write a state.

    >>> belongs = Fingerprint(source="a list", order="in order", shard="0 of 1", steps=["Batch(2)"])
    >>> decode_state(encode_state(Position((4,)), belongs), belongs)
    Position(cursor=(4,), skipped=())
    """
    body: dict[str, Any] = {
        "gristmill": VERSION,
        "position": position.cursor[0],
        "pieces": list(position.cursor[1:]),
        "skipped": [{"cursor": after, **asdict(record)} for after, record in position.skipped],
        **fingerprint.fields,
    }
    return json.dumps({**body, "checksum": _checksum(body)}).encode()


def decode_state(state: bytes, fingerprint: Fingerprint | None) -> Position:
    """Read a state that belongs to this pipeline; refuse any other, saying why."""
    body = _parse(state)
    for name, here in fingerprint.fields.items() if fingerprint else ():
        there = body[name]
        if there != here:
            raise StateError(_difference(name, there, here))
    return Position(
        (body["position"], *body["pieces"]),
        tuple(
            (tuple(entry.pop("cursor")), SkippedRecord(**entry))
            for entry in body.get("skipped", ())
        ),
    )


def _parse(state: Any) -> dict[str, Any]:
    if not isinstance(state, bytes | bytearray | str):
        raise StateError(
            f"A state is bytes, got {type(state).__name__}. Pass what `get_state` gave."
        )
    text = state if isinstance(state, str) else state.decode(errors="replace")
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] in ("{", "") and not text.rstrip().endswith("}"):
            raise StateError(
                f"The state is truncated: it ends after {len(text)} characters. "
                "Restore an earlier checkpoint."
            ) from None
        raise StateError(
            "The state is corrupt: it is not JSON. Restore an earlier checkpoint."
        ) from None
    if not isinstance(body, dict) or "gristmill" not in body:
        raise StateError("The state is not one of gristmill's. Pass what `get_state` gave.")
    found: dict[str, Any] = body  # pyright: ignore[reportUnknownVariableType] - JSON
    if found["gristmill"] != VERSION:
        raise StateError(
            f"The state is of version {found['gristmill']}, this gristmill reads {VERSION}. "
            "Use the version that wrote it."
        )
    if found.pop("checksum", None) != _checksum(found):
        raise StateError(
            "The state is corrupt: its checksum does not match. Restore an earlier checkpoint."
        )
    return found


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _difference(name: str, there: Any, here: Any) -> str:
    remedy = "Restore it into a pipeline like the one it was taken from, or start anew."
    if name == "steps":
        there, here = _listed(there), _listed(here)
    what = {
        "source": "another source",
        "order": "another order",
        "shard": "another shard",
        "steps": "other steps",
    }[name]
    return f"The state belongs to {what}: {there} there, {here} here. {remedy}"


def _listed(steps: list[str]) -> str:
    return "[" + ", ".join(steps) + "]"

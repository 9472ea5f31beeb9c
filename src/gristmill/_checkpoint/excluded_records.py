"""The records that a state excludes, as JSON: a list, or compressed differences if they are many.

A million records take one to three megabytes, and are encoded and decoded in a tenth of a second.

Where nothing is held between elements, and there is one source, they are `"excluded"`. Otherwise
`"exclusions"` lists them by source, each time with the positions from which on they are left out.
"""

import base64
import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np

from gristmill.types import Cursor, JsonObject

_MAX_LISTED = 1000
"""The largest number that is written as a list, which people can read."""

_MAX_RECORDS = 1 << 28
"""A state with more is corrupt: they would take more memory than any run has for them."""


_MAX_EXCLUSIONS = 1 << 16
"""A state with more is corrupt: no run excludes records so often."""


@final
@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """Records that are left out, starting at a position."""

    records: tuple[tuple[int, tuple[int, ...]], ...]
    """Numbers of sources, each with some of its records in order."""
    cursors: tuple[Cursor, ...] | None = None
    """Where each shard was, or that of the state; `None` if it does not matter."""
    num_reshards: int = 0
    """How often the number of shards had changed before."""


def encode_excluded(records: Sequence[int]) -> object:
    """Return some ascending numbers as JSON.

    >>> encode_excluded((1, 5))
    [1, 5]
    >>> decode_excluded(encode_excluded(range(0, 5000, 3))) == tuple(range(0, 5000, 3))
    True
    """
    if len(records) <= _MAX_LISTED:
        return list(records)
    differences = np.diff(np.array(records, dtype="<i8"), prepend=0)
    packed = base64.b64encode(zlib.compress(differences.astype("<i8").tobytes(), 1)).decode()
    return {"count": len(records), "differences": packed}


def decode_excluded(encoded: Any) -> tuple[int, ...]:
    """Return the numbers that `encode_excluded` encoded.

    Raises:
        TypeError: They are not integers.
        ValueError: They do not ascend, or are not complete.
    """
    if isinstance(encoded, dict):
        return _decode_packed(cast("Mapping[str, Any]", encoded))
    records: list[int] = encoded
    if any(type(record) is not int for record in records):
        raise TypeError(len(records))
    if any(record >= following for record, following in itertools.pairwise(records)):
        raise ValueError(len(records))
    return tuple(records)


def _decode_packed(encoded: Mapping[str, Any]) -> tuple[int, ...]:
    count, packed = encoded["count"], encoded["differences"]
    if type(count) is not int or not 0 < count <= _MAX_RECORDS or type(packed) is not str:
        raise ValueError(count)
    try:
        decompressor = zlib.decompressobj()
        data = decompressor.decompress(base64.b64decode(packed, validate=True), 8 * count)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(data) != 8 * count or not decompressor.eof:
        raise ValueError(len(data))
    differences = np.frombuffer(data, dtype="<i8")
    records = np.cumsum(differences)
    if (differences[1:] <= 0).any() or (np.diff(records) <= 0).any():
        raise ValueError(count)
    return tuple(records.tolist())


def encode_exclusions(exclusions: Sequence[Exclusion]) -> JsonObject:
    """Return the fields of a state that list excluded records."""
    if not exclusions:
        return {}
    first = exclusions[0]
    if len(exclusions) == 1 and first.cursors is None and [n for n, _ in first.records] == [0]:
        return {"excluded": encode_excluded(first.records[0][1])}
    return {
        "exclusions": [
            {
                "records": {str(number): encode_excluded(some) for number, some in one.records},
                "cursors": one.cursors,
                "reshards": one.num_reshards,
            }
            for one in exclusions
        ]
    }


def decode_exclusions(state: Mapping[str, Any]) -> tuple[Exclusion, ...]:
    """Return the exclusions of a state.

    Raises:
        LookupError: A field is missing.
        TypeError: A field has another type.
        ValueError: Records do not ascend, or are not complete.
    """
    if "exclusions" not in state:
        records = decode_excluded(state.get("excluded", []))
        return (Exclusion(records=((0, records),)),) if records else ()
    found: list[JsonObject] = state["exclusions"]
    if type(found) is not list or len(found) > _MAX_EXCLUSIONS:
        raise TypeError(type(found))
    return tuple(map(_decode_exclusion, found))


def _decode_exclusion(encoded: JsonObject) -> Exclusion:
    cursors, num_reshards = encoded["cursors"], encoded["reshards"]
    if type(num_reshards) is not int or num_reshards < 0:
        raise ValueError(num_reshards)
    by_source = {int(number): decode_excluded(some) for number, some in encoded["records"].items()}
    if not by_source or not all(by_source.values()):
        raise ValueError(len(by_source))
    return Exclusion(
        records=tuple(sorted(by_source.items())),
        cursors=None if cursors is None else tuple(tuple(cursor) for cursor in cursors),
        num_reshards=num_reshards,
    )


def excluded_in(state: Mapping[str, Any]) -> dict[int, set[int]]:
    """Return the records that a state excludes, by the number of their source."""
    return excluded_by(decode_exclusions(state))


def excluded_by(exclusions: Sequence[Exclusion]) -> dict[int, set[int]]:
    """Return the records of some exclusions, by the number of their source."""
    found: dict[int, set[int]] = {}
    for exclusion in exclusions:
        for number, records in exclusion.records:
            found.setdefault(number, set()).update(records)
    return found

"""Many `tf.train.Example` messages taken apart at once, where each is as TFDS writes them.

    Example    1: Features
    Features   1: entry, repeated        entry   1: key   2: Feature
    Feature    1: bytes   2: floats   3: integers, each a list   1: a text, or numbers packed

All messages are walked through in step, field by field, as arrays of places. One that holds
anything else (an unknown field, a list in parts, numbers one by one) is left to TFDS, and so is a
damaged one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill._example._varint import join_varints
from gristmill.types import Indices

_FIRST, _SECOND = 0x0A, 0x12  # tags of fields 1 and 2 that tell their length
BYTES, FLOATS, INTEGERS = 0x0A, 0x12, 0x1A
"""What a feature holds, as the tags of its list."""

_MOST_FEATURES = 256
_LONGEST_LENGTH = 5
"""Bytes of a length: protobuf's messages are shorter than 2 GB."""
_PADDING = 16
"""Bytes that may be looked at behind the last message."""


@final
@dataclass(frozen=True)
class Found:
    """Where the values of some features are, one row for each message and a column for each."""

    data: bytes
    is_whole: NDArray[np.bool_]
    """Of each message, whether it is plain and holds all the features."""
    kinds: NDArray[np.uint8]
    starts: Indices
    stops: Indices

    def pieces(self, rows: Indices, column: int) -> list[bytes]:
        """Give the values of a feature as they are stored."""
        bounds = zip(
            self.starts[rows, column].tolist(), self.stops[rows, column].tolist(), strict=True
        )
        return [self.data[start:stop] for start, stop in bounds]


def find_features(messages: Sequence[bytes], keys: Sequence[str]) -> Found:
    r"""Find the values of some features in many messages.

    >>> message = b"\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07"
    >>> found = find_features([message, b"something else"], ["label"])
    >>> found.is_whole.tolist(), found.pieces(np.array([0]), 0)
    ([True, False], [b'\x07'])
    """
    data = b"".join([*messages, bytes(_PADDING)])
    walk = _Walk(data)
    ends = np.cumsum(np.array([len(message) for message in messages], np.int64))
    begins = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    shape = (len(messages), len(keys))
    found = Found(
        data,
        np.ones(len(messages), np.bool_),
        np.zeros(shape, np.uint8),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
    )
    names = [np.frombuffer(key.encode(), np.uint8) for key in keys]
    at, stops, is_whole = walk.enter(begins, ends, _FIRST)
    found.is_whole[:] = is_whole & (stops == ends)
    for _ in range(_MOST_FEATURES):
        rows = np.flatnonzero(found.is_whole & (at < ends))
        if not len(rows):
            break
        at[rows] = _take_entry(walk, found, names, rows, at[rows], ends[rows])
    found.is_whole[:] &= (at == ends) & (found.kinds != 0).all(axis=1)
    return found


def _take_entry(
    walk: "_Walk",
    found: Found,
    names: list[NDArray[np.uint8]],
    rows: Indices,
    at: Indices,
    ends: Indices,
) -> Indices:
    """Note where the values of the next feature are in each of the messages, and give its end."""
    entry, entry_stop, is_right = walk.enter(at, ends, _FIRST)
    key, key_stop, is_key = walk.enter(entry, entry_stop, _FIRST)
    feature, feature_stop, is_feature = walk.enter(key_stop, entry_stop, _SECOND)
    kinds = walk.bytes_at(feature)
    listed, list_stop, is_list = walk.enter(feature, feature_stop, None)
    start, stop, is_value = walk.enter(listed, list_stop, _FIRST)
    is_right &= is_key & is_feature & is_list & is_value
    is_right &= (feature_stop == entry_stop) & (list_stop == feature_stop) & (stop == list_stop)
    is_right &= (kinds == BYTES) | (kinds == FLOATS) | (kinds == INTEGERS)
    for column, name in enumerate(names):
        is_this = is_right & (key_stop - key == len(name))
        if not is_this.any():
            continue
        letters = walk.bytes_at(key[:, None] + np.arange(len(name)))
        chosen = np.flatnonzero(is_this & (letters == name).all(axis=1))
        taken = rows[chosen]
        found.kinds[taken, column] = kinds[chosen]  # of a feature twice the last one counts
        found.starts[taken, column] = start[chosen]
        found.stops[taken, column] = stop[chosen]
    found.is_whole[rows] = is_right
    return entry_stop


@final
class _Walk:
    """Steps over some bytes at many places at once."""

    def __init__(self, data: bytes) -> None:
        self._bytes = np.frombuffer(data, np.uint8)

    def bytes_at(self, places: Indices) -> NDArray[np.uint8]:
        # What is beyond the end belongs to a damaged message, which is then seen to be one.
        return self._bytes.take(places, mode="clip")

    def enter(
        self, at: Indices, ends: Indices, tag: int | None
    ) -> tuple[Indices, Indices, NDArray[np.bool_]]:
        """Give where the contents of fields begin and end, and whether it is so."""
        is_right = at < ends
        if tag is not None:
            is_right &= self.bytes_at(at) == tag
        byte = self.bytes_at(at + 1)
        starts = at + 2
        lengths = (byte & 127).astype(np.int64)
        for place in range(1, _LONGEST_LENGTH):
            more = np.flatnonzero(byte >= 128)
            if not len(more):
                break
            byte = np.zeros_like(byte)
            byte[more] = self.bytes_at(starts[more])
            lengths[more] |= (byte[more] & 127).astype(np.int64) << (7 * place)
            starts[more] += 1
        is_right &= byte < 128
        stops = starts + lengths
        is_right &= stops <= ends
        return starts, np.where(is_right, stops, ends), is_right


def take_floats(
    pieces: Sequence[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Give lists of floats as an array of rows, and which rows have as many as they should."""
    size = 4 * prod(shape)
    is_right = np.array([len(piece) == size for piece in pieces], np.bool_)
    made = np.empty((len(pieces), *shape), dtype)
    right = [piece for piece in pieces if len(piece) == size]
    made[is_right] = np.frombuffer(b"".join(right), "<f4").reshape(-1, *shape)
    return made, is_right


def take_integers(
    pieces: Sequence[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    r"""Give lists of integers as an array of rows, and which rows are right: so many, in bounds.

    >>> take_integers([b"\x01\xac\x02", b"\x01"], (2,), np.dtype(np.int64))[0][0].tolist()
    [1, 300]
    """
    made = np.empty((len(pieces), *shape), dtype)
    count = prod(shape)
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    is_right = lengths >= max(1, count)
    digits = np.frombuffer(b"".join(pieces), np.uint8)
    is_last = digits < 128
    if len(pieces) and is_right.all():
        ends = np.cumsum(lengths)
        is_right &= is_last[ends - 1]
        is_right &= np.add.reduceat(is_last, ends - lengths, dtype=np.int64) == count
    if not len(pieces) or not is_right.all():
        if is_right.any():
            right = [pieces[row] for row in np.flatnonzero(is_right).tolist()]
            made[is_right], is_right[is_right] = take_integers(right, shape, dtype)
        return made, is_right
    values = _numbers(digits, is_last)
    if values is None:
        return made, np.zeros(len(pieces), np.bool_)
    by_row = values.reshape(len(pieces), count)
    if dtype.kind != "b":
        lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
        if values.min() < lowest or values.max() > highest:
            is_right &= ((by_row >= lowest) & (by_row <= highest)).all(axis=1)
    made.reshape(by_row.shape)[...] = by_row.astype(dtype)
    return made, is_right


def _numbers(digits: NDArray[np.uint8], is_last: NDArray[np.bool_]) -> NDArray[Any] | None:
    """Give numbers of 7 bits a byte, the lowest first; none of them if one is too long."""
    if (is_last[1:] | is_last[:-1]).all():  # one byte or two: no need to say where each begins
        high = digits[is_last].astype(np.int16)
        low = np.concatenate((np.zeros(1, np.uint8), digits[:-1]))[is_last]
        return np.where(low >= 128, high << 7 | (low & 127), high)
    return join_varints(digits, is_last)

"""Parsing of many `tf.train.Example` messages at once, if they have the form that TFDS writes.

    Example    1: Features
    Features   1: entry, repeated        entry   1: key   2: Feature
    Feature    1: bytes   2: floats   3: integers, each a list   1: bytes, or packed numbers

All messages are parsed in parallel, field by field, with arrays of offsets. A message with anything
else (an unknown field, a list in several parts, unpacked numbers) is left to the caller, as is a
damaged one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np
from numpy.typing import NDArray

from gristmill._data.example_proto.varint import join_varints
from gristmill.types import AnyArray, AnyDType, Indices

_FIRST, _SECOND = 0x0A, 0x12  # tags of fields 1 and 2 with a length
BYTES, FLOATS, INTEGERS = 0x0A, 0x12, 0x1A
"""Kinds of features: the tags of their lists."""

_MAX_FEATURES = 256
_MAX_LENGTH_BYTES = 5
"""Bytes of a length: protobuf messages are shorter than 2 GB."""
_PADDING = 16
"""Bytes that may be read past the last message."""


@final
@dataclass(frozen=True)
class FeatureOffsets:
    """Offsets of the values of features: one row per message, one column per feature."""

    data: bytes
    is_whole: NDArray[np.bool_]
    """For each message, whether it has the expected form and all features."""
    kinds: NDArray[np.uint8]
    starts: Indices
    stops: Indices

    def values(self, rows: Indices, column: int) -> list[bytes]:
        """Return the stored bytes of a feature of some messages."""
        bounds = zip(
            self.starts[rows, column].tolist(), self.stops[rows, column].tolist(), strict=True
        )
        return [self.data[start:stop] for start, stop in bounds]


def find_features(messages: Sequence[bytes], keys: Sequence[str]) -> FeatureOffsets:
    r"""Find the values of some features in many messages.

    >>> message = b"\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07"
    >>> found = find_features([message, b"something else"], ["label"])
    >>> found.is_whole.tolist(), found.values(np.array([0]), 0)
    ([True, False], [b'\x07'])
    """
    data = b"".join([*messages, bytes(_PADDING)])
    cursor = _Offsets(data)
    ends = np.cumsum(np.array([len(message) for message in messages], np.int64))
    begins = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1]))
    shape = (len(messages), len(keys))
    found = FeatureOffsets(
        data,
        np.ones(len(messages), np.bool_),
        np.zeros(shape, np.uint8),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
    )
    names = [np.frombuffer(key.encode(), np.uint8) for key in keys]
    at, stops, is_whole = cursor.enter(begins, ends, _FIRST)
    found.is_whole[:] = is_whole & (stops == ends)
    for _ in range(_MAX_FEATURES):
        rows = np.flatnonzero(found.is_whole & (at < ends))
        if not len(rows):
            break
        at[rows] = _read_entry(cursor, found, names, rows, at[rows], ends[rows])
    found.is_whole[:] &= (at == ends) & (found.kinds != 0).all(axis=1)
    return found


def _read_entry(
    cursor: "_Offsets",
    found: FeatureOffsets,
    names: list[NDArray[np.uint8]],
    rows: Indices,
    at: Indices,
    ends: Indices,
) -> Indices:
    """Store the offsets of the next feature of each message, and return its end."""
    entry, entry_stop, is_right = cursor.enter(at, ends, _FIRST)
    key, key_stop, is_key = cursor.enter(entry, entry_stop, _FIRST)
    feature, feature_stop, is_feature = cursor.enter(key_stop, entry_stop, _SECOND)
    kinds = cursor.bytes_at(feature)
    listed, list_stop, is_list = cursor.enter(feature, feature_stop, None)
    start, stop, is_value = cursor.enter(listed, list_stop, _FIRST)
    is_right &= is_key & is_feature & is_list & is_value
    is_right &= (feature_stop == entry_stop) & (list_stop == feature_stop) & (stop == list_stop)
    is_right &= (kinds == BYTES) | (kinds == FLOATS) | (kinds == INTEGERS)
    for column, name in enumerate(names):
        is_this = is_right & (key_stop - key == len(name))
        if not is_this.any():
            continue
        letters = cursor.bytes_at(key[:, None] + np.arange(len(name)))
        chosen = np.flatnonzero(is_this & (letters == name).all(axis=1))
        taken = rows[chosen]
        found.kinds[taken, column] = kinds[chosen]  # the last of several equal keys counts
        found.starts[taken, column] = start[chosen]
        found.stops[taken, column] = stop[chosen]
    found.is_whole[rows] = is_right
    return entry_stop


@final
class _Offsets:
    """Reads fields at many offsets at once."""

    def __init__(self, data: bytes) -> None:
        self._bytes = np.frombuffer(data, np.uint8)

    def bytes_at(self, offsets: Indices) -> NDArray[np.uint8]:
        # Offsets past the end belong to a damaged message, which is detected later.
        return self._bytes.take(offsets, mode="clip")

    def enter(
        self, at: Indices, ends: Indices, tag: int | None
    ) -> tuple[Indices, Indices, NDArray[np.bool_]]:
        """Return starts and stops of the contents of fields, and whether the fields are valid."""
        is_right = at < ends
        if tag is not None:
            is_right &= self.bytes_at(at) == tag
        byte = self.bytes_at(at + 1)
        starts = at + 2
        lengths = (byte & 127).astype(np.int64)
        for digit in range(1, _MAX_LENGTH_BYTES):
            more = np.flatnonzero(byte >= 128)
            if not len(more):
                break
            byte = np.zeros_like(byte)
            byte[more] = self.bytes_at(starts[more])
            lengths[more] |= (byte[more] & 127).astype(np.int64) << (7 * digit)
            starts[more] += 1
        is_right &= byte < 128
        stops = starts + lengths
        is_right &= stops <= ends
        return starts, np.where(is_right, stops, ends), is_right


def parse_floats(
    values: Sequence[bytes], shape: tuple[int, ...], dtype: AnyDType
) -> tuple[AnyArray, NDArray[np.bool_]]:
    """Return lists of floats as an array of rows, and which rows have the expected length."""
    size = 4 * prod(shape)
    is_right = np.array([len(value) == size for value in values], np.bool_)
    made = np.empty((len(values), *shape), dtype)
    right = [value for value in values if len(value) == size]
    made[is_right] = np.frombuffer(b"".join(right), "<f4").reshape(-1, *shape)
    return made, is_right


def parse_integers(
    values: Sequence[bytes], shape: tuple[int, ...], dtype: AnyDType
) -> tuple[AnyArray, NDArray[np.bool_]]:
    r"""Return lists of integers as an array of rows, and which rows are valid.

    >>> parse_integers([b"\x01\xac\x02", b"\x01"], (2,), np.dtype(np.int64))[0][0].tolist()
    [1, 300]
    """
    made = np.empty((len(values), *shape), dtype)
    count = prod(shape)
    lengths = np.array([len(value) for value in values], np.int64)
    is_right = lengths >= max(1, count)
    digits = np.frombuffer(b"".join(values), np.uint8)
    is_last = digits < 128
    if len(values) and is_right.all():
        ends = np.cumsum(lengths)
        is_right &= is_last[ends - 1]
        is_right &= np.add.reduceat(is_last, ends - lengths, dtype=np.int64) == count
    if not len(values) or not is_right.all():
        if is_right.any():
            right = [values[row] for row in np.flatnonzero(is_right).tolist()]
            made[is_right], is_right[is_right] = parse_integers(right, shape, dtype)
        return made, is_right
    numbers = _numbers(digits, is_last)
    if numbers is None:
        return made, np.zeros(len(values), np.bool_)
    by_row = numbers.reshape(len(values), count)
    if dtype.kind != "b":
        lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
        if numbers.min() < lowest or numbers.max() > highest:
            is_right &= ((by_row >= lowest) & (by_row <= highest)).all(axis=1)
    made.reshape(by_row.shape)[...] = by_row.astype(dtype)
    return made, is_right


def _numbers(digits: NDArray[np.uint8], is_last: NDArray[np.bool_]) -> AnyArray | None:
    """Return numbers of 7 bits per byte, lowest first; `None` if one of them is too long."""
    if (is_last[1:] | is_last[:-1]).all():  # one byte or two each: starts are not needed
        high = digits[is_last].astype(np.int16)
        low = np.concatenate((np.zeros(1, np.uint8), digits[:-1]))[is_last]
        return np.where(low >= 128, high << 7 | (low & 127), high)
    return join_varints(digits, is_last)

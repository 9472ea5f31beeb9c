"""Read from the footer of a Parquet file what pyarrow cannot return safely.

pyarrow describes a column chunk with functions of C++ whose exceptions end the process, such as
that for a histogram of another size, or for a column that is encrypted. So this module reads these
descriptions itself. They are in Thrift's compact protocol: fields with their types and numbers,
and integers of a variable number of bytes.
"""

from typing import Any, NamedTuple, TypeAlias

from gristmill._io.file import File
from gristmill.errors import CorruptFileError

_TAIL_BYTES = 2**16
"""Bytes to read at first: most footers are shorter."""

_ENDING_BYTES = 8
"""The length of the footer, and the magic string behind it."""

_BOOLEANS, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = (
    (1, 2), 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
)  # fmt: skip
_FIXED_SIZES = {_BYTE: 1, _DOUBLE: 8, _UUID: 16}
_INTEGERS = frozenset((_I16, _I32, _I64))

_Wanted: TypeAlias = "dict[int, tuple[int, _Wanted]]"
"""The type of each field that is read, and those of the struct or the list of structs in it."""

_UNWANTED: tuple[int, _Wanted] = (-1, {})
_STATISTICS: _Wanted = {3: (_I64, {})}
_COLUMN: _Wanted = {3: (_STRUCT, {1: (_I32, {}), 5: (_I64, {}), 12: (_STRUCT, _STATISTICS)})}
_GROUP: _Wanted = {1: (_LIST, _COLUMN), 2: (_I64, {}), 3: (_I64, {})}
_FOOTER: _Wanted = {3: (_I64, {}), 4: (_LIST, _GROUP)}


PHYSICAL_TYPES = (
    "BOOLEAN INT32 INT64 INT96 FLOAT DOUBLE BYTE_ARRAY FIXED_LEN_BYTE_ARRAY".split()  # noqa: SIM905
)
"""The names of types, by their numbers."""


class ColumnChunk(NamedTuple):
    """The values of a column in a row group."""

    type_number: int
    num_values: int
    num_nulls: int | None
    """`None` if the file does not state it."""


class RowGroup(NamedTuple):
    """Rows that are stored together."""

    num_rows: int
    num_bytes: int
    columns: list[ColumnChunk]


def read_tail(file: File) -> bytes:
    """Return the last bytes of a file, with the whole footer, if it has one."""
    size = file.ref.size
    tail = file.read_one(max(0, size - _TAIL_BYTES), size)
    num_bytes = int.from_bytes(tail[-_ENDING_BYTES : -_ENDING_BYTES // 2], "little")
    start = size - _ENDING_BYTES - num_bytes
    return tail if size - start <= len(tail) or start < 0 else file.read_one(start, size)


def read_row_groups(tail: bytes, path: str) -> tuple[int, list[RowGroup]]:
    """Return the number of rows of a file, and its row groups.

    Args:
        tail: The last bytes of the file, in which pyarrow has found a footer.
        path: The file, for the error.
    """
    stop = len(tail) - _ENDING_BYTES
    footer = tail[stop - int.from_bytes(tail[stop : stop + 4], "little") : stop]
    try:
        found, _ = _read_struct(footer, 0, _FOOTER)
        return found[3], [_as_group(group) for group in found[4]]
    except (IndexError, KeyError, RecursionError) as error:
        raise contradiction(path) from error


def contradiction(path: str) -> CorruptFileError:
    """Return the error for a footer that is damaged."""
    return CorruptFileError(
        "The footer of the Parquet file contradicts itself. Copy or write it again.", path=path
    )


def _as_group(group: dict[int, Any]) -> RowGroup:
    columns = [
        ColumnChunk(column[3][1], column[3][5], column[3].get(12, {}).get(3)) for column in group[1]
    ]
    return RowGroup(group[3], group[2], columns)


def _read_struct(data: bytes, at: int, wanted: _Wanted) -> tuple[dict[int, Any], int]:
    """Return some fields of a struct by their numbers, and the byte after it."""
    found: dict[int, Any] = {}
    field = 0
    while head := data[at]:
        at += 1
        if head > 15:
            field += head >> 4
        else:
            field, at = _read_integer(data, at)
        kind = head & 15
        expected, inner = wanted.get(field, _UNWANTED)
        if kind != expected:
            if kind in _INTEGERS:  # as in `_skip`, without a call: most fields are integers
                while data[at] > 127:
                    at += 1
                at += 1
            else:
                at = _skip(data, at, kind)
        elif kind == _STRUCT:
            found[field], at = _read_struct(data, at, inner)
        elif kind == _LIST:
            found[field], at = _read_structs(data, at, inner)
        else:
            found[field], at = _read_integer(data, at)
    return found, at + 1


def _skip_struct(data: bytes, at: int) -> int:
    """Return the byte after a struct."""
    while head := data[at]:
        at += 1
        if head < 16:  # the number of the field
            at = _skip(data, at, _I64)
        kind = head & 15
        if kind in _INTEGERS:
            while data[at] > 127:
                at += 1
            at += 1
        elif kind > 2:
            at = _skip(data, at, kind)
    return at + 1


def _read_structs(data: bytes, at: int, wanted: _Wanted) -> tuple[list[dict[int, Any]], int]:
    count, kind, at = _read_list_head(data, at)
    structs: list[dict[int, Any]] = []
    for _ in range(count if kind == _STRUCT else 0):
        struct, at = _read_struct(data, at, wanted)
        structs.append(struct)
    return structs, at


def _skip(data: bytes, at: int, kind: int) -> int:
    """Return the byte after a value of some type."""
    if kind in _INTEGERS:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == _BINARY:
        size, at = _read_number(data, at)
        return at + size
    if kind == _STRUCT:
        return _skip_struct(data, at)
    if kind in (_LIST, _SET):
        count, kind, at = _read_list_head(data, at)
        return _skip_items(data, at, count, [kind])
    if kind == _MAP:
        count, at = _read_number(data, at)
        return _skip_items(data, at + 1, count, [data[at] >> 4, data[at] & 15]) if count else at
    return at if kind in _BOOLEANS else at + _FIXED_SIZES[kind]


def _skip_items(data: bytes, at: int, count: int, kinds: list[int]) -> int:
    """Return the byte after some items, each of values of these types."""
    for _ in range(count):
        for kind in kinds:
            at = at + 1 if kind in _BOOLEANS else _skip(data, at, kind)
        if at > len(data):  # there may be very many more
            raise IndexError
    return at


def _read_list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the number of items of a list, their type, and the byte of the first one."""
    count, kind, at = data[at] >> 4, data[at] & 15, at + 1
    if count == 15:
        count, at = _read_number(data, at)
    return count, kind, at


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _read_number(data, at)
    return number >> 1 ^ -(number & 1), at


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    if number < 128:
        return number, at + 1
    number &= 127
    shift = 7
    while True:
        at += 1
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + 1
        shift += 7

"""Arrays that `np.save` and `np.savez` wrote."""

import ast
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import IO, Any, cast, final

import numpy as np

from gristmill.errors import CorruptFileError, FileError, FormatError, GristmillError
from gristmill.files import File, as_stream
from gristmill.sources._compressed import refuse_compressed
from gristmill.sources._raw_array import RawArray, check_shape
from gristmill.sources._raw_source import RawSource

_MAGIC = b"\x93NUMPY"
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # a zip file, and one that holds nothing
_USUAL_HEADER = 4096
"""Bytes read at first: more than nearly every header has."""

_LOCAL_HEADER = 30
"""Bytes of a zip member's own header, before its name."""

_BUFFER = 2**20


@final
class NumpySource(RawSource):
    """Random access to the arrays in `.npy` and `.npz` files.

    The records of `.npy` files are the items of their arrays; those of `.npz` files are dicts with
    an item of each array in it, and so are those of a dict that names `.npy` files. Several files
    follow one another. Files on this machine are memory-mapped, `.npz` ones included unless they
    are compressed, and only what is read is loaded. Arrays of Python objects are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.array([[1, 2], [3, 4]]))
    ...     np.save(f"{folder}/y.npy", np.array([0, 1]))
    ...     NumpySource({"x": f"{folder}/x.npy", "y": f"{folder}/y.npy"})[1]
    {'x': array([3, 4]), 'y': np.int64(1)}
    """

    @staticmethod
    def _find_arrays(file: File) -> RawArray | dict[str, RawArray]:
        path, size = file.ref.path, file.ref.size
        head = file.read_one(0, min(4, size))
        if head in _ZIP_MAGICS:
            return _find_members(file)
        refuse_compressed(head, path)
        raw = _read_header(lambda count: file.read_one(0, min(count, size)), path)
        raw.check_size(size, path)
        return _check_order(raw, file)


def _check_order(raw: RawArray, file: File) -> RawArray:
    if raw.is_fortran and not file.ref.is_local:
        raise FormatError(
            "It is in Fortran order, where a record lies in pieces all over the file. Save "
            "`np.ascontiguousarray` of it, or copy the file to this machine.",
            path=file.ref.path,
        )
    return raw


def _read_header(
    read: Callable[[int], bytes], path: str, *, before: int = 0, member: str = ""
) -> RawArray:
    """Parse what `read` gives the first bytes of; `before` is how many come before those."""
    told = f"Its member {member!r}" if member else "It"
    data = read(_USUAL_HEADER)
    if not data.startswith(_MAGIC[: len(data)]):
        raise FormatError(
            f"{told} does not start as a NumPy file does: `.npy` and `.npz` can be read.",
            path=path,
            offset=before,
        )
    num_size = 2 if data[6:7] == b"\x01" else 4
    start = 8 + num_size
    end = start + int.from_bytes(data[8:start], "little")
    if start <= len(data) < end:
        data = read(end)
    if len(data) < max(start, end):
        raise CorruptFileError(
            f"{told} ends inside its header. Copy it anew.", path=path, offset=before + len(data)
        )
    if data[6:8] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise FormatError(
            f"{told} is of version {data[6]}.{data[7]} of NumPy's format, and 1.0 to 3.0 are "
            "known. Save it anew with `np.save`.",
            path=path,
            offset=before + 6,
        )
    try:
        text = data[start:end].decode("utf-8" if data[6] == 3 else "latin1")
        dtype, shape, is_fortran = _parse_header(text)
    except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError) as error:
        raise CorruptFileError(
            f"{told} has a header that does not tell a shape and a type. Copy it anew.",
            path=path,
            offset=before + start,
        ) from error
    if dtype.hasobject:
        raise FormatError(
            f"{told} holds Python objects, which are pickled: that can run any code and takes all "
            "of it to read one. Save numbers or text, as `array.astype(...)` gives.",
            path=path,
        )
    check_shape(shape, path)
    is_fortran = is_fortran and len(shape) > 1
    return RawArray(
        dtype=dtype, record_dtype=dtype, shape=shape, offset=before + end, is_fortran=is_fortran
    )


def _parse_header(text: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    # Python 2 wrote lengths as `3L`, on some systems.
    header: Any = ast.literal_eval(re.sub(r"(?<=\d)L(?=[,)])", "", text).strip())
    shape, is_fortran = header["shape"], header["fortran_order"]
    if not isinstance(shape, tuple) or not isinstance(is_fortran, bool):
        raise TypeError("the shape is no tuple, or the order is not told")
    lengths = cast("tuple[Any, ...]", shape)
    if not all(type(length) is int and length >= 0 for length in lengths):
        raise ValueError("a length is no count")
    return np.lib.format.descr_to_dtype(header["descr"]), lengths, is_fortran


def _find_members(file: File) -> dict[str, RawArray]:
    """Find the arrays in an `.npz` file."""
    path = file.ref.path
    arrays: dict[str, RawArray] = {}
    with _opened(file) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            is_stored = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
            arrays[name] = _stored(file, info) if is_stored else _packed(archive, info, path)
    if not arrays:
        raise FormatError("It holds no array. Save some with `np.savez`.", path=path)
    if len({raw.shape[0] for raw in arrays.values()}) > 1:
        lengths = ", ".join(f"{name!r}: {raw.shape[0]}" for name, raw in arrays.items())
        raise FormatError(
            f"Its arrays must be of one length along the first axis, got {lengths}.", path=path
        )
    return arrays


def _stored(file: File, info: zipfile.ZipInfo) -> RawArray:
    """Find an array that lies in the zip file as it is."""
    path, place = file.ref.path, info.header_offset
    header = file.read_one(place, min(place + _LOCAL_HEADER, file.ref.size))
    start = place + _LOCAL_HEADER
    start += sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    end = start + info.file_size
    if not header.startswith(_ZIP_MAGICS[0]) or end > file.ref.size:
        raise CorruptFileError(
            f"Its member {info.filename!r} is not where the zip file's directory says. Copy it "
            "anew.",
            path=path,
            offset=place,
        )
    raw = _read_header(
        lambda count: file.read_one(start, min(start + count, end)),
        path,
        before=start,
        member=info.filename,
    )
    raw.check_size(end, path)
    return _check_order(raw, file)


def _packed(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> RawArray:
    """Look into an array that is compressed."""
    try:
        with archive.open(info) as stream:
            raw = _read_header(lambda count: _from_start(stream, count), path, member=info.filename)
        raw.check_size(info.file_size, path)
    except FileError as error:
        error.offset = info.header_offset  # there is none for a byte that is compressed
        raise
    unpack = partial(_unpack, member=info.filename, place=info.header_offset)
    return replace(raw, unpack=unpack)


def _from_start(stream: IO[bytes], count: int) -> bytes:
    stream.seek(0)
    return stream.read(count)


def _unpack(file: File, *, member: str, place: int) -> bytes:
    with _opened(file, place) as archive:
        return archive.read(member)


@contextmanager
def _opened(file: File, place: int | None = None) -> Generator[zipfile.ZipFile]:
    """Open a zip file; tell what it does not like as damage, at `place` or at the end."""
    try:
        with zipfile.ZipFile(io.BufferedReader(as_stream(file), _BUFFER)) as archive:
            yield archive
    except GristmillError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise CorruptFileError(
            f"It is a zip file that is damaged or cut short ({error}). Copy it anew.",
            path=file.ref.path,
            offset=file.ref.size if place is None else place,
        ) from error

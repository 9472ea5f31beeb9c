"""A source over files written by `np.save` and `np.savez`."""

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

from gristmill._data.sources.arrays.bounded_read import check_ratio, read_announced
from gristmill._data.sources.arrays.raw_array import RawArray, check_shape
from gristmill._data.sources.arrays.raw_source import RawSource
from gristmill._data.sources.file_head import refuse_compressed
from gristmill._io.file import File
from gristmill._io.file_object import as_file_object
from gristmill.errors import CorruptFileError, FileError, FormatError, GristmillError
from gristmill.types import AnyArray, AnyDType

_MAGIC = b"\x93NUMPY"
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # a zip file, and an empty zip file
_USUAL_HEADER_BYTES = 4096
"""Bytes read at first: nearly every header is shorter."""
_MAX_HEADER_BYTES = 2**16
"""NumPy itself refuses headers over 10,000 bytes: parsing takes hundreds of times their size."""

_LOCAL_HEADER_BYTES = 30
"""Size of the header of a zip member, without its name."""

_BUFFER_BYTES = 2**20


@final
class NumpySource(RawSource):
    """Random access to the arrays in `.npy` and `.npz` files.

    The records of `.npy` files are the items of their arrays. The records of `.npz` files are dicts
    with an item of each array; so are those of `.npy` files if `paths` is a dict. Several files are
    concatenated. Files on this machine are memory-mapped, and only the records that are read are
    loaded; this includes `.npz` files that are not compressed, whose checksums are verified once if
    they are on this machine. Arrays of Python objects are an error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.array([[1, 2], [3, 4]]))
    ...     np.save(f"{folder}/y.npy", np.array([0, 1]))
    ...     NumpySource({"x": f"{folder}/x.npy", "y": f"{folder}/y.npy"})[1]
    {'x': array([3, 4]), 'y': np.int64(1)}

    Args:
        paths: A path, a URL, a pattern with `*`, or a list of them. A dict of these names the
            arrays, and then records are dicts; all arrays must have the same length.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        PlanError: If `paths` names no file.
        FormatError: When records are first read, if a file is not a NumPy file.
        CorruptFileError: When records are read, if a file is truncated or damaged.
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
            "The array is in Fortran order, which scatters each record over the whole file. Save "
            "it as `np.ascontiguousarray(array)`, or copy the file to this machine.",
            path=file.ref.path,
        )
    return raw


def _read_header(
    read: Callable[[int], bytes], path: str, *, base: int = 0, member: str = ""
) -> RawArray:
    """Parse the header of an array.

    Args:
        read: Returns the given number of bytes from the start of the header.
        path: The file, for errors.
        base: Bytes of the file before the header.
        member: The member of an `.npz` file, for errors.
    """
    subject = f"The member {member!r}" if member else "The file"
    data = read(_USUAL_HEADER_BYTES)
    if not data.startswith(_MAGIC[: len(data)]):
        raise FormatError(
            f"{subject} does not start like a NumPy file. Pass `.npy` or `.npz` files.",
            path=path,
            offset=base,
        )
    num_length_bytes = 2 if data[6:7] == b"\x01" else 4
    start = 8 + num_length_bytes
    end = start + int.from_bytes(data[8:start], "little")
    if end - start > _MAX_HEADER_BYTES:
        raise FormatError(
            f"{subject} has a header of {end - start:,} bytes, and more than "
            f"{_MAX_HEADER_BYTES:,} are not supported. Save an array of a simpler type.",
            path=path,
            offset=base + 8,
        )
    if start <= len(data) < end:
        data = read(end)
    if len(data) < max(start, end):
        raise CorruptFileError(
            f"{subject} ends inside its header. Copy it again.", path=path, offset=base + len(data)
        )
    if data[6:8] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise FormatError(
            f"{subject} has version {data[6]}.{data[7]} of the NumPy format, but only 1.0 to 3.0 "
            "are supported. Save it again with `np.save`.",
            path=path,
            offset=base + 6,
        )
    try:
        header = data[start:end].decode("utf-8" if data[6] == 3 else "latin1")
        dtype, shape, is_fortran = _parse_header(header)
    except Exception as error:  # a damaged header makes Python and NumPy raise anything
        raise CorruptFileError(
            f"{subject} has a header without a valid shape and type. Copy it again.",
            path=path,
            offset=base + start,
        ) from error
    if dtype.hasobject:
        raise FormatError(
            f"{subject} holds pickled Python objects. Unpickling can run any code, and reading one "
            "object requires reading all. Save numbers or strings, for example with "
            "`array.astype(...)`.",
            path=path,
        )
    check_shape(shape, dtype.itemsize, path)
    is_fortran = is_fortran and len(shape) > 1
    return RawArray(
        dtype=dtype, record_dtype=dtype, shape=shape, offset=base + end, is_fortran=is_fortran
    )


def _parse_header(header: str) -> tuple[AnyDType, tuple[int, ...], bool]:
    # Python 2 wrote lengths as `3L` on some systems.
    fields: Any = ast.literal_eval(re.sub(r"(?<=\d)L(?=[,)])", "", header))
    shape, is_fortran = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or not isinstance(is_fortran, bool):
        raise TypeError("the shape is not a tuple, or the order is not a bool")
    lengths = cast("tuple[int, ...]", shape)
    if not all(type(length) is int and length >= 0 for length in lengths):
        raise ValueError("a length is not a count")
    return np.lib.format.descr_to_dtype(fields["descr"]), lengths, is_fortran


def _find_members(file: File) -> dict[str, RawArray]:
    """Find the arrays in an `.npz` file."""
    path = file.ref.path
    arrays: dict[str, RawArray] = {}
    with _open_zip(file) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in arrays:
                raise CorruptFileError(
                    f"There are two members named {name!r}. Save the arrays again.",
                    path=path,
                    offset=info.header_offset,
                )
            is_stored = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
            arrays[name] = (
                _find_stored(file, info) if is_stored else _find_compressed(archive, info, path)
            )
    if not arrays:
        raise FormatError("The file holds no arrays. Save some with `np.savez`.", path=path)
    if len({raw.shape[0] for raw in arrays.values()}) > 1:
        lengths = ", ".join(f"{name!r}: {raw.shape[0]}" for name, raw in arrays.items())
        raise FormatError(
            f"The arrays must have the same length along the first axis, got {lengths}.", path=path
        )
    return arrays


def _find_stored(file: File, info: zipfile.ZipInfo) -> RawArray:
    """Find an array that is not compressed in its zip file."""
    path, offset = file.ref.path, info.header_offset
    header = file.read_one(offset, min(offset + _LOCAL_HEADER_BYTES, file.ref.size))
    name_start = offset + _LOCAL_HEADER_BYTES
    name_stop = name_start + int.from_bytes(header[26:28], "little")
    start = name_stop + int.from_bytes(header[28:30], "little")
    end = start + info.file_size
    if (
        not header.startswith(_ZIP_MAGICS[0])
        or info.compress_size != info.file_size
        or end > file.ref.size
        or _decode_name(file.read_one(name_start, name_stop), info) != info.orig_filename
    ):
        raise CorruptFileError(
            f"The member {info.filename!r} is not where the directory of the zip file places it. "
            "Copy the file again.",
            path=path,
            offset=offset,
        )
    raw = _read_header(
        lambda count: file.read_one(start, min(start + count, end)),
        path,
        base=start,
        member=info.filename,
    )
    raw.check_size(end, path)
    if file.ref.is_local:  # to read a whole file of a store would cost more than its records
        _check_crc(file, info, start, end)
    return _check_order(raw, file)


def _decode_name(name: bytes, info: zipfile.ZipInfo) -> str:
    return name.decode("utf-8" if info.flag_bits & 0x800 else "cp437", "replace")


def _check_crc(file: File, info: zipfile.ZipInfo, start: int, end: int) -> None:
    """Raise if the checksum of a member differs. Its records are later read without one."""
    checksum = 0
    for chunk in file.chunks(start, end):
        checksum = zlib.crc32(chunk, checksum)
    if checksum != info.CRC:
        raise CorruptFileError(
            f"The member {info.filename!r} is damaged: its checksum does not match. Copy the file "
            "again.",
            path=file.ref.path,
            offset=start,
        )


def _find_compressed(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> RawArray:
    """Read the header of an array that is compressed in its zip file."""
    try:
        with archive.open(info) as stream:
            raw = _read_header(lambda count: _read_start(stream, count), path, member=info.filename)
        raw.check_size(info.file_size, path)
        if info.compress_type == zipfile.ZIP_DEFLATED:
            check_ratio(info.file_size, info.compress_size, path)
    except FileError as error:
        error.offset = info.header_offset  # a compressed byte has no offset in the file
        raise
    decompress = partial(
        _decompress,
        member=info.filename,
        offset=info.header_offset,
        num_bytes=raw.offset + raw.num_bytes,
    )
    return replace(raw, decompress=decompress)


def _read_start(stream: IO[bytes], count: int) -> bytes:
    stream.seek(0)
    return stream.read(count)


def _decompress(file: File, *, member: str, offset: int, num_bytes: int) -> AnyArray:
    with _open_zip(file, offset) as archive, archive.open(member) as stream:
        return read_announced(stream, num_bytes)


@contextmanager
def _open_zip(file: File, offset: int | None = None) -> Generator[zipfile.ZipFile]:
    """Open a zip file, and report its errors as damage at `offset`, by default at its end."""
    try:
        with zipfile.ZipFile(io.BufferedReader(as_file_object(file), _BUFFER_BYTES)) as archive:
            yield archive
    except GristmillError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # a damaged archive makes `zipfile` and its codecs raise anything
        raise CorruptFileError(
            f"The zip file is damaged or truncated ({error}). Copy it again.",
            path=file.ref.path,
            offset=file.ref.size if offset is None else offset,
        ) from error

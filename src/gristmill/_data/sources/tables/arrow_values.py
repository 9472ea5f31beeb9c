"""Convert values of Arrow columns to elements, depending only on the type of the column.

    number, bool, date, time         NumPy scalar, of one dtype for the whole column
    fixed-size list, tensor of such  array, all of one shape
    list of such                     array of its own length
    string, binary                   str, bytes
    struct                           dict
    list of any other type           list
    dictionary-encoded               the decoded value
    null                             None; a list of numbers that contains nulls is a Python list
    any other type                   as `to_pylist` of pyarrow converts it

A timestamp is an instant, in UTC if its column has a time zone. A time of the day is the time since
midnight. `datetime64` and `timedelta64` keep nanoseconds, which Python's own types lose.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gristmill._base.extras import load_extra
from gristmill.errors import CorruptFileError, FileError, FormatError, GristmillError
from gristmill.types import AnyArray, AnyDType, Element, Indices

# pyarrow is optional, so its classes cannot be named here.
ArrowArray: TypeAlias = Any
ArrowType: TypeAlias = Any
ArrowSchema: TypeAlias = Any
ArrowTable: TypeAlias = Any

_MAX_SLICES = 8
"""Values that are sliced one by one, which is as fast as one call of `take`."""


class Dense(NamedTuple):
    """The NumPy type of a column whose values all have one dtype and one shape."""

    dtype: AnyDType
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """The size of one value."""
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


def load_pyarrow(wanted_by: str, module: str = "pyarrow") -> Any:
    """Import pyarrow or one of its modules, or explain how to install it.

    Args:
        wanted_by: What needs it, for the error.
        module: The module to import.
    """
    return load_extra(module, extra="parquet", wanted_by=wanted_by)


def dense_of(arrow_type: ArrowType) -> Dense | None:
    """Return the NumPy type of an Arrow type, or `None` if it has no fixed dtype and shape.

    >>> import pyarrow as pa
    >>> dense_of(pa.list_(pa.float32(), 16))
    Dense(dtype=dtype('float32'), shape=(16,))
    """
    pa = load_pyarrow("Arrow data")
    types = pa.types
    if (
        types.is_boolean(arrow_type)
        or types.is_integer(arrow_type)
        or types.is_floating(arrow_type)
    ):
        return Dense(np.dtype(arrow_type.to_pandas_dtype()), ())
    if types.is_timestamp(arrow_type):
        return Dense(np.dtype(f"datetime64[{arrow_type.unit}]"), ())
    if types.is_date(arrow_type):
        unit = "D" if types.is_date32(arrow_type) else "ms"
        return Dense(np.dtype(f"datetime64[{unit}]"), ())
    if types.is_duration(arrow_type) or types.is_time(arrow_type):
        return Dense(np.dtype(f"timedelta64[{arrow_type.unit}]"), ())
    if types.is_fixed_size_list(arrow_type):
        inner = dense_of(arrow_type.value_type)
        return inner and Dense(inner.dtype, (arrow_type.list_size, *inner.shape))
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        inner = dense_of(arrow_type.value_type)
        shape = tuple(arrow_type.shape[axis] for axis in _axes(arrow_type))
        return inner and Dense(inner.dtype, shape)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return dense_of(arrow_type.storage_type)
    return None


def is_string_or_binary(arrow_type: ArrowType) -> bool:
    """Return whether values are `str` or `bytes`, which NumPy stores as Python objects."""
    types = load_pyarrow("Arrow data").types
    return (
        types.is_string(arrow_type)
        or types.is_large_string(arrow_type)
        or types.is_binary(arrow_type)
        or types.is_large_binary(arrow_type)
    )


def to_objects(array: ArrowArray) -> AnyArray | None:
    """Return strings or bytes as an array of Python objects, nulls as `None`.

    If a string is not UTF-8, the result is `None`: this is an error only when that string is read.

    >>> import pyarrow as pa
    >>> to_objects(pa.array(["a", None]))
    array(['a', None], dtype=object)
    """
    objects: AnyArray = np.empty(len(array), object)
    try:
        objects[:] = array.to_pylist()  # `to_numpy` of pyarrow would import pandas
    except UnicodeDecodeError:
        return None
    return objects


def to_dense(array: ArrowArray) -> AnyArray:
    """Return an Arrow array of a dense type as a NumPy array, without a copy if possible.

    The values at nulls are undefined.

    >>> import pyarrow as pa
    >>> to_dense(pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))).tolist()
    [[1, 2], [3, 4]]
    """
    pa = load_pyarrow("Arrow data")
    arrow_type = array.type
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        flat = to_dense(array.storage).reshape(len(array), *arrow_type.shape)
        return flat.transpose(0, *(axis + 1 for axis in _axes(arrow_type)))
    if isinstance(arrow_type, pa.BaseExtensionType):
        return to_dense(array.storage)
    if pa.types.is_fixed_size_list(arrow_type):
        inner = to_dense(_fixed_size_items(array))
        return inner.reshape(len(array), arrow_type.list_size, *inner.shape[1:])
    dense = dense_of(arrow_type)
    assert dense is not None
    if not len(array):  # it may have no buffer at all
        return np.empty(0, dense.dtype)
    _, data = array.buffers()
    if arrow_type.bit_width == 1:
        first = array.offset // 8
        packed = np.frombuffer(data, np.uint8, (array.offset + len(array) + 7) // 8 - first, first)
        skipped = array.offset % 8
        bits = np.unpackbits(packed, bitorder="little")
        return bits[skipped : skipped + len(array)].view(np.bool_)
    has_full_width = arrow_type.bit_width == dense.dtype.itemsize * 8
    stored = dense.dtype if has_full_width else np.dtype(np.int32)
    values = np.frombuffer(data, stored, len(array), array.offset * stored.itemsize)
    return values if stored == dense.dtype else values.astype(np.int64).view(dense.dtype)


def null_rows(array: ArrowArray) -> NDArray[np.bool_] | None:
    """Return for each value of a dense type whether it is or contains a null; `None` for no nulls.

    >>> import pyarrow as pa
    >>> null_rows(pa.array([1, None])).tolist(), null_rows(pa.array([1, 2]))
    ([False, True], None)
    """
    pa = load_pyarrow("Arrow data")
    if isinstance(array.type, pa.BaseExtensionType):
        return null_rows(array.storage)
    own = to_dense(array.is_null()) if array.null_count else None
    if pa.types.is_fixed_size_list(array.type) and array.type.list_size:
        inner = null_rows(_fixed_size_items(array))
        if inner is not None:
            within: NDArray[np.bool_] = np.logical_or.reduce(inner.reshape(len(array), -1), axis=1)
            return within if own is None else own | within
    return own


def take_slices(array: ArrowArray, within: Indices, *, may_share: bool) -> list[ArrowArray]:
    """Return some values of an Arrow array, as one or more arrays.

    Args:
        array: The values.
        within: Which of them.
        may_share: Whether the result may be slices of `array`, which keep its memory alive. It is
            a copy where that is faster.
    """
    if may_share:
        if len(within) <= _MAX_SLICES:
            return [array.slice(index, 1) for index in within.tolist()]
        if within[-1] - within[0] == len(within) - 1 and (np.diff(within) == 1).all():
            return [array.slice(int(within[0]), len(within))]
    return [take(array, within)]


def take(array: ArrowArray, within: Indices) -> ArrowArray:
    """Return a copy of some values of an Arrow array.

    >>> import pyarrow as pa
    >>> take(pa.array(["a", "b", "c"]), np.array([2, 0])).to_pylist()
    ['c', 'a']
    """
    pa = load_pyarrow("Arrow data")
    memory = pa.py_buffer(np.ascontiguousarray(within, np.int64))  # `pa.array` imports pandas
    return array.take(pa.Array.from_buffers(pa.int64(), len(within), [None, memory]))


def concatenate(arrays: Sequence[ArrowArray]) -> ArrowArray:
    """Concatenate Arrow arrays of one type; strings of over 2 GB in all get 64-bit offsets."""
    if len(arrays) == 1:
        return arrays[0]
    pa = load_pyarrow("Arrow data")
    if pa.types.is_dictionary(arrays[0].type):  # each has a dictionary of its own
        arrays = [array.dictionary_decode() for array in arrays]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid:
        arrow_type = arrays[0].type
        large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(arrow_type)
        if large is None and pa.types.is_list(arrow_type):
            large = pa.large_list(arrow_type.value_field)
        if large is None:
            raise
        return pa.concat_arrays([array.cast(large) for array in arrays])


def to_rows(table: ArrowTable) -> list[Element]:
    """Return the rows of a table as dicts.

    >>> import pyarrow as pa
    >>> to_rows(pa.table({"x": [1, 2], "y": ["a", None]}))
    [{'x': np.int64(1), 'y': 'a'}, {'x': np.int64(2), 'y': None}]
    """
    names: list[str] = table.column_names
    columns = [to_values(concatenate(column.chunks)) for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def to_values(array: ArrowArray) -> list[Element]:
    """Return the values of an Arrow array one by one, as copies.

    >>> import pyarrow as pa
    >>> to_values(pa.array([1, None], pa.int8())), to_values(pa.array([{"a": "b"}]))
    ([np.int8(1), None], [{'a': 'b'}])
    """
    pa = load_pyarrow("Arrow data")
    types, arrow_type = pa.types, array.type
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        return _tensor_values(array)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return to_values(array.storage)
    if types.is_dictionary(arrow_type):
        return to_values(array.dictionary_decode())
    if types.is_fixed_size_list(arrow_type):
        starts = np.arange(len(array), dtype=np.int64) * arrow_type.list_size
        items = _fixed_size_items(array)
        return _with_nulls(_list_values(items, starts, starts + arrow_type.list_size), array)
    if types.is_list(arrow_type) or types.is_large_list(arrow_type):
        offsets = to_dense(array.offsets).astype(np.int64)
        first = int(offsets[0])
        items = array.values.slice(first, int(offsets[-1]) - first)
        return _with_nulls(_list_values(items, offsets[:-1] - first, offsets[1:] - first), array)
    if types.is_struct(arrow_type):
        names = [field.name for field in arrow_type]
        columns = [to_values(column) for column in array.flatten()]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return _with_nulls(rows or [{} for _ in range(len(array))], array)
    if dense_of(arrow_type) is not None:
        return _with_nulls(list(to_dense(array)), array)
    return array.to_pylist()


def _list_values(items: ArrowArray, starts: Indices, stops: Indices) -> list[Element]:
    """Return the items of each list: as an array if they are numbers without nulls."""
    bounds = list(zip(starts.tolist(), stops.tolist(), strict=True))
    if dense_of(items.type) is None:
        values = to_values(items)
        return [values[start:stop] for start, stop in bounds]
    dense = to_dense(items).copy()
    rows: list[Element] = [dense[start:stop] for start, stop in bounds]
    is_null = null_rows(items)
    if is_null is not None:
        num_before = np.append(0, np.cumsum(is_null))
        values = to_values(items)
        for row in np.flatnonzero(num_before[stops] > num_before[starts]).tolist():
            rows[row] = values[starts[row] : stops[row]]
    return rows


def _tensor_values(array: ArrowArray) -> list[Element]:
    """Return tensors; one that contains a null becomes the list of its values, as stored."""
    rows: list[Element] = list(np.array(to_dense(array)))
    is_null = null_rows(array)
    if is_null is not None:
        stored = to_values(array.storage)
        for row in np.flatnonzero(is_null).tolist():
            rows[row] = stored[row]
    return rows


def _with_nulls(values: list[Element], array: ArrowArray) -> list[Element]:
    """Replace the values at nulls of `array` by `None`."""
    if array.null_count:
        for row in np.flatnonzero(to_dense(array.is_null())).tolist():
            values[row] = None
    return values


def _fixed_size_items(array: ArrowArray) -> ArrowArray:
    """Return the items of fixed-size lists, including those of null lists."""
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def _axes(tensor_type: ArrowType) -> Sequence[int]:
    return tensor_type.permutation or range(len(tensor_type.shape))


@contextmanager
def translate_arrow_errors(path: str, format_name: str) -> Generator[None]:
    """Raise errors of pyarrow as errors about a file that is damaged or not supported.

    Args:
        path: The file that pyarrow reads.
        format_name: What the file is, for the message, such as "Parquet file".
    """
    pa = load_pyarrow("Arrow data")
    try:
        yield
    except (GristmillError, MemoryError):  # raised by our file objects, which pyarrow calls
        raise
    except pa.ArrowNotImplementedError as error:
        raise FormatError(
            f"pyarrow {pa.__version__} cannot read the {format_name}: {_first_line(error)}. "
            "Install a newer version, or write the file again.",
            path=path,
        ) from error
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise as_system_error(error, path) from error
        raise CorruptFileError(
            f"The {format_name} is damaged or truncated: {_first_line(error)}. Copy or write it "
            "again.",
            path=path,
        ) from error


def as_system_error(error: OSError, path: str) -> FileError:
    """Return the error for a limit of the system, such as too many threads: the file is intact."""
    if isinstance(error, FileError):
        return error
    return FileError(
        f"The system does not let pyarrow read the file: {error.strerror or error}. Check the "
        "limits of this process, for example with `ulimit -a`.",
        path=path,
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")

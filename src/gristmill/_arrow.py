"""What a value in an Arrow column is as an element, by the type of the column alone.

    number, bool, date, time         NumPy scalar, of one dtype for the whole column
    fixed-size list, tensor of such  array, all of one shape
    list of such                     array, each as long as it is
    text, binary                     str, bytes
    struct                           dict
    list of anything else            list
    dictionary-encoded               what it stands for
    null                             None; numbers among which there are nulls are a list
    anything else                    what pyarrow makes of it

A timestamp is an instant, in UTC if its column has a time zone, and a time of the day the time
since midnight: `datetime64` and `timedelta64` keep nanoseconds, which Python's own types lose.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill._extras import load_extra
from gristmill.errors import CorruptFileError, FormatError, GristmillError
from gristmill.types import Indices

_FEW = 8


class Dense(NamedTuple):
    """What the values of a column are in NumPy, if they all have one dtype and one shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """How much one value takes."""
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


def load_pyarrow(wanted_by: str, module: str = "pyarrow") -> Any:
    """Import pyarrow, or a module of it."""
    return load_extra(module, extra="parquet", wanted_by=wanted_by)


def dense_of(kind: Any) -> Dense | None:
    """Tell what the values of an Arrow type are in NumPy, or that they are not numbers.

    >>> import pyarrow as pa
    >>> dense_of(pa.list_(pa.float32(), 16))
    Dense(dtype=dtype('float32'), shape=(16,))
    """
    pa = load_pyarrow("Arrow data")
    types = pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return Dense(np.dtype(kind.to_pandas_dtype()), ())
    if types.is_timestamp(kind):
        return Dense(np.dtype(f"datetime64[{kind.unit}]"), ())
    if types.is_date(kind):
        return Dense(np.dtype("datetime64[D]" if types.is_date32(kind) else "datetime64[ms]"), ())
    if types.is_duration(kind) or types.is_time(kind):
        return Dense(np.dtype(f"timedelta64[{kind.unit}]"), ())
    if types.is_fixed_size_list(kind):
        inner = dense_of(kind.value_type)
        return inner and Dense(inner.dtype, (kind.list_size, *inner.shape))
    if isinstance(kind, pa.FixedShapeTensorType):
        inner = dense_of(kind.value_type)
        shape = tuple(kind.shape[axis] for axis in _axes(kind))
        return inner and Dense(inner.dtype, shape)
    if isinstance(kind, pa.BaseExtensionType):
        return dense_of(kind.storage_type)
    return None


def is_text(kind: Any) -> bool:
    """Tell text and bytes, of which NumPy can hold the Python objects."""
    types = load_pyarrow("Arrow data").types
    return (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def to_objects(array: Any) -> NDArray[Any] | None:
    """Give texts or bytes as an array of Python objects, nulls as None.

    `None` where a text is not UTF-8, which concerns only those who want that one.

    >>> import pyarrow as pa
    >>> to_objects(pa.array(["a", None]))
    array(['a', None], dtype=object)
    """
    objects: NDArray[Any] = np.empty(len(array), object)
    try:
        objects[:] = array.to_pylist()  # pyarrow's `to_numpy` would import pandas for it
    except UnicodeDecodeError:
        return None
    return objects


def to_dense(array: Any) -> NDArray[Any]:
    """View an Arrow array of a dense type as a NumPy array; where there are nulls, is anything.

    >>> import pyarrow as pa
    >>> to_dense(pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))).tolist()
    [[1, 2], [3, 4]]
    """
    pa = load_pyarrow("Arrow data")
    kind = array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        flat = to_dense(array.storage).reshape(len(array), *kind.shape)
        return flat.transpose(0, *(axis + 1 for axis in _axes(kind)))
    if isinstance(kind, pa.BaseExtensionType):
        return to_dense(array.storage)
    if pa.types.is_fixed_size_list(kind):
        inner = to_dense(_items(array))
        return inner.reshape(len(array), kind.list_size, *inner.shape[1:])
    dense = dense_of(kind)
    assert dense is not None
    if not len(array):  # may have no memory at all
        return np.empty(0, dense.dtype)
    _, data = array.buffers()
    if kind.bit_width == 1:
        first = array.offset // 8
        packed = np.frombuffer(data, np.uint8, (array.offset + len(array) + 7) // 8 - first, first)
        skipped = array.offset % 8
        bits = np.unpackbits(packed, bitorder="little")
        return bits[skipped : skipped + len(array)].view(np.bool_)
    stored = dense.dtype if kind.bit_width == dense.dtype.itemsize * 8 else np.dtype(np.int32)
    values = np.frombuffer(data, stored, len(array), array.offset * stored.itemsize)
    return values if stored == dense.dtype else values.astype(np.int64).view(dense.dtype)


def null_rows(array: Any) -> NDArray[np.bool_] | None:
    """Tell for each value of a dense type whether it is null or holds one; None if no value is."""
    pa = load_pyarrow("Arrow data")
    if isinstance(array.type, pa.BaseExtensionType):
        return null_rows(array.storage)
    own = to_dense(array.is_null()) if array.null_count else None
    if pa.types.is_fixed_size_list(array.type) and array.type.list_size:
        inner = null_rows(_items(array))
        if inner is not None:
            within: NDArray[np.bool_] = np.logical_or.reduce(inner.reshape(len(array), -1), axis=1)
            return within if own is None else own | within
    return own


def pick(array: Any, within: Indices, *, may_share: bool) -> list[Any]:
    """Give some values of an Arrow array, in pieces; as views of it, if that may be and pays."""
    if may_share:
        if len(within) <= _FEW:  # a call of `take` costs as much as some slices
            return [array.slice(index, 1) for index in within.tolist()]
        if within[-1] - within[0] == len(within) - 1 and (np.diff(within) == 1).all():
            return [array.slice(int(within[0]), len(within))]
    return [take(array, within)]


def take(array: Any, within: Indices) -> Any:
    """Give some values of an Arrow array, copied.

    >>> import pyarrow as pa
    >>> take(pa.array(["a", "b", "c"]), np.array([2, 0])).to_pylist()
    ['c', 'a']
    """
    pa = load_pyarrow("Arrow data")
    memory = pa.py_buffer(np.ascontiguousarray(within, np.int64))  # `pa.array` imports pandas
    return array.take(pa.Array.from_buffers(pa.int64(), len(within), [None, memory]))


def join(arrays: Sequence[Any]) -> Any:
    """Put Arrow arrays of one type one after the other; texts of over 2 GB get longer offsets."""
    if len(arrays) == 1:
        return arrays[0]
    pa = load_pyarrow("Arrow data")
    if pa.types.is_dictionary(arrays[0].type):  # each has a dictionary of its own
        arrays = [array.dictionary_decode() for array in arrays]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid:
        kind = arrays[0].type
        large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind)
        if large is None and pa.types.is_list(kind):
            large = pa.large_list(kind.value_field)
        if large is None:
            raise
        return pa.concat_arrays([array.cast(large) for array in arrays])


def to_values(array: Any) -> list[Any]:
    """Give the values of an Arrow array, one by one, with memory that belongs to nobody else.

    >>> import pyarrow as pa
    >>> to_values(pa.array([1, None], pa.int8())), to_values(pa.array([{"a": "b"}]))
    ([np.int8(1), None], [{'a': 'b'}])
    """
    pa = load_pyarrow("Arrow data")
    types, kind = pa.types, array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensors(array)
    if isinstance(kind, pa.BaseExtensionType):
        return to_values(array.storage)
    if types.is_dictionary(kind):
        return to_values(array.dictionary_decode())
    if types.is_fixed_size_list(kind):
        starts = np.arange(len(array), dtype=np.int64) * kind.list_size
        return _with_nulls(_runs(_items(array), starts, starts + kind.list_size), array)
    if types.is_list(kind) or types.is_large_list(kind):
        offsets = to_dense(array.offsets).astype(np.int64)
        first = int(offsets[0])
        items = array.values.slice(first, int(offsets[-1]) - first)
        return _with_nulls(_runs(items, offsets[:-1] - first, offsets[1:] - first), array)
    if types.is_struct(kind):
        names = [field.name for field in kind]
        columns = [to_values(column) for column in array.flatten()]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return _with_nulls(rows or [{} for _ in range(len(array))], array)
    if dense_of(kind) is not None:
        return _with_nulls(list(to_dense(array)), array)
    return array.to_pylist()


def _runs(items: Any, starts: Indices, stops: Indices) -> list[Any]:
    """Give items from start to stop for each row: as an array if they are numbers and all there."""
    bounds = list(zip(starts.tolist(), stops.tolist(), strict=True))
    if dense_of(items.type) is None:
        values = to_values(items)
        return [values[start:stop] for start, stop in bounds]
    dense = to_dense(items).copy()
    rows: list[Any] = [dense[start:stop] for start, stop in bounds]
    holes = null_rows(items)
    if holes is not None:
        before = np.append(0, np.cumsum(holes))
        values = to_values(items)
        for row in np.flatnonzero(before[stops] > before[starts]).tolist():
            rows[row] = values[starts[row] : stops[row]]
    return rows


def _tensors(array: Any) -> list[Any]:
    """Give tensors; one with a null inside is the list of its values, as it is stored."""
    rows: list[Any] = list(np.array(to_dense(array)))
    holes = null_rows(array)
    if holes is not None:
        stored = to_values(array.storage)
        for row in np.flatnonzero(holes).tolist():
            rows[row] = stored[row]
    return rows


def _with_nulls(values: list[Any], array: Any) -> list[Any]:
    if array.null_count:
        for row in np.flatnonzero(to_dense(array.is_null())).tolist():
            values[row] = None
    return values


def _items(array: Any) -> Any:
    """Give what is in the lists of one size, those that are null included."""
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def _axes(kind: Any) -> Sequence[int]:
    return kind.permutation or range(len(kind.shape))


@contextmanager
def told_as_ours(path: str, what: str) -> Generator[None]:
    """Tell pyarrow's errors as ours: a file of the right kind that it cannot read is damaged."""
    pa = load_pyarrow("Arrow data")
    try:
        yield
    except (GristmillError, MemoryError):  # from our own files, through pyarrow and back
        raise
    except pa.ArrowNotImplementedError as error:
        raise FormatError(
            f"This version of pyarrow ({pa.__version__}) cannot read the {what}: {_said(error)}. "
            "Install a newer one, or write the file anew.",
            path=path,
        ) from error
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise CorruptFileError(
            f"The {what} is damaged or cut short: {_said(error)}. Copy it anew, or write it anew.",
            path=path,
        ) from error


def _said(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")

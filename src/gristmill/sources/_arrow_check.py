"""Whether the memory of an Arrow array may be followed where it points to.

pyarrow does not look, and a damaged offset ends the process. It can check all there is, texts
included, which reads all of a mapped file; offsets alone are a small part of it.
"""

from typing import Any

import numpy as np

from gristmill._arrow import dense_of, load_pyarrow


def check_offsets(array: Any) -> None:
    """Raise `ValueError` where an offset points outside of what it is an offset into.

    >>> import pyarrow as pa
    >>> check_offsets(pa.array([["a"], ["b", "c"]]))
    """
    array.validate()  # that there is memory for so many values
    types, kind = load_pyarrow("Arrow data").types, array.type
    if not len(array) or dense_of(kind) is not None or types.is_null(kind):
        return
    if isinstance(kind, load_pyarrow("Arrow data").BaseExtensionType):
        check_offsets(array.storage)
    elif types.is_string(kind) or types.is_binary(kind):
        _check(array, np.int32, array.buffers()[2])
    elif types.is_large_string(kind) or types.is_large_binary(kind):
        _check(array, np.int64, array.buffers()[2])
    elif types.is_list(kind) or types.is_large_list(kind):
        _check(array, np.int32 if types.is_list(kind) else np.int64, array.values)
        check_offsets(array.values)
    elif types.is_struct(kind):
        for number in range(kind.num_fields):
            check_offsets(array.field(number))
    elif types.is_fixed_size_list(kind):
        check_offsets(array.values)
    else:
        array.validate(full=True)


def _check(array: Any, dtype: Any, target: Any) -> None:
    width = np.dtype(dtype).itemsize
    offsets = np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * width)
    end = 0 if target is None else len(target)
    if offsets[0] < 0 or offsets[-1] > end or (np.diff(offsets) < 0).any():
        raise ValueError("an offset points outside of the data")

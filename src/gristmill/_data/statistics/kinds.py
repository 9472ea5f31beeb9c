"""Sort the values of a column by what can be computed from them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

import numpy as np

from gristmill._data.statistics.leaves import Column
from gristmill.types import AnyArray, Leaf, SupportsArray

_MAX_STACKED_BYTES = 2**16
"""Larger arrays are summarised one by one: copying them would cost more than the calls."""

LeftOut: TypeAlias = Literal["strings", "bytes", "complex numbers", "times", "other objects"]
"""What values are that have no mean."""

_ARRAY_KINDS: dict[str, LeftOut] = {
    "U": "strings",
    "T": "strings",
    "S": "bytes",
    "c": "complex numbers",
    "m": "times",
    "M": "times",
}


@final
@dataclass(kw_only=True)
class Values:
    """The values of a column in one block, by kind."""

    num_null: int = 0
    arrays: list[AnyArray] = field(default_factory=list["AnyArray"])
    """Numbers and booleans, with a first axis that counts the values."""
    others: list[AnyArray] = field(default_factory=list["AnyArray"])
    """Arrays of times or complex numbers, in the same form."""
    strings: list[str] = field(default_factory=list[str])
    blobs: list[bytes] = field(default_factory=list[bytes])
    lists: list[list[Leaf]] = field(default_factory=list["list[Leaf]"])
    objects: list[object] = field(default_factory=list[object])
    """Everything else."""


def sort_values(column: Column) -> Values:
    """Return the values of a column by kind.

    >>> values = sort_values([1, 2.5, None, "a"])
    >>> values.arrays, values.strings, values.num_null
    ([array([1]), array([2.5])], ['a'], 1)
    """
    values = Values()
    if not isinstance(column, list):
        _add_array(values, column)
        return values
    by_type: dict[type[Any], list[Leaf]] = {}
    for value in column:
        by_type.setdefault(_type_of(value), []).append(value)
    arrays: dict[tuple[str, tuple[int, ...]], list[AnyArray]] = {}
    for kind, several in by_type.items():
        if issubclass(kind, np.ndarray | np.generic):
            _group(arrays, [np.asarray(value) for value in several])
        elif not _add_builtin(values, kind, several):
            converted = list(map(_as_array, several))
            _group(arrays, (array for array in converted if array is not None))
            values.objects += [
                value for value, array in zip(several, converted, strict=True) if array is None
            ]
    for same in arrays.values():
        for stacked in _stacks(same):
            _add_array(values, stacked)
    return values


def count_left_out(values: Values) -> Counter[LeftOut]:
    """Return how many values have no mean, by what they are. The items of lists are counted apart.

    >>> dict(count_left_out(sort_values(["a", b"b", 1j, 2.0, None])))
    {'strings': 1, 'bytes': 1, 'complex numbers': 1}
    """
    counts = Counter[LeftOut]()
    counts["strings"] += len(values.strings)
    counts["bytes"] += len(values.blobs)
    for array in values.others:
        counts[_ARRAY_KINDS.get(array.dtype.kind, "other objects")] += len(array)
    for value in values.objects:
        counts["complex numbers" if isinstance(value, complex) else "other objects"] += 1
    return +counts


def _type_of(value: object) -> type:
    return type(value)


def _add_builtin(values: Values, kind: type, several: list[Leaf]) -> bool:
    """Add values of a type of Python; return whether it is one."""
    if kind is type(None):
        values.num_null += len(several)
    elif issubclass(kind, bool | int | float):
        _add_array(values, _number_array(several))
    elif issubclass(kind, str):
        values.strings += several
    elif issubclass(kind, bytes):
        values.blobs += several
    elif issubclass(kind, list):
        values.lists += several
    else:
        return False
    return True


def _group(
    groups: dict[tuple[str, tuple[int, ...]], list[AnyArray]], arrays: Iterable[AnyArray]
) -> None:
    """Add arrays to those of the same type and shape."""
    for array in arrays:
        groups.setdefault((array.dtype.str, array.shape), []).append(array)


def _add_array(values: Values, array: AnyArray) -> None:
    if array.dtype.kind in "biuf":
        values.arrays.append(array)
    elif array.dtype.kind == "U" and array.ndim == 1:
        values.strings += array.tolist()
    elif array.dtype.kind == "S" and array.ndim == 1:
        values.blobs += array.tolist()
    else:
        values.others.append(array)


def _number_array(numbers: list[Any]) -> AnyArray:
    """Return Python numbers as an array: integers of more than 64 bits as floats."""
    try:
        array = np.asarray(numbers)
    except OverflowError:  # depending on the version of NumPy
        array = np.asarray(numbers, object)
    if array.dtype.kind in "biuf":
        return array
    return np.array([_as_float(number) for number in numbers])


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _as_array(value: object) -> AnyArray | None:
    """Return an object that NumPy can convert, such as a `jax.Array`, as an array."""
    if not isinstance(value, SupportsArray) or isinstance(value, type):
        return None
    try:
        array = np.asarray(value)
    except Exception:  # of another library: such as a tensor on a device
        return None
    return None if array.dtype.hasobject else array


def _stacks(arrays: list[AnyArray]) -> Iterator[AnyArray]:
    if arrays[0].nbytes > _MAX_STACKED_BYTES or arrays[0].dtype.hasobject:
        for array in arrays:
            yield array[None]
    else:
        yield np.stack(arrays)

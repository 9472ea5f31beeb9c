"""Stacking of elements into one batch, leaf by leaf along a new first axis.

The work is done per leaf, never per element: a list of dicts becomes a dict of lists, and each list
one array. Types promote as in NumPy. Silent conversions of NumPy that lose information (numbers to
strings, large integers to floats, NUL bytes at the end of a string) are avoided or refused.
"""

from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import cast

import numpy as np

from gristmill._base.trees.columns import Allocate
from gristmill._base.trees.tree import builder, children, jax_structure, with_sorted_keys
from gristmill.errors import BatchError, StructureError
from gristmill.types import AnyArray, Element, Leaf, SupportsArray, Tree

_SCALARS = (bool, int, float, complex, str, bytes, np.generic)
LEAF_TYPES = {np.ndarray, bool, int, float, complex, str, bytes}
"""Types that are known to have no children."""

_SMALL_BYTES = 16_384

_MAX_CHANNELS = 4
"""Arrays whose last axis is not longer are copied channel by channel, if they are not contiguous.
NumPy would copy a flipped image in a loop over its pixels, a few bytes each: 227 us for 224x224x3
bytes instead of 48."""


def stack_leaves(leaves: Sequence[Leaf], path: str, allocate: Allocate = np.empty) -> AnyArray:
    """Return one array with an item for each leaf; `path` names them in errors.

    >>> stack_leaves([1, 2.5], "batch").tolist()
    [1.0, 2.5]
    """
    if isinstance(leaves[0], int | float):
        numbers = _stack_numbers(leaves)
        if numbers is not None:
            return numbers
    kinds = set(map(type, leaves))
    if kinds in ({str}, {bytes}):
        return _stack_strings(leaves)
    if kinds == {np.ndarray}:
        return _stack_arrays(leaves, path, allocate)
    if all(issubclass(kind, _SCALARS) for kind in kinds):
        return _promote(leaves, path)
    if type(None) in kinds:
        raise _leaf_mismatch(leaves, path)
    return _stack_arrays([_as_array(leaf, path) for leaf in leaves], path, allocate)


def _stack_strings(leaves: Sequence[Leaf]) -> AnyArray:
    """Stack strings or bytes; as objects if NumPy would drop NULs at the end of one."""
    stacked = np.array(leaves)
    if int(np.char.str_len(stacked).sum()) == sum(map(len, leaves)):
        return stacked
    return _as_objects(leaves)


def _stack_numbers(leaves: Sequence[Leaf]) -> AnyArray | None:
    """Stack Python numbers; return `None` if some leaves are something else."""
    try:
        stacked = np.array(leaves)
    except (ValueError, TypeError):
        return None
    kind = stacked.dtype.kind
    is_plain = kind in "biu" or (kind == "f" and isinstance(leaves[0], float))
    return stacked if is_plain and stacked.ndim == 1 else None


def _stack_arrays(arrays: Sequence[AnyArray], path: str, allocate: Allocate) -> AnyArray:
    first, count = arrays[0], len(arrays)
    if list(map(attrgetter("shape"), arrays)).count(first.shape) < count:
        raise _leaf_mismatch(arrays, path)
    is_one_type = list(map(attrgetter("dtype"), arrays)).count(first.dtype) == count
    if not is_one_type or first.dtype.kind not in "biufc" or not first.dtype.isnative:
        return _promote(arrays, path)
    if first.nbytes <= _SMALL_BYTES:
        try:  # joining buffers takes a quarter of the time of np.concatenate, a tenth of np.stack's
            joined = bytearray().join(cast("Sequence[memoryview]", arrays))
            return np.frombuffer(joined, first.dtype).reshape(count, *first.shape)
        except (BufferError, TypeError, ValueError):
            pass  # not contiguous, or empty
    out = allocate((count, *first.shape), first.dtype)
    if first.ndim > 1 and 1 < first.shape[-1] <= _MAX_CHANNELS and any(map(_is_scattered, arrays)):
        for row, array in zip(out, arrays, strict=True):
            _copy_image(row, array)
        return out
    return np.stack(arrays, out=out)


def _is_scattered(array: AnyArray) -> bool:
    """Return whether the channels of a pixel are not followed by those of the next one."""
    return array.strides[-2] != array.shape[-1] * array.itemsize


def _copy_image(out: AnyArray, array: AnyArray) -> None:
    if not _is_scattered(array):
        out[...] = array
        return
    for channel in range(array.shape[-1]):
        out[..., channel] = array[..., channel]


def _promote(leaves: Sequence[Leaf], path: str) -> AnyArray:
    """Stack scalars, or arrays of one shape and several types, as NumPy promotes them."""
    try:
        stacked = np.array(leaves)
    except ValueError:
        raise _leaf_mismatch(leaves, path) from None
    kind = stacked.dtype.kind
    if not stacked.dtype.isnative:
        stacked = stacked.astype(stacked.dtype.newbyteorder("="))
    if kind in "biuc":
        return stacked
    dtypes = {np.asarray(leaf).dtype for leaf in leaves}
    if kind != "f":
        return _stack_other(stacked, leaves, {dtype.kind for dtype in dtypes}, path)
    if all(dtype.kind in "biu" for dtype in dtypes):
        if all(isinstance(leaf, int) and leaf >= 0 for leaf in leaves):
            return np.array(leaves, dtype=np.uint64)
        raise BatchError(
            f"{path}: integers that no 64-bit integer type holds together. "
            "Convert them to one type before batching."
        )
    return stacked


def _stack_other(stacked: AnyArray, leaves: Sequence[Leaf], kinds: set[str], path: str) -> AnyArray:
    """Stack strings, times or objects, if all leaves are of one kind."""
    if stacked.dtype.kind == "O" and all(map(_is_integer, leaves)):
        return stacked  # too large for 64 bits, so they stay Python integers
    if len(kinds) > 1 or (stacked.dtype.kind == "O" and "O" not in kinds):
        raise _leaf_mismatch(leaves, path)
    if stacked.dtype.kind not in "USO" or stacked.ndim > 1:
        return stacked
    if stacked.dtype.kind != "O" and not any(map(_ends_in_nul, leaves)):
        return stacked
    return _as_objects(leaves)


def _as_objects(leaves: Sequence[Leaf]) -> AnyArray:
    objects = np.empty(len(leaves), dtype=object)
    for row, leaf in enumerate(leaves):  # one by one: NumPy would unpack a sequence
        objects[row] = leaf.item() if isinstance(leaf, np.ndarray) else leaf
    return objects


def _is_integer(leaf: Leaf) -> bool:
    return isinstance(leaf, int | np.integer)


def _ends_in_nul(leaf: Leaf) -> bool:
    """Return whether NumPy would shorten a string: its strings end at the last non-NUL."""
    return isinstance(leaf, str | bytes) and leaf[-1:] in ("\0", b"\0")


def _as_array(leaf: Leaf, path: str) -> AnyArray:
    if isinstance(leaf, np.ma.MaskedArray):
        raise BatchError(
            f"{path}: a masked array would lose its mask. Call `.filled()` before batching."
        )
    if isinstance(leaf, (SupportsArray, Sequence, *_SCALARS)):  # such as `range`, `bytearray`
        try:
            return np.asarray(leaf)
        except Exception as error:
            raise BatchError(
                f"{path}: {leaf!r} cannot be converted to an array: {error}"
            ) from error
    holder = np.empty((), dtype=object)
    holder[()] = leaf
    return holder


def _leaf_mismatch(leaves: Sequence[Leaf], path: str) -> BatchError:
    """Return the error for the first leaf that differs from leaf 0."""
    descriptions = [_shape_or_type(leaf) for leaf in leaves]
    row = next((row for row, what in enumerate(descriptions) if what != descriptions[0]), 0)
    shapes = [np.shape(leaf) for leaf in (leaves[0], leaves[row]) if leaf is not None]
    if len(set(shapes)) > 1:
        return BatchError(
            f"{path}: shapes {shapes[0]} and {shapes[1]}. Crop, resize or pad to one shape before "
            "batching, as `pad_batch` does, or pass a `batch_fn`. Expected all input elements to "
            f"have the same structure but got: {descriptions[0]} and {descriptions[row]}.",
            row=row,
        )
    return BatchError(
        f"{path}: {descriptions[0]} and {descriptions[row]}. Convert all records to one type "
        "before batching.",
        row=row,
    )


def _shape_or_type(leaf: Leaf) -> str:
    if isinstance(leaf, np.ndarray):
        array = cast("AnyArray", leaf)
        return f"{array.dtype}{list(array.shape)}"
    return "None" if leaf is None else type(leaf).__name__


def stack(rows: Sequence[Element], allocate: Allocate = np.empty) -> Tree:
    """Return a tree like each of `rows`, with its leaves stacked into new arrays.

    The keys of dicts are sorted, as in Grain. `allocate(shape, dtype)` provides the memory of large
    arrays.

    >>> stack([{"x": 1, "y": "a"}, {"x": 2, "y": "bc"}])
    {'x': array([1, 2]), 'y': array(['a', 'bc'], dtype='<U2')}
    """
    if rows[0] is None:
        raise _none(0)
    try:
        return with_sorted_keys(_stack(rows, "batch", allocate))
    except BatchError:
        for row, element in enumerate(rows):
            if element is None:
                raise _none(row) from None
        raise


def _stack(nodes: Sequence[Tree], path: str, allocate: Allocate) -> Tree:
    first = nodes[0]
    inner = None if type(first) in LEAF_TYPES else children(first)
    if inner is None:
        return stack_leaves(nodes, path, allocate)
    check_types(nodes, path)
    steps = inner[0]
    columns = transpose(nodes, steps, path)
    return builder(first)(
        [_stack(column, path + step, allocate) for step, column in zip(steps, columns, strict=True)]
    )


def check_types(nodes: Sequence[Tree], path: str) -> None:
    """Raise if trees that are to be stacked are not of one type."""
    if len(set(map(type, nodes))) > 1:
        raise _structure_mismatch(nodes, path, [_kind(node) for node in nodes])


def transpose(nodes: Sequence[Tree], steps: list[str], path: str) -> list[Sequence[Tree]]:
    """Turn many nodes with the same children into a list of each child, children in order."""
    first = nodes[0]
    if first is None:
        return []
    if isinstance(first, Mapping):
        keys = list(cast("Mapping[Hashable, Tree]", first))
        # A defaultdict would create missing keys.
        creates_keys = type(cast(object, first)) is not dict
        try:
            missing = creates_keys and any(node.keys() != set(keys) for node in nodes)
            if not missing and len(set(map(len, nodes))) == 1:
                return [list(map(itemgetter(key), nodes)) for key in keys]
        except KeyError:
            pass
        raise _structure_mismatch(nodes, path, [f"keys {sorted(map(str, node))}" for node in nodes])
    if isinstance(first, list | tuple):
        try:
            return list(zip(*nodes, strict=True)) if steps else []
        except ValueError:
            descriptions = [f"a {_kind(node)} of {len(node)}" for node in nodes]
            raise _structure_mismatch(nodes, path, descriptions) from None
    structures = [jax_structure(node) for node in nodes]
    if len(set(structures)) > 1:
        raise _structure_mismatch(nodes, path, list(map(str, structures)))
    values = [(children(node) or ([], []))[1] for node in nodes]
    return [list(column) for column in zip(*values, strict=True)]


def _none(row: int) -> BatchError:
    return BatchError(
        "batch: a record is None. Filter such records out before batching, or replace them.",
        row=row,
    )


def _structure_mismatch(
    nodes: Sequence[Tree], path: str, descriptions: list[str]
) -> StructureError:
    row = next(row for row, what in enumerate(descriptions) if what != descriptions[0])
    if nodes[0] is None or nodes[row] is None:
        remedy = "Replace nulls in a map, for example by -1, or filter such elements out."
    elif isinstance(nodes[0], Mapping) and isinstance(nodes[row], Mapping):
        remedy = "Let a map return the same keys for all elements."
    else:
        remedy = "Convert lists of varying length to arrays, and pad them with `pad_batch`."
    return StructureError(
        f"{path}: {descriptions[0]} and {descriptions[row]}. {remedy} Record structures do not "
        "match. Expected all input elements to have the same structure but got: "
        f"{nodes[0]!r:.80} and {nodes[row]!r:.80}.",
        row=row,
    )


def _kind(node: Tree) -> str:
    return "None" if node is None else type(node).__name__

"""Batches of arrays of unequal length: each is padded, and then they are stacked."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, Literal, cast, final

import numpy as np

from gristmill._base.padding_count import count_padding
from gristmill._base.trees.columns import Allocate
from gristmill._base.trees.tree import builder, children, with_sorted_keys
from gristmill._data.batching.pad_options import (
    Keys,
    check_flag,
    check_keys,
    check_leaves,
    check_option,
    check_side,
    check_size,
    child_keys,
    option_at,
)
from gristmill._data.batching.stack import LEAF_TYPES, check_types, stack, stack_leaves, transpose
from gristmill.errors import BatchError, PlanError
from gristmill.types import AnyArray, AnyDType, Element, Leaf, SupportsArray, Tree

_OPTIONS_OF_KEYS = ("length", "multiple_of", "value", "side", "add_lengths", "add_mask")
_NUMBERS = (bool, int, float, complex, np.generic)


@final
@dataclass(frozen=True, kw_only=True)
class PadBatch:
    """A batch function that pads arrays of unequal length along their first axis.

    Numbers, strings and arrays without axes are stacked as in any batch. A list of numbers is
    padded like an array. Pass one value to an option for all arrays, or a dict with a value for
    some of them, in the structure of the elements.

    >>> pad = PadBatch(multiple_of=4, add_mask=True)
    >>> batch = pad([{"tokens": [7, 8, 9], "label": 0}, {"tokens": [5], "label": 1}])
    >>> batch["tokens"]
    array([[7, 8, 9, 0],
           [5, 0, 0, 0]])
    >>> batch["tokens_mask"].sum(axis=1), batch["label"]
    (array([3, 1]), array([0, 1]))

    Args:
        leaves: The keys of the arrays to pad. Others must have equal shapes. By default all arrays
            are padded.
        length: The length to pad to. A longer array is an error. By default the length of the
            longest array in the batch.
        multiple_of: Pad to the next multiple of this number, if there is no `length`.
        value: The value of padding. By default zero, or an empty string.
        side: Where to put padding: on the "right" of the values, or on the "left".
        add_lengths: Whether to add the lengths of the arrays, as `<key>_length`.
        add_mask: Whether to add a mask, as `<key>_mask`, which is true where there is no padding.
            Beside an array that is not in a dict, such as an element that is one array, lengths
            and mask form a tuple with it.

    Raises:
        PlanError: An option is out of range, or contradicts another one.
        PlanTypeError: An option has the wrong type.
    """

    leaves: Collection[Hashable] | Hashable | None = None
    length: int | Mapping[Any, Any] | None = None
    multiple_of: int | Mapping[Any, Any] | None = None
    value: Any = None
    side: Literal["left", "right"] | Mapping[Any, Any] = "right"
    add_lengths: bool | Mapping[Any, Any] = False
    add_mask: bool | Mapping[Any, Any] = False

    def __post_init__(self) -> None:
        checked = {
            "leaves": check_leaves(self.leaves),
            "length": check_option("length", self.length, check_size),
            "multiple_of": check_option("multiple_of", self.multiple_of, check_size),
            "side": check_option("side", self.side, check_side),
            "add_lengths": check_option("add_lengths", self.add_lengths, check_flag),
            "add_mask": check_option("add_mask", self.add_mask, check_flag),
        }
        for name, option in checked.items():
            object.__setattr__(self, name, option)
        if isinstance(self.length, int) and isinstance(self.multiple_of, int):
            raise PlanError(
                "`length` and `multiple_of` contradict each other: a length is fixed, or it is the "
                "next multiple. Pass one of them."
            )

    def __call__(self, elements: Sequence[Element]) -> Tree:
        """Return the batch of some elements."""
        return self.make(elements)

    def make(
        self,
        elements: Sequence[Element],
        *,
        num_rows: int | None = None,
        allocate: Allocate = np.empty,
    ) -> Tree:
        """Return the batch of some elements.

        Args:
            elements: The elements, at least one.
            num_rows: The number of rows of the batch. Rows without an element are padding.
            allocate: Creates the padded arrays from a shape and a dtype.
        """
        rows = len(elements) if num_rows is None else num_rows
        if elements[0] is None:
            return stack(elements)  # its error names the record
        for name in _OPTIONS_OF_KEYS:
            check_keys(name, getattr(self, name), elements[0], "an element")
        if self.leaves is not None and children(elements[0]):
            check_keys("leaves", dict.fromkeys(self._chosen), elements[0], "an element")
        return with_sorted_keys(_Padding(self, rows, allocate).of_nodes(elements, (), "batch"))

    def is_padded(self, keys: Keys) -> bool:
        """Return whether the array at some keys is padded.

        Args:
            keys: The keys that lead to the array in an element.
        """
        return self.leaves is None or not keys or keys[0] in self._chosen

    @property
    def _chosen(self) -> Collection[Hashable]:
        return cast("Collection[Hashable]", self.leaves)

    def target(self, keys: Keys, longest: int) -> int:
        """Return the length to pad the array at some keys to.

        Args:
            keys: The keys that lead to the array in an element.
            longest: The length of the longest array in the batch.
        """
        length = option_at(self.length, keys)
        multiple = option_at(self.multiple_of, keys)
        if length is not None:
            return length
        return longest if multiple is None else -(-longest // multiple) * multiple


def pad_batch(elements: Sequence[Element], **options: Any) -> Tree:
    """Return a batch of elements whose arrays have unequal lengths.

    It is a batch function: pass it as `batch_fn`, or `PadBatch(...)` if you need options.

    >>> pad_batch([[1, 2, 3], [4]], value=-1)
    array([[ 1,  2,  3],
           [ 4, -1, -1]])

    Args:
        elements: The elements of the batch.
        **options: The arguments of `PadBatch`.

    Raises:
        PlanError: If an option is out of range, or contradicts another one.
        PlanTypeError: If an option has the wrong type.
        BatchError: If an array is longer than `length`, or the elements differ in structure.
    """
    return PadBatch(**options)(elements)


@final
class _Padding:
    """The work of one batch."""

    def __init__(self, options: PadBatch, num_rows: int, allocate: Allocate) -> None:
        self._options = options
        self._num_rows = num_rows
        self._allocate = allocate

    def of_nodes(self, nodes: Sequence[Tree], keys: Keys, path: str) -> Tree:
        """Return the batch of trees that are at some keys of the elements."""
        first = nodes[0]
        is_leaf = type(first) in LEAF_TYPES or _is_list_of_numbers(nodes)
        inner = None if is_leaf else children(first)
        if inner is None:
            return self._of_leaves(nodes, keys, path)
        check_types(nodes, path)
        steps, names = inner[0], child_keys(first)
        columns = transpose(nodes, steps, path)
        values = [
            self.of_nodes(column, (*keys, name), path + step)
            for name, step, column in zip(names, steps, columns, strict=True)
        ]
        if not isinstance(first, Mapping):
            return builder(first)(
                [
                    (value.values, *value.added.values()) if isinstance(value, _Padded) else value
                    for value in values
                ]
            )
        plain = [value.values if isinstance(value, _Padded) else value for value in values]
        made: Any = builder(first)(plain)
        for name, value in zip(names, values, strict=True):
            for kind, array in value.added.items() if isinstance(value, _Padded) else ():
                self._add(made, f"{name}_{kind}", array, path)
        return made

    def _add(self, made: dict[Any, Any], name: str, array: AnyArray, path: str) -> None:
        if name in made:
            raise BatchError(
                f"{path}: padding adds {name!r}, but the elements have it already. Rename it in a "
                "map before."
            )
        made[name] = array

    def _of_leaves(self, leaves: Sequence[Leaf], keys: Keys, path: str) -> Any:
        options = self._options
        arrays = _as_arrays(leaves, path)
        if arrays is None:  # numbers or strings
            return self._with_rows(stack_leaves(leaves, path, self._allocate))
        if not options.is_padded(keys):
            return self._with_rows(self._stacked(arrays, keys, path))
        lengths = list(map(len, arrays))
        target = options.target(keys, max(lengths))
        if max(lengths) > target:
            row = next(row for row, length in enumerate(lengths) if length > target)
            raise BatchError(
                f"{path}: an array has length {lengths[row]}, but is padded to {target}. Cut it in "
                "a map before, or pass a larger length.",
                row=row,
            )
        padded = self._padded(arrays, lengths, target, keys, path)
        added = self._added(lengths, target, keys)
        if not added:
            return padded
        result = _Padded(padded, added)
        return result if keys else (padded, *added.values())

    def _padded(
        self, arrays: Sequence[AnyArray], lengths: list[int], target: int, keys: Keys, path: str
    ) -> AnyArray:
        tail = _tail_of(arrays, path)
        num_values = self._num_rows * target * prod(tail)
        count_padding(num_values, num_values - sum(lengths) * prod(tail))
        if min(lengths) == target and len(arrays) == self._num_rows:
            return stack_leaves(arrays, path, self._allocate)
        dtype = _dtype_of(arrays, path)
        shape = (self._num_rows, target, *tail)
        out = np.empty(shape, dtype) if dtype.hasobject else self._allocate(shape, dtype)
        out[...] = self._fill_value(dtype, keys, path)
        if option_at(self._options.side, keys) == "left":
            for row, array, length in zip(out, arrays, lengths, strict=False):
                row[target - length :] = array
        else:
            for row, array, length in zip(out, arrays, lengths, strict=False):
                row[:length] = array
        return out

    def _added(self, lengths: list[int], target: int, keys: Keys) -> dict[str, AnyArray]:
        options = self._options
        added: dict[str, AnyArray] = {}
        counts = np.zeros(self._num_rows, np.int32)
        counts[: len(lengths)] = lengths
        if option_at(options.add_lengths, keys):
            added["length"] = counts
        if option_at(options.add_mask, keys):
            is_left = option_at(options.side, keys) == "left"
            steps = np.arange(target)[::-1] if is_left else np.arange(target)
            added["mask"] = steps < counts[:, None]
        return added

    def _stacked(self, arrays: Sequence[AnyArray], keys: Keys, path: str) -> AnyArray:
        try:
            return stack_leaves(arrays, path, self._allocate)
        except BatchError as error:
            if not keys or len(set(map(np.shape, arrays))) < 2:
                raise
            raise BatchError(
                f"{error} Arrays are padded only if their key is in `leaves`, and {keys[0]!r} is "
                "not.",
                row=error.row,
            ) from None

    def _with_rows(self, stacked: AnyArray) -> AnyArray:
        """Return an array with rows of zeros after those of the elements."""
        if len(stacked) == self._num_rows:
            return stacked
        shape = (self._num_rows, *stacked.shape[1:])
        out = np.empty(shape, stacked.dtype)
        out[len(stacked) :] = _zero(stacked.dtype)
        out[: len(stacked)] = stacked
        return out

    def _fill_value(self, dtype: AnyDType, keys: Keys, path: str) -> Any:
        value = option_at(self._options.value, keys)
        if value is None:
            return _zero(dtype)
        try:
            with np.errstate(all="ignore"):
                cast_value = np.asarray(value).astype(dtype)
            is_same = bool(cast_value == value) or (value != value and cast_value != cast_value)
        except (TypeError, ValueError, OverflowError):
            is_same = False
        if not is_same:
            raise BatchError(
                f"{path}: the padding {value!r} does not fit into {dtype}. Pass another `value`, "
                "or convert the arrays in a map before."
            )
        return value


@final
class _Padded:
    """A padded array in a dict or a tuple, and what is added beside it."""

    __slots__ = ("added", "values")

    def __init__(self, values: AnyArray, added: dict[str, AnyArray]) -> None:
        self.values = values
        self.added = added


def _zero(dtype: AnyDType) -> Any:
    """Return zero, or an empty string."""
    return None if dtype.hasobject else np.zeros((), dtype)


def _is_list_of_numbers(nodes: Sequence[Tree]) -> bool:
    """Return whether trees are lists of numbers, some of which may be empty."""
    if type(nodes[0]) is not list:
        return False
    if not all(type(node) is list for node in nodes):
        return False
    return all(isinstance(node[0], _NUMBERS) for node in nodes if node)


def _as_arrays(leaves: Sequence[Leaf], path: str) -> Sequence[AnyArray] | None:
    """Return leaves as arrays; `None` if they are numbers, strings or arrays without axes."""
    kinds = set(map(type, leaves))
    if kinds == {np.ndarray}:
        arrays = cast("Sequence[AnyArray]", leaves)
    elif kinds == {list}:
        return _split_lists(leaves, path)
    elif all(isinstance(leaf, SupportsArray) for leaf in leaves):
        arrays = [np.asarray(leaf) for leaf in leaves]
    else:
        return None
    return arrays if all(array.ndim for array in arrays) else None


def _split_lists(lists: Sequence[list[Any]], path: str) -> Sequence[AnyArray]:
    """Return lists of numbers as arrays of one dtype."""
    try:
        numbers = np.asarray(list(chain.from_iterable(lists)))
    except ValueError:  # some items are lists
        numbers = np.empty(0, object)
    if numbers.dtype.kind not in "biufc" or numbers.ndim > 1:
        raise BatchError(
            f"{path}: a list of numbers contains something else. Convert it to an array in a map "
            "before."
        )
    return np.split(numbers, np.cumsum(list(map(len, lists)))[:-1])


def _tail_of(arrays: Sequence[AnyArray], path: str) -> tuple[int, ...]:
    """Return the shape without the first axis, which all arrays must share."""
    tail = arrays[0].shape[1:]
    for row, array in enumerate(arrays):
        if array.shape[1:] != tail:
            raise BatchError(
                f"{path}: shapes {arrays[0].shape} and {array.shape}. Only the first axis is "
                "padded. Crop, resize or pad the others in a map before.",
                row=row,
            )
    return tail


def _dtype_of(arrays: Sequence[AnyArray], path: str) -> AnyDType:
    """Return the dtype that holds the values of all arrays."""
    dtypes = list(dict.fromkeys(array.dtype for array in arrays))
    if len(dtypes) == 1:
        return dtypes[0].newbyteorder("=")
    kinds = {dtype.kind for dtype in dtypes}
    try:
        promoted: AnyDType = np.result_type(*dtypes)
    except TypeError:
        promoted = np.dtype(object)
    is_lossless = kinds <= set("biufc") if promoted.kind in "biufc" else len(kinds) == 1
    if not is_lossless or (promoted.kind == "f" and kinds <= set("biu")):
        row = next(row for row, array in enumerate(arrays) if array.dtype != dtypes[0])
        raise BatchError(
            f"{path}: {dtypes[0]} and {arrays[row].dtype}. Convert all records to one type before "
            "batching.",
            row=row,
        )
    return promoted

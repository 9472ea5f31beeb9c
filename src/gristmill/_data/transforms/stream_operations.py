"""Operations over the order of a stream: rows of batches, windows, and a carried value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from gristmill._base.checks import as_bool, as_int
from gristmill._base.short_repr import short_repr
from gristmill._base.trees.columns import split_rows
from gristmill._base.trees.json_values import copy_value, encode_value
from gristmill._base.trees.tree import leaves_with_paths
from gristmill.errors import BatchError, PlanTypeError
from gristmill.types import Element, Tree


@final
@dataclass(frozen=True)
class Unbatch:
    """Replaces each batch by its rows.

    >>> from gristmill import Batch, DataLoader, SequentialSampler
    >>> operations = [Batch(3), lambda batch: 2 * batch, Unbatch()]
    >>> loader = DataLoader(
    ...     data_source=range(4), sampler=SequentialSampler(4), operations=operations
    ... )
    >>> [int(row) for row in loader]
    [0, 2, 4, 6]
    """


@final
@dataclass(frozen=True)
class Window:
    """Batches of `size` consecutive elements that may overlap.

    >>> from gristmill import DataLoader, SequentialSampler
    >>> loader = DataLoader(
    ...     data_source=range(5), sampler=SequentialSampler(5), operations=[Window(3, stride=2)]
    ... )
    >>> [window.tolist() for window in loader]
    [[0, 1, 2], [2, 3, 4]]

    Args:
        size: The number of elements of a window.
        stride: The distance between the starts of two windows. By default `size`.
        drop_remainder: Whether to drop a last, smaller window of elements that are in no other.
        batch_fn: A function from a list of elements to a window, instead of stacking.

    Raises:
        PlanError: If `size` or `stride` is below 1.
        PlanTypeError: If an argument has the wrong type.
    """

    size: int
    stride: int | None = None
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Any]], Any] | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    def __post_init__(self) -> None:
        size = as_int("size", self.size, minimum=1)
        stride = size if self.stride is None else as_int("stride", self.stride, minimum=1)
        if self.batch_fn is not None and not callable(self.batch_fn):
            raise PlanTypeError(f"`batch_fn` must be callable, got {self.batch_fn!r}.")
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "stride", stride)
        object.__setattr__(self, "drop_remainder", as_bool("drop_remainder", self.drop_remainder))


@final
@dataclass(frozen=True)
class Scan:
    """Maps each element together with a value that is carried from one element to the next.

    The carried value is part of the state.

    >>> from gristmill import DataLoader, SequentialSampler
    >>> total = Scan(lambda total, x: (total + x, total + x), 0)
    >>> loader = DataLoader(
    ...     data_source=range(4), sampler=SequentialSampler(4), operations=[total]
    ... )
    >>> list(loader)
    [0, 1, 3, 6]

    Args:
        function: A function of the carried value and an element, which returns the next carried
            value and an output. It must be deterministic.
        initial: The first carried value: a number, a string, an array, or a dict, list or tuple of
            such values.

    Raises:
        PlanTypeError: If `function` cannot be called, or `initial` cannot be part of a state.
    """

    function: Callable[[Any, Any], tuple[Any, Any]]
    initial: Any

    def __repr__(self) -> str:
        return short_repr(self)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise PlanTypeError(
                "`scan` takes a function of the carried value and an element, got "
                f"{self.function!r:.100}."
            )
        encode_value(self.initial, name="`initial`")
        object.__setattr__(self, "initial", copy_value(self.initial))


def rows_of(batch: Tree) -> list[Element]:
    """Return the rows of a batch.

    >>> import numpy as np
    >>> rows_of({"x": np.array([1, 2]), "y": np.array([[3.0], [4.0]])})[1]
    {'x': np.int64(2), 'y': array([4.])}
    """
    counts: dict[str, int] = {}
    for path, leaf in leaves_with_paths(batch, "batch"):
        try:
            counts[path] = len(leaf)
        except TypeError:
            raise BatchError(
                f"{path}: {leaf!r:.100} has no rows. `unbatch` needs a tree of arrays with a "
                "common first axis, as `batch` makes it."
            ) from None
    if len(set(counts.values())) != 1:
        raise BatchError(
            "`unbatch` needs batches whose arrays have the same number of rows, got "
            f"{counts or batch!r:.200}."
        )
    return split_rows(batch, next(iter(counts.values())))

"""The batch that is smaller than the others: kept, dropped, or padded, with a mask that tells."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._tree import leaves_with_paths, map_leaves
from gristmill.errors import FeedError, PlanError
from gristmill.feeding._leaves import can_hold
from gristmill.plan import (
    BatchNode,
    ConcatSplitNode,
    FanOutNode,
    FlatMapNode,
    Node,
    PackNode,
    RebatchNode,
    parents_of,
)
from gristmill.types import Tree

How: TypeAlias = Literal["keep", "drop", "pad"]


class Fitted(NamedTuple):
    """A batch as it is to be fed, and which of its rows are no padding, if any may be."""

    batch: Tree
    mask: NDArray[np.bool_] | None
    num_rows: int


@final
class Last:
    """What becomes of a batch that has fewer rows than `size`."""

    def __init__(self, how: How, size: int | None = None, mask: str = "mask") -> None:
        self.how: How = how
        self._size = size or 0
        self._mask = mask

    def fit(self, batch: Tree) -> Fitted | None:
        """Give a batch as it is to be fed; `None` if it is not to be."""
        if self.how == "keep":
            return Fitted(batch, None, 0)
        count = num_rows(batch)
        if count > self._size:
            raise FeedError(
                f"A batch has {count} rows, and `batch_size` is {self._size}. Pass the size of the "
                "largest."
            )
        if self.how == "pad":
            padded = batch if count == self._size else map_leaves(self._padded, batch)
            return Fitted(padded, np.arange(self._size) < count, self._size)
        return Fitted(batch, None, count) if count == self._size else None

    def shapes_of(self, batch: Tree) -> Tree:
        """Give what `blank` needs to know of a batch that was fed."""
        return map_leaves(_Shape, batch)

    def blank(self, shapes: Tree) -> Fitted:
        """Give a batch of nothing but padding."""
        blank = map_leaves(_Shape.zeros, shapes)
        return Fitted(blank, np.zeros(self._size, np.bool_), self._size)

    def join(self, batch: Tree, mask: Any) -> Tree:
        """Give a batch with its mask."""
        if mask is None:
            return batch
        if type(batch) is not dict:
            return batch, mask
        leaves = cast("dict[Any, Any]", batch)
        if self._mask in leaves:
            raise FeedError(
                f"The batch has a leaf {self._mask!r} already. Pass another name as `mask`."
            )
        return {**leaves, self._mask: mask}

    def _padded(self, leaf: Any) -> Any:
        if not _has_rows(leaf):
            return leaf
        padded = np.zeros((self._size, *leaf.shape[1:]), leaf.dtype)
        padded[: len(leaf)] = leaf
        return padded


def num_rows(batch: Tree) -> int:
    """Count the rows of a batch: all of its arrays have that many.

    >>> num_rows({"x": np.zeros((3, 2)), "y": np.zeros(3), "step": np.int64(7)})
    3
    """
    leaves: Iterable[tuple[str, Any]] = leaves_with_paths(batch, "batch")
    counts = {path: len(leaf) for path, leaf in leaves if _has_rows(leaf)}
    if not counts:
        raise FeedError(
            "The batch has no array with rows, so none can be dropped or padded. Batch the "
            'elements before the feeding, or pass `last="keep"`.'
        )
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{path}: {count}" for path, count in counts.items())
        raise FeedError(
            f"The arrays of the batch differ in their number of rows ({told}), so it cannot be "
            'told what to pad. Give all of them the same first axis, or pass `last="keep"`.'
        )
    return next(iter(counts.values()))


def batch_size_of(plan: Node | None) -> int | None:
    """Find how many rows a full batch of a pipeline has, if the pipeline says so."""
    match plan:
        case None | FlatMapNode() | FanOutNode() | PackNode() | ConcatSplitNode():
            return None
        case BatchNode() | RebatchNode():
            return plan.size
        case _:
            sizes = {batch_size_of(parent) for parent in parents_of(plan)}
            return sizes.pop() if len(sizes) == 1 else None


def as_last(how: Any, size: int | None, mask: str) -> Last:
    """Check what is to become of a smaller batch."""
    if how not in ("keep", "drop", "pad"):
        raise PlanError(f'`last` must be "keep", "drop" or "pad", got {how!r:.100}.')
    if how != "keep" and size is None:
        raise PlanError(
            f'`last="{how}"` needs to know how many rows a full batch has, and the pipeline does '
            "not tell. Pass `batch_size`."
        )
    return Last(how, size, mask)


def _has_rows(leaf: Any) -> bool:
    """Tell an array whose rows are numbers; what JAX cannot hold is handed through as it is."""
    # The random keys of JAX have a type that NumPy does not know.
    is_array = getattr(leaf, "ndim", 0) > 0 and isinstance(leaf.dtype, np.dtype)
    return is_array and can_hold(leaf)


@final
class _Shape:
    """The shape and type of an array; of any other leaf, itself."""

    def __init__(self, leaf: Any) -> None:
        self._kind: tuple[Any, Any] | None = (leaf.shape, leaf.dtype) if _has_rows(leaf) else None
        self._leaf = None if _has_rows(leaf) else leaf

    def zeros(self) -> Any:
        return self._leaf if self._kind is None else np.zeros(*self._kind)

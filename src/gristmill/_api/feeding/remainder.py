"""Batches with fewer rows than the others: kept, dropped, or padded and masked."""

import zlib
from collections.abc import Hashable
from typing import Literal, NamedTuple, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._api.feeding.batch_shapes import LeafShape, zeros_like
from gristmill._api.feeding.leaves import is_supported
from gristmill._base.trees.tree import leaves_with_paths, map_leaves
from gristmill._plan.nodes.base import Node
from gristmill._plan.traverse import known_length, num_full_batches
from gristmill.errors import FeedError, PlanError
from gristmill.types import Leaf, Tree

RemainderMode: TypeAlias = Literal["keep", "drop", "pad"]


class FittedBatch(NamedTuple):
    """A batch to feed, and a mask of the rows that are not padding if there may be padding."""

    batch: Tree
    mask: NDArray[np.bool_] | None
    num_rows: int


@final
class Remainder:
    """How to feed a batch that has fewer than `batch_size` rows."""

    def __init__(
        self, mode: RemainderMode, batch_size: int | None = None, mask_name: str = "mask"
    ) -> None:
        self.mode: RemainderMode = mode
        self._batch_size = batch_size or 0
        self._mask_name = mask_name

    def fit(self, batch: Tree) -> FittedBatch | None:
        """Return a batch as it is to be fed, or `None` if it is dropped."""
        if self.mode == "keep":
            return FittedBatch(batch, None, 0)
        count = num_rows(batch)
        if count > self._batch_size:
            raise FeedError(
                f"A batch has {count} rows, but `batch_size` is {self._batch_size}. Pass the "
                "number of rows of the largest batch."
            )
        if self.mode == "pad":
            padded = batch if count == self._batch_size else map_leaves(self._pad, batch)
            return FittedBatch(padded, np.arange(self._batch_size) < count, self._batch_size)
        return FittedBatch(batch, None, count) if count == self._batch_size else None

    def num_batches(self, plan: Node) -> int | None:
        """Return the number of batches of a plan that are fed, if it is known."""
        if self.mode == "drop":
            return num_full_batches(plan, self._batch_size)
        return known_length(plan)

    def shapes_of(self, batch: Tree) -> Tree:
        """Return the argument for `empty_batch` that makes a batch like this one."""
        return map_leaves(_shape_of, batch)

    def empty_batch(self, shapes: Tree) -> FittedBatch:
        """Return a batch that consists of padding."""
        batch = zeros_like(shapes)
        return FittedBatch(batch, np.zeros(self._batch_size, np.bool_), self._batch_size)

    def add_mask(self, batch: Tree, mask: object) -> Tree:
        """Return a batch with its mask: as a leaf of a dict, or as a pair."""
        if mask is None:
            return batch
        if type(batch) is not dict:
            return batch, mask
        leaves = cast("dict[Hashable, Tree]", batch)
        if self._mask_name in leaves:
            raise FeedError(
                f"The batch already has a leaf {self._mask_name!r}. Pass another name as `mask`."
            )
        return {**leaves, self._mask_name: mask}

    def _pad(self, leaf: Leaf) -> Leaf:
        if not _has_rows(leaf):
            return leaf
        padded = np.zeros((self._batch_size, *leaf.shape[1:]), leaf.dtype)
        padded[: len(leaf)] = leaf
        return padded


def num_rows(batch: Tree) -> int:
    """Return the number of rows of a batch, which must be the same for all its arrays.

    >>> num_rows({"x": np.zeros((3, 2)), "y": np.zeros(3), "step": np.int64(7)})
    3
    """
    leaves = leaves_with_paths(batch, "batch")
    counts = {path: len(leaf) for path, leaf in leaves if _has_rows(leaf)}
    if not counts:
        raise FeedError(
            "The batch has no array with rows, so none can be dropped or padded. Batch the "
            'elements before feeding them, or pass `remainder="keep"`.'
        )
    if len(set(counts.values())) > 1:
        rows = ", ".join(f"{path}: {count}" for path, count in counts.items())
        raise FeedError(
            f"The arrays of the batch have different numbers of rows ({rows}), so it cannot be "
            'padded. Make their first axes equally long, or pass `remainder="keep"`.'
        )
    return next(iter(counts.values()))


def describe_rows(batch: Tree, max_length: int = 200) -> str:
    """Return the shapes of the rows of a batch, by leaf, as a short string.

    >>> describe_rows({"x": np.zeros((3, 2)), "y": np.zeros(3), "step": 7})
    'batch["x"]: (2,), batch["y"]: ()'
    """
    leaves = leaves_with_paths(batch, "batch")
    shown = ", ".join(f"{path}: {leaf.shape[1:]}" for path, leaf in leaves if _has_rows(leaf))
    if len(shown) <= max_length:
        return shown
    return f"{shown[:max_length]}... (checksum {zlib.crc32(shown.encode())})"


def batch_size_of(plan: Node | None) -> int | None:
    """Return the number of rows of a full batch of a pipeline, or `None` if it is unknown."""
    return None if plan is None else plan.batch_size


def as_remainder(mode: RemainderMode, batch_size: int | None, mask_name: str) -> Remainder:
    """Return the `Remainder` of the arguments of `feed`, after checking them."""
    if mode not in ("keep", "drop", "pad"):
        raise PlanError(f'`remainder` must be "keep", "drop" or "pad", got {mode!r:.100}.')
    if mode != "keep" and batch_size is None:
        raise PlanError(
            f'`remainder="{mode}"` needs the number of rows of a full batch, which the pipeline '
            "does not determine. Pass `batch_size`."
        )
    return Remainder(mode, batch_size, mask_name)


def _has_rows(leaf: Leaf) -> bool:
    """Return whether a leaf is a numeric array with a first axis. Others are never padded."""
    # The random keys of JAX have a dtype that is not a `numpy.dtype`.
    is_array = getattr(leaf, "ndim", 0) > 0 and isinstance(leaf.dtype, np.dtype)
    return is_array and is_supported(leaf)


def _shape_of(leaf: Leaf) -> LeafShape:
    if _has_rows(leaf):
        return LeafShape(leaf.shape, leaf.dtype, None)
    return LeafShape(None, None, leaf)

"""The element of all shards together: what a job of many processes computes with at a step."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill._base.trees.tree import flatten
from gristmill.errors import BatchError
from gristmill.types import Element


def join_shards(elements: Sequence[Element]) -> Element:
    """Return the batches of all shards as one, along the first axis, in order of the shards.

    >>> join_shards([{"x": np.array([1, 2])}, {"x": np.array([3])}])
    {'x': array([1, 2, 3])}

    Raises:
        BatchError: The batches have other leaves.
    """
    flat = [flatten(element) for element in elements]
    leaves = [found for found, _ in flat]
    if len(set(map(len, leaves))) > 1:
        raise BatchError(
            "The elements of the shards differ in their leaves. Get each with `shard=(i, n)`."
        )
    _, build = flat[0]
    return build([_join(several) for several in zip(*leaves, strict=True)])


def _join(leaves: Sequence[Any]) -> Any:
    arrays = [np.asarray(leaf) for leaf in leaves]
    return np.concatenate(arrays) if arrays[0].ndim else np.stack(arrays)

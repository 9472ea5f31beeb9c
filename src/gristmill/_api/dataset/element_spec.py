"""The public function that returns the spec of the elements of a dataset."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from gristmill._plan.nodes.base import Node
from gristmill.types import Tree


def get_element_spec(ds: Any) -> Any:
    """Return a tree like the elements of a dataset, with the shape and dtype of each leaf.

    Nothing is read or computed. A transformation describes its outputs by a method
    `output_spec(self, input_spec)`.

    >>> from gristmill import MapDataset
    >>> get_element_spec(MapDataset.range(10).batch(4, drop_remainder=True))
    ShapeDtypeStruct(shape=(4,), dtype=<class 'numpy.int64'>)

    Args:
        ds: A `MapDataset` or `IterDataset`.

    Returns:
        A tree whose leaves have a `shape` and a `dtype`. A size that is not known in advance is
        `None`.

    Raises:
        SpecError: A source or a transformation does not describe its elements. The message names
            it.
    """
    return ds._element_spec  # noqa: SLF001 - named as in Grain, for users to define


def infer_spec(node: Node, transform: object, parents: Sequence[Any]) -> Tree:
    """Return the spec of the elements of a dataset.

    Args:
        node: The node that the dataset adds to the plan.
        transform: The user's transformation, if there is one.
        parents: The parents of the dataset.
    """
    return node.element_spec([partial(get_element_spec, parent) for parent in parents], transform)

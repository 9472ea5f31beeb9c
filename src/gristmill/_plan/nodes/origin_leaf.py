"""A leaf of each element with the number of its record, which batching and packing keep."""

from typing import Any, cast, final

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.trees.tree import with_sorted_keys
from gristmill._plan.nodes.base import EpochChange, Step
from gristmill.errors import BatchError
from gristmill.types import Element

LEAF = "provenance"
"""The key of the leaf in elements that are dicts."""


@final
@frozen_dataclass
class OriginLeafNode(Step):
    """Elements with the number of their record in the stream of the sampler as one more leaf."""

    @property
    def label(self) -> str:
        return "Provenance"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.INDEX

    def num_read(self, index: int) -> int:
        return index

    @property
    def description(self) -> None:
        """The stream has the same records, so a state restores with and without the leaf."""
        return

    @property
    def is_elementwise(self) -> bool:
        return False


def with_leaf(element: Element, leaf: Any) -> Element:
    """Return an element with one more leaf: a key of a dict, or the last item of a tuple.

    >>> with_leaf({"x": 1}, 7), with_leaf((1, 2), 7), with_leaf("x", 7)
    ({'x': 1, 'provenance': 7}, (1, 2, 7), ('x', 7))

    Raises:
        BatchError: The element has a key of this name.
    """
    if isinstance(element, dict):
        if LEAF in element:
            raise BatchError(
                f"The elements have a key {LEAF!r} already. Rename it, or leave out "
                "`provenance=True`."
            )
        return {**cast("dict[Any, Any]", element), LEAF: leaf}
    if type(element) is tuple:
        return (*element, leaf)
    return (element, leaf)


def batch_with_leaf(batch: Element, leaf: Any) -> Element:
    """Return a batch with one more leaf, its keys in order.

    >>> batch_with_leaf({"x": 1}, 7)
    {'provenance': 7, 'x': 1}
    """
    made = with_leaf(batch, leaf)
    return with_sorted_keys(made) if type(made) is dict else made

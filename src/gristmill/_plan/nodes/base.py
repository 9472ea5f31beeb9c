"""What every node of a plan tells about itself.

A node is asked for elements by *position*, 0 up to its length. Of a dense node each position holds
exactly one element; below a filter a position may hold none, below a flat map several.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gristmill._data.sampling.shard_lengths import ENDLESS

__all__ = ["ENDLESS", "Node", "Step", "name_of", "stable_repr"]


@dataclass(frozen=True, kw_only=True)
class Node(ABC):
    """One node of a pipeline: what, never how."""

    site: str
    """The user's file and line that added it."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The node in a few words, for errors and checkpoints: no data, no addresses."""

    @abstractmethod
    def length(self) -> int:
        """Count its positions; `ENDLESS` if there is no end to them."""

    @property
    def is_dense(self) -> bool:
        """Whether each position holds exactly one element."""
        return True

    @property
    def records_per_position(self) -> int:
        """How many positions of the sampled records go into one of this node."""
        return 1

    @property
    def num_sources(self) -> int:
        """How many sources the records of a few positions in a row come from."""
        below = getattr(self, "parent", None)
        return 1 if below is None else below.num_sources

    @property
    def reads_many(self) -> bool:
        """Whether its records come from sources that read many in one call."""
        below = getattr(self, "parent", None)
        several: tuple[Node, ...] = getattr(self, "parents", ()) if below is None else (below,)
        return bool(several) and all(node.reads_many for node in several)


@dataclass(frozen=True, kw_only=True)
class Step(Node):
    """A node that does something to the elements of the one below, one at a time."""

    parent: Node
    name: str

    def length(self) -> int:
        return self.parent.length()

    @property
    def is_dense(self) -> bool:
        return self.parent.is_dense

    @property
    def records_per_position(self) -> int:
        return self.parent.records_per_position


def name_of(transform: Callable[..., Any] | object) -> str:
    """Name a user's function or transform as they wrote it.

    >>> name_of(len), name_of(lambda x: x)
    ('len', '<lambda>')
    """
    while isinstance(transform, partial):
        transform = transform.func
    name = getattr(transform, "__qualname__", None)
    if name is None:
        return stable_repr(transform)
    return name.rpartition("<locals>.")[2]


def stable_repr(thing: object, *, limit: int = 200) -> str:
    """Give the `repr` of an object, or its type where that would be an address or very long.

    >>> stable_repr(object()), stable_repr(range(3))
    ('object', 'range(0, 3)')
    """
    text = repr(thing)
    if " at 0x" in text or len(text) > limit:
        return type(thing).__qualname__.rpartition("<locals>.")[2]
    return text


def parents_of(node: Any) -> list[Node]:
    """Give what a node stands on."""
    if hasattr(node, "parents"):
        return list(node.parents)
    return [node.parent] if hasattr(node, "parent") else []

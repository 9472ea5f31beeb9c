"""The protocol of all nodes of a plan, and the bases that many of them share.

The elements of a node have *positions*, from 0 up to its length. In a dense node each position
holds exactly one element. Above a filter a position may hold none, above a flat map several.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, TypeAlias

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.grain.classes import IterDataset, MapDataset
from gristmill._data.sampling.remaining import Remaining
from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill._plan.element_spec import ParentSpecs, first_spec
from gristmill._printable import printable
from gristmill.errors import UnknownIndexError
from gristmill.options import ShardOptions
from gristmill.types import Cursor, Element, Indices, Tree

__all__ = [
    "ENDLESS",
    "Collate",
    "EpochChange",
    "Node",
    "RecordsNode",
    "Step",
    "UnaryNode",
    "name_of",
    "stable_repr",
    "steps_that_vary",
    "unknown_index",
]

Collate: TypeAlias = Callable[[Sequence[Any]], Element]
"""A function that makes a batch of elements."""


class EpochChange(enum.Enum):
    """How an epoch of a dataset differs from the first, if the epochs of its parents are equal."""

    NONE = enum.auto()
    """Not at all."""
    NONE_BELOW = enum.auto()
    """Not at all, even if the epochs of its parents differ."""
    ORDER = enum.auto()
    """Other elements are at an index."""
    RANDOM = enum.auto()
    """The element at an index is made with other random numbers."""
    INDEX = enum.auto()
    """The element at an index is made with another index."""
    MEMBERS = enum.auto()
    """It may consist of other elements."""
    UNKNOWN = enum.auto()
    """That is not known: the user's code decides."""


@frozen_dataclass
class Node(ABC):
    """One node of a plan. It describes what to compute, not how."""

    user_part: ClassVar[str] = "transform"
    """What the user passes for such a node: a transform, a function, a source or a sampler."""

    site: str
    """The user's file and line that added the node."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short name for errors, statistics and checkpoints, without data or addresses."""

    @property
    def description(self) -> str | None:
        """The step in the description that states contain; `None` if the stream is the same."""
        return self.label

    @property
    def is_order(self) -> bool:
        """Whether descriptions list it as part of the order of the records."""
        return False

    @property
    @abstractmethod
    def parents(self) -> tuple["Node", ...]:
        """The nodes whose elements it reads."""

    @abstractmethod
    def with_parents(self, parents: Sequence["Node"]) -> Self:
        """Return this node with other parents, as many as it has."""

    @property
    def parent_names(self) -> tuple[str, ...] | None:
        """The names of the parents in states, if the state of each is found by name."""
        return None

    @abstractmethod
    def length(self) -> int:
        """Return the number of positions, or `ENDLESS`."""

    @property
    def is_dense(self) -> bool:
        """Whether each position holds exactly one element."""
        return True

    @property
    def is_elementwise(self) -> bool:
        """Whether an element depends on that of the parent alone, not on its index."""
        return False

    @property
    @abstractmethod
    def epoch_change(self) -> EpochChange:
        """How later epochs differ from the first, if those of the parents are equal."""

    @property
    def may_be_shard(self) -> bool:
        """Whether it may leave out elements of the parents that another process reads."""
        return False

    @property
    def calls_function(self) -> bool:
        """Whether it calls the user's code, which one of its fields contains."""
        return False

    @property
    def shard_problem(self) -> str | None:
        """What would go wrong if each shard ran it over its part of the elements, for the error.

        `None` if nothing would. Only nodes above the records of a stream are asked.
        """
        return None

    @property
    def keeps_absent(self) -> bool:
        """Whether all other elements stay as they are if some of the parents' are absent."""
        return False

    def to_parent(self, indices: Indices) -> Indices | None:
        """Return the index in the parent of the only element that each element is made of.

        `None` if elements are not made of exactly one element of one parent.
        """
        return None

    def num_read(self, index: int) -> int | None:
        """Return how many elements of the only parent are read before the element `index`.

        `None` if that is not known.
        """
        return None

    @property
    def records_per_position(self) -> int:
        """The number of sampled records, by position, that one position consists of."""
        return 1

    @property
    def num_sources(self) -> int:
        """The number of sources that the records of some consecutive positions come from."""
        return self.parents[0].num_sources if len(self.parents) == 1 else 1

    @property
    def reads_many(self) -> bool:
        """Whether its records come from sources that read many in one call."""
        return bool(self.parents) and all(parent.reads_many for parent in self.parents)

    @property
    def batch_size(self) -> int | None:
        """The number of rows of a full batch, or `None` if it is unknown or not a batch."""
        sizes = {parent.batch_size for parent in self.parents}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def yields_batches(self) -> bool:
        """Whether its elements are batches, as far as its steps show."""
        if self.batch_size is not None:
            return True
        return bool(self.parents) and all(parent.yields_batches for parent in self.parents)

    @property
    def collate(self) -> Collate | None:
        """The function with which to batch its elements, if all its sources have the same."""
        first, *others = [parent.collate for parent in self.parents] or [None]
        return first if all(other is first for other in others) else None

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        """Return the spec of the elements.

        Args:
            parents: The specs of the parents of the dataset that added this node.
            transform: The user's transformation, if there is one.

        Raises:
            SpecError: The spec is not known without reading elements.
        """
        return first_spec(self.label, parents)

    def index_at(self, cursor: Cursor) -> int:
        """Return the index of the element that follows `cursor`.

        Raises:
            UnknownIndexError: The index is not known without counting, as above a filter.
        """
        raise unknown_index(self.label)

    def cursor_at(self, index: int) -> Cursor:
        """Return the cursor before the element `index`, in constant time.

        Raises:
            IndexError: `index` is past the end.
            UnknownIndexError: The cursor is not known without counting, as above a filter.
        """
        raise unknown_index(self.label)


@frozen_dataclass
class UnaryNode(Node):
    """A node with one parent. By default it has as many positions, and is dense if that is."""

    parent: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)

    def with_parents(self, parents: Sequence[Node]) -> Self:
        (parent,) = parents
        return replace(self, parent=parent)

    def length(self) -> int:
        return self.parent.length()

    @property
    def is_dense(self) -> bool:
        return self.parent.is_dense


@frozen_dataclass
class Step(UnaryNode):
    """A node that runs on blocks of its parent's elements and keeps nothing between them."""

    @property
    def combines_elements(self) -> bool:
        """Whether an element is made of several consecutive ones of the parent."""
        return False

    @property
    def keeps_absent(self) -> bool:
        return not self.combines_elements

    @property
    def records_per_position(self) -> int:
        return self.parent.records_per_position

    def max_outputs(self, num_inputs: int) -> int:
        """Return the largest number of elements that `num_inputs` of the parent can become."""
        return num_inputs


@frozen_dataclass
class RecordsNode(UnaryNode):
    """The bottom of a stream: records by position, which are distributed over shards."""

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.UNKNOWN  # a stream has no epochs

    @property
    def may_be_shard(self) -> bool:
        return self.own_shard[1] > 1

    @property
    @abstractmethod
    def own_shard(self) -> tuple[int, int]:
        """The index of the shard that it reads, and the number of shards."""

    @property
    @abstractmethod
    def has_contiguous_shards(self) -> bool:
        """Whether a shard is a range of the records, which it shuffles separately."""

    @abstractmethod
    def with_shard(self, shard: ShardOptions, *, is_contiguous: bool) -> Self:
        """Return the node of another shard."""

    @abstractmethod
    def resharded(
        self, shards: Sequence["RecordsNode"], positions: Sequence[int], shard: ShardOptions
    ) -> tuple[Self, Remaining]:
        """Return the node of a shard of what earlier shards left, and what they left.

        Args:
            shards: The nodes of all earlier shards, of which this is the first.
            positions: The number of positions that each of them has read.
            shard: The new shard.
        """


def steps_that_vary(plan: Node) -> Iterator[Node]:
    """Yield the nodes of a dataset because of which its epochs differ, top down."""
    if plan.epoch_change is EpochChange.NONE_BELOW:
        return
    if plan.epoch_change is not EpochChange.NONE:
        yield plan
    for parent in plan.parents:
        yield from steps_that_vary(parent)


def replace_below(plan: Node, old: Node, new: Node) -> Node:
    """Return a plan with another node instead of `old`. The nodes above it have one parent each."""
    if plan is old:
        return new
    (parent,) = plan.parents
    return plan.with_parents([replace_below(parent, old, new)])


def unknown_index(label: str) -> UnknownIndexError:
    """Return the error for a stream whose elements have no known index."""
    return UnknownIndexError(
        f"The number of elements that {label} has yielded is not known without counting. Count "
        "them in your loop, or use `get_state` and `set_state`."
    )


def name_of(transform: Callable[..., Any] | object) -> str:
    """Return the name of a user's function or transformation, as in their code.

    >>> name_of(len), name_of(lambda x: x)
    ('len', '<lambda>')
    """
    while isinstance(transform, partial):
        transform = transform.func
    name = getattr(transform, "__qualname__", None)
    if name is None:
        return stable_repr(transform)
    return name.rpartition("<locals>.")[2]


def stable_repr(value: object, *, limit: int = 200) -> str:
    """Return the `repr` of an object, or its type if that has an address or is too long.

    >>> stable_repr(object()), stable_repr(range(3))
    ('object', 'range(0, 3)')
    """
    shown = printable(repr(value))
    # The `repr` of a dataset is a summary for people, which may change between versions.
    is_dataset = isinstance(value, MapDataset | IterDataset)
    return kind_of(value) if " at 0x" in shown or is_dataset or len(shown) > limit else shown


def kind_of(value: object) -> str:
    """Return the name of the type of an object, as users know it."""
    names = [cls.__qualname__.rpartition("<locals>.")[2] for cls in type(value).__mro__]
    if not isinstance(value, MapDataset | IterDataset):
        return names[0]
    return next(name for name in names if not name.startswith(("Planned", "Sliceable")))

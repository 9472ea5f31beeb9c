"""A user's own dataset, and the node that reads a dataset as a stream.

A dataset is one of several shards if it contains a slice `ds[shard::num_shards]`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Self, cast, final

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._data.sampling.remaining import Remaining
from gristmill._plan.element_spec import ParentSpecs
from gristmill._plan.nodes.base import EpochChange, Node, RecordsNode, UnaryNode, replace_below
from gristmill._plan.nodes.combine import ReshardedNode
from gristmill._plan.nodes.exclude import SwitchNode
from gristmill._plan.nodes.hints import FilterLimits
from gristmill._plan.nodes.rearrange import RemainingNode, SliceNode
from gristmill.errors import NextIndexError, PlanError, SpecError, StateError
from gristmill.options import ShardOptions
from gristmill.types import Cursor, Tree


@final
@frozen_dataclass
class CustomNode(Node):
    """A user's own dataset, read by its `__getitem__`."""

    dataset: Any
    name: str

    @property
    def label(self) -> str:
        return self.name

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.UNKNOWN

    @property
    def may_be_shard(self) -> bool:
        return True

    @property
    def parents(self) -> tuple[()]:
        return ()

    def with_parents(self, parents: Sequence[Node]) -> Self:
        return self

    @property
    def is_dense(self) -> bool:
        return False

    def length(self) -> int:
        return len(self.dataset)

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        raise undefined_spec(self.label)


@final
@frozen_dataclass
class AccessNode(RecordsNode):
    """The elements of a dataset in order: where random access becomes a stream.

    Absent elements are left out unless `keeps_none`.
    """

    keeps_none: bool = False
    limits: FilterLimits | None = None
    """How large a share of the elements may be absent."""

    @property
    def label(self) -> str:
        return f"ToIter({self.parent.label})"

    @property
    def description(self) -> str | None:
        return "ToIter(allow_nones=True)" if self.keeps_none else None

    @property
    def is_dense(self) -> bool:
        return self.keeps_none or self.parent.is_dense

    def index_at(self, cursor: Cursor) -> int:
        return cursor[0]

    def cursor_at(self, index: int) -> Cursor:
        if index > self.length():
            raise next_index_error(index, self.length())
        return (index,)

    @property
    def own_shard(self) -> tuple[int, int]:
        found = shard_slice(self.latest)
        return (0, 1) if found is None else (found.start, found.step)

    @property
    def has_contiguous_shards(self) -> bool:
        return False

    @property
    def latest(self) -> Node:
        """The dataset from the last index on at which records were excluded."""
        return self.parent.inputs[1] if isinstance(self.parent, SwitchNode) else self.parent

    def with_shard(self, shard: ShardOptions, *, is_contiguous: bool) -> Self:
        found = shard_slice(self.parent)
        if found is None:
            raise _not_a_shard(self.parent)
        other = replace(found, start=shard.shard_index, step=shard.shard_count)
        return replace(self, parent=replace_below(self.parent, found, other))

    def resharded(
        self, shards: Sequence[RecordsNode], positions: Sequence[int], shard: ShardOptions
    ) -> tuple[Self, Remaining]:
        dataset = self.latest
        earlier = _resharded_node(dataset)
        if earlier is not None:
            remaining = earlier.remaining.after(positions)
            later = replace(earlier, remaining=remaining, shard=shard)
            return replace(self, parent=replace_below(dataset, earlier, later)), remaining
        found = shard_slice(dataset)
        if found is None:
            raise _not_a_shard(dataset)
        if _is_elementwise_above(dataset, found):
            remaining = Remaining((found.stop,)).after(positions)
            node = RemainingNode(
                site=found.site, parent=found.parent, remaining=remaining, shard=shard
            )
            return replace(self, parent=replace_below(dataset, found, node)), remaining
        # By the index in the old shard, so that an element is shuffled and drawn as it was there.
        lengths = tuple(other.length() for other in shards)
        remaining = Remaining(lengths).after(positions, by_stream=True)
        datasets = tuple(cast("AccessNode", other).latest for other in shards)
        merged = ReshardedNode(site=found.site, inputs=datasets, remaining=remaining, shard=shard)
        return replace(self, parent=merged), remaining

    def cut(self, shard: ShardOptions, *, site: str) -> Self:
        """Return the node of one shard of this dataset, which must not be a shard already."""
        dataset = self.parent
        if shard_slice(dataset) is not None:
            raise PlanError(
                f"{dataset.label} is a shard already. Pass the whole dataset, which is cut into "
                "shards here."
            )
        sliced = SliceNode(
            site=site,
            parent=dataset,
            start=shard.shard_index,
            stop=dataset.length(),
            step=shard.shard_count,
        )
        return replace(self, parent=sliced)


def shard_slice(dataset: Node) -> SliceNode | None:
    """Return the slice that makes a dataset one of several shards, if there is one.

    >>> from gristmill import MapDataset
    >>> shard_slice(MapDataset.range(10)[1::4].map(str)._plan_node).step
    4
    """
    for node in _chain(dataset):
        if isinstance(node, SliceNode) and node.is_shard:
            return node
    return None


def next_index_error(index: object, length: int) -> NextIndexError:
    """Return the error for the index of a next element that is not one of the dataset."""
    return NextIndexError(
        f"Checkpoint `next_index` {index} is out of range for dataset of length {length}. Restore "
        "it into a pipeline with the same steps as the one it was taken from."
    )


def undefined_spec(label: str) -> SpecError:
    """Return the error for a user's own dataset that does not describe its elements."""
    return SpecError(
        f"The elements of {label} are not known before they are read. Define a property "
        "`_element_spec` in it."
    )


def _chain(dataset: Node) -> Iterator[Node]:
    """Yield a dataset and the nodes below it, top down, as far as there is one parent."""
    yield dataset
    while isinstance(dataset, UnaryNode):
        dataset = dataset.parent
        yield dataset


def _resharded_node(dataset: Node) -> RemainingNode | ReshardedNode | None:
    """Return the node that resumes an earlier run, if there is one."""
    for node in _chain(dataset):
        if isinstance(node, RemainingNode | ReshardedNode):
            return node
    return None


def _is_elementwise_above(dataset: Node, below: Node) -> bool:
    """Return whether the nodes above another one do not depend on the index of an element."""
    above = takewhile(lambda node: node is not below, _chain(dataset))
    return all(node.is_elementwise for node in above)


def _not_a_shard(dataset: Node) -> StateError:
    return StateError(
        f"{dataset.label} is not a shard, so no other shard can continue with what remains of it. "
        "Shard each dataset with `ds[shard::num_shards]`, even if there is only one shard."
    )

"""Nodes that batch elements of similar length: of a stream, and of a dataset with known lengths."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self, final

import numpy as np

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.indices import as_indices
from gristmill._data.batching.bucket_schedule import BucketSchedule, num_batches, plan_batches
from gristmill._data.batching.buckets import BucketByLength
from gristmill._plan.element_spec import ParentSpecs, padded_spec
from gristmill._plan.nodes.base import ENDLESS, EpochChange, Node, UnaryNode
from gristmill._plan.nodes.combine_streams import ChainNode
from gristmill._plan.nodes.stream import Continuation, StageState, StatefulNode, StreamStepNode
from gristmill.errors import PlanError
from gristmill.options import ShardOptions
from gristmill.types import Cursor, Indices, Tree


@final
@frozen_dataclass
class BucketStreamNode(StreamStepNode):
    """Batches of elements of similar length, each as soon as its bucket is full.

    A state is the cursor of the parent, the number of elements before it, and where the elements
    are that are held in buckets: for each run of consecutive ones, the number of the first, how
    many they are, and the cursor before them.
    """

    buckets: BucketByLength

    @property
    def label(self) -> str:
        return self.buckets.label

    @property
    def shard_problem(self) -> None:
        return None

    @property
    def yields_batches(self) -> bool:
        return True

    @property
    def description(self) -> str:
        return self.buckets.description

    @property
    def batch_size(self) -> None:
        return None

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return _bucket_spec(self.buckets, parents)

    def parent_cursors(self, state: StageState) -> list[Cursor | None]:
        return [None if state is None else tuple(state[0])]

    def held_inputs(self, state: StageState) -> list[Continuation]:
        """Return the stream of the elements that are in buckets: they are not yet batches."""
        if state is None or not state[2]:
            return []
        runs = tuple((count, tuple(cursor)) for _, count, cursor in state[2])
        node = HeldElementsNode(site=self.site, parent=self.parent, runs=runs)
        return [Continuation(node, None)]

    def resharded(
        self,
        shards: Sequence[StatefulNode],
        states: Sequence[StageState],
        parents: Sequence[Node],
        shard: ShardOptions,
    ) -> Self:
        """Return the node of a new shard, which first reads what earlier shards hold in buckets.

        Elements from several shards then fill a bucket together, so none is in a smaller batch
        than necessary.
        """
        held = [
            stream.node
            for one, state in zip(shards, states, strict=True)
            for stream in one.held_inputs(state)
        ]
        (remaining,) = parents
        inputs = (*held[shard.shard_index :: shard.shard_count], remaining)
        chain = ChainNode(site=self.site, inputs=inputs, starts=(None,) * len(inputs))
        return self.with_parents([chain])


@final
@frozen_dataclass
class HeldElementsNode(StreamStepNode):
    """Some elements of the parent: runs of consecutive ones, each starting at a cursor."""

    runs: tuple[tuple[int, Cursor], ...]
    """The number of elements of each run, and the cursor before it."""

    @property
    def label(self) -> str:
        return f"Held({sum(count for count, _ in self.runs)} elements)"

    @property
    def shard_problem(self) -> str:
        return "each shard would yield all of its elements"


@final
@frozen_dataclass
class BucketNode(UnaryNode):
    """Batches of elements of similar length, planned from the lengths of all records.

    In each epoch the batches are those of a stream of its elements. Every `group_size` consecutive
    ones are of the same bucket, so that as many processes with a slice each take the same bucket.
    """

    buckets: BucketByLength
    lengths: Indices
    """The length of each record of the source."""
    group_size: int = 1

    def __post_init__(self) -> None:
        if self.group_size > 1 and self.buckets.remainder == "keep":
            raise PlanError(
                '`group_size` needs batches of one shape, but `remainder="keep"` makes smaller '
                'ones. Pass `remainder="drop"` or `remainder="pad"`.'
            )
        if self.parent.length() >= ENDLESS:
            raise PlanError(
                "`bucket_by_length` plans a whole epoch, but the dataset is infinite. Call "
                "`repeat` after it."
            )
        num_records = _bottom(self.parent).length()
        if len(self.lengths) != num_records:
            raise PlanError(
                f"`lengths` has {len(self.lengths)} numbers, but the source has {num_records} "
                "records. Pass the length of each record, in the order of the source."
            )

    @property
    def label(self) -> str:
        return self.buckets.label

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @property
    def yields_batches(self) -> bool:
        return True

    @property
    def description(self) -> str:
        group = f", group_size={self.group_size}" if self.group_size > 1 else ""
        return f"{self.buckets.description[:-1]}{group})"

    @property
    def is_dense(self) -> bool:
        return True

    @property
    def batch_size(self) -> None:
        return None

    @property
    def collate(self) -> None:
        return None

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return _bucket_spec(self.buckets, parents)

    @cached_property
    def _length(self) -> int:
        return num_batches(self.buckets, self._bucket_numbers(0), group_size=self.group_size)

    def length(self) -> int:
        return self._length

    def schedule(self, epoch: int) -> BucketSchedule:
        """Return the batches of an epoch."""
        schedule = plan_batches(
            self.buckets, self._bucket_numbers(epoch), group_size=self.group_size
        )
        if len(schedule) != self.length():
            raise PlanError(
                f"Epoch {epoch} has {len(schedule)} batches, but the first one has "
                f"{self.length()}: the epochs do not contain the same records. Call `shuffle` "
                "after `slice`, not before."
            )
        return schedule

    def _bucket_numbers(self, epoch: int) -> Indices:
        count = self.parent.length()
        indices = as_indices(range(epoch * count, (epoch + 1) * count))
        lengths = self.lengths[record_indices(self.parent, indices)]
        numbers = self.buckets.buckets_of(lengths)
        if (
            not self.buckets.drop_longer
            and len(numbers)
            and numbers.max() == len(self.buckets.sizes)
        ):
            raise PlanError(str(self.buckets.too_long(int(lengths.max()))))
        return numbers


def record_indices(node: Node, indices: Indices) -> Indices:
    """Return the record of the source that each element of a dataset is made of.

    Raises:
        PlanError: Elements of the dataset are not made of one record each.
    """
    while node.parents:
        found = node.to_parent(indices)
        if found is None:
            raise PlanError(
                f"`lengths` are those of the records of one source, but {node.label} does not "
                "yield one element for each record. Call `bucket_by_length` before it, or after "
                "`to_iter_dataset()`, without `lengths`."
            )
        indices = found
        (node,) = node.parents
    return as_indices(indices % node.length())


def _bottom(node: Node) -> Node:
    """Return the source of a dataset."""
    record_indices(node, np.zeros(0, np.int64))
    while node.parents:
        (node,) = node.parents
    return node


def _bucket_spec(buckets: BucketByLength, parents: ParentSpecs) -> Tree:
    """Return the spec of batches, whose padded length is known only if there is one bucket."""
    pad = buckets.pad
    if len(buckets.boundaries) == 1:
        pad = replace(pad, length=buckets.boundaries[0])
    is_fixed = len(set(buckets.sizes)) == 1 and buckets.remainder != "keep"
    return padded_spec(pad, parents[0](), num_rows=buckets.sizes[0] if is_fixed else None)

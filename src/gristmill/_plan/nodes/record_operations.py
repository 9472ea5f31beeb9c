"""Operations over iterators of records, among those of a `DataLoader`."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._data.sampling.record import Record, RecordMetadata
from gristmill._plan.nodes.packing import tree_features
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.stream import StageState, StreamStepNode
from gristmill.types import Cursor, Tree


@final
@frozen_dataclass
class OperationsNode(StreamStepNode):
    """The data of the records that a chain of operations yields, from an iterator of records.

    What the operations hold is not known, so a state is the cursor where they started and the
    number of elements since: resuming runs them again from there.
    """

    user_part: ClassVar[str] = "operation"

    operations: tuple[Callable[[Iterator[Record[Any]]], Iterator[Record[Any]]], ...]
    names: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"Operations({', '.join(self.names)})"

    @property
    def shard_problem(self) -> None:
        return None

    @property
    def batch_size(self) -> None:
        return None

    @cached_property
    def _sample(self) -> SampleNode:
        """The sampled records below, whose metadata the operations see."""
        node = self.parent
        while not isinstance(node, SampleNode):
            (node,) = node.parents
        return node

    def metadata(self, position: int) -> RecordMetadata:
        """Return the metadata of the element that was made of the record at a position."""
        found, seed = self._sample.metadata(position), self._sample.seed
        if seed is not None:
            found.rng = np.random.Generator(np.random.Philox(key=seed + found.index))
        return found


@final
@frozen_dataclass
class PackBatchesNode(StreamStepNode):
    """Batches of packed records, as Grain's `PackAndBatchOperation` makes them.

    A batch ends before the first record that has no room in it, and the next one begins with that
    record. So a state is the cursor before it.
    """

    length_struct: Tree
    size: int
    """The number of rows of a batch."""
    max_documents: int | None
    """The largest number of records in a row."""

    def __post_init__(self) -> None:
        tree_features(self.length_struct)  # checks it

    @property
    def label(self) -> str:
        features = tree_features(self.length_struct)
        sizes = ", ".join(f"{feature.name}={feature.length}" for feature in features)
        limit = (
            "" if self.max_documents is None else f", max_sequences_per_bin={self.max_documents}"
        )
        return f"PackAndBatch({sizes}, batch_size={self.size}{limit})"

    @property
    def shard_problem(self) -> None:
        return None

    @property
    def batch_size(self) -> None:
        return None

    @property
    def yields_batches(self) -> bool:
        return True

    def parent_cursors(self, state: StageState) -> list[Cursor | None]:
        return [None if state is None else tuple(state[0])]

"""Steps: nodes that run on a block of elements, in a stream or a dataset.

In a dataset, `None` stands for an absent element: one that a filter removed, or an index that a
flat map did not fill. The user's functions are not called for it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, final

import numpy as np

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._plan.element_spec import ParentSpecs, batch_spec, output_spec
from gristmill._plan.nodes.base import ENDLESS, Collate, EpochChange, Step
from gristmill._plan.nodes.hints import FilterLimits
from gristmill.types import Cursor, Element, Indices, Tree


@frozen_dataclass
class TransformNode(Step):
    """A step that makes new elements with a user's function, named `name`."""

    name: str

    @property
    def calls_function(self) -> bool:
        return True

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return output_spec(self.label, transform, parents)


@final
@frozen_dataclass
class MapNode(TransformNode):
    """`function` of each element.

    `batch_function` computes the same for many, as columns, and `rows_function` as a list.
    """

    function: Callable[[Element], Element]
    batch_function: Callable[[Tree], Tree] | None = None
    rows_function: Callable[[list[Element]], Sequence[Element]] | None = None
    skips_none: bool = False
    """Whether `None` is passed on without calling `function`."""

    @property
    def label(self) -> str:
        return f"Map {self.name}"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    def to_parent(self, indices: Indices) -> Indices:
        return indices

    def num_read(self, index: int) -> int:
        return index

    @property
    def is_elementwise(self) -> bool:
        return True

    def index_at(self, cursor: Cursor) -> int:
        return self.parent.index_at(cursor)

    def cursor_at(self, index: int) -> Cursor:
        return self.parent.cursor_at(index)


@final
@frozen_dataclass
class MapWithIndexNode(TransformNode):
    """`function` of the index in the stream and the element."""

    function: Callable[[int, Element], Element]

    @property
    def label(self) -> str:
        return f"MapWithIndex {self.name}"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.INDEX

    def to_parent(self, indices: Indices) -> Indices:
        return indices

    def num_read(self, index: int) -> int:
        return index


@final
@frozen_dataclass
class RandomMapNode(TransformNode):
    """`function` of each element and the random generator of the record it came from.

    All random steps of a record draw from one generator, one after the other.
    """

    function: Callable[[Element, np.random.Generator], Element]

    @property
    def label(self) -> str:
        return f"RandomMap {self.name}"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.RANDOM

    def to_parent(self, indices: Indices) -> Indices:
        return indices

    def num_read(self, index: int) -> int:
        return index


@final
@frozen_dataclass
class SeededMapNode(TransformNode):
    """`function` of each element and a generator made from `seed` and the element's index."""

    function: Callable[[Element, np.random.Generator], Element]
    seed: int

    @property
    def label(self) -> str:
        return f"RandomMap {self.name}"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.RANDOM

    def to_parent(self, indices: Indices) -> Indices:
        return indices

    def num_read(self, index: int) -> int:
        return index

    @property
    def description(self) -> str:
        return f"{self.label} (seed={self.seed})"


@frozen_dataclass
class AnyFlatMapNode(TransformNode):
    """The outputs of `function` for each element, at most `max_fan_out` of them."""

    function: Callable[[Element], Iterable[Element]]
    max_fan_out: int

    @property
    def label(self) -> str:
        return f"FlatMap {self.name}"

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @property
    def yields_batches(self) -> bool:
        return False

    @property
    def is_dense(self) -> bool:
        return False

    @property
    def batch_size(self) -> None:
        return None

    def max_outputs(self, num_inputs: int) -> int:
        return num_inputs * self.max_fan_out


@final
@frozen_dataclass
class FlatMapNode(AnyFlatMapNode):
    """A flat map of a stream, which has one element after the other."""

    resumed_at: tuple[Cursor, ...] = ()
    """Cursors within records. Another shard has yielded the outputs before each of them."""


@final
@frozen_dataclass
class FanOutNode(AnyFlatMapNode):
    """A flat map of a dataset: `max_fan_out` indices for the outputs of each element.

    Indices without an output are absent.
    """

    def length(self) -> int:
        return min(self.parent.length() * self.max_fan_out, ENDLESS)

    def num_read(self, index: int) -> int:
        return index // self.max_fan_out


@final
@frozen_dataclass
class FilterNode(Step):
    """The elements for which `function`, named `name`, is true."""

    name: str
    function: Callable[[Element], bool]
    limits: FilterLimits | None = None
    """How large a share of the elements it may remove."""

    @property
    def label(self) -> str:
        return f"Filter {self.name}"

    @property
    def calls_function(self) -> bool:
        return True

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    def num_read(self, index: int) -> int:
        return index

    @property
    def is_dense(self) -> bool:
        return False

    @property
    def is_elementwise(self) -> bool:
        return True


@final
@frozen_dataclass
class BatchNode(Step):
    """Every `size` consecutive elements, stacked or combined by `function`.

    Over a dense parent it is dense: batch b consists of the `size` positions from `b * size` on.
    Over a sparse one, the positions of a batch are known only in order.
    """

    user_part: ClassVar[str] = "function"

    size: int
    drop_remainder: bool = False
    function: Collate | None = None
    """By default that of the source, if it has one. Without one, elements are stacked."""
    adds_origins: bool = False
    """Whether a batch has a leaf with the position of the record of each row."""

    def __post_init__(self) -> None:
        if self.function is None:
            object.__setattr__(self, "function", self.parent.collate)

    @property
    def label(self) -> str:
        dropped = ", drop_remainder=True" if self.drop_remainder else ""
        return f"Batch({self.size}{dropped})"

    @property
    def calls_function(self) -> bool:
        return True

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @property
    def combines_elements(self) -> bool:
        return True

    def num_read(self, index: int) -> int:
        return index * self.size

    @property
    def records_per_position(self) -> int:
        return self.parent.records_per_position * self.size

    @property
    def batch_size(self) -> int:
        return self.size

    @property
    def collate(self) -> None:
        return None

    def length(self) -> int:
        total = self.parent.length()
        if total == ENDLESS and not self.drop_remainder:
            return min(math.ceil(total / self.size), ENDLESS)  # in floating point, as in Grain
        return self.max_outputs(total)

    def max_outputs(self, num_inputs: int) -> int:
        full, remaining = divmod(num_inputs, self.size)
        return full if self.drop_remainder or not remaining else full + 1

    def element_spec(self, parents: ParentSpecs, transform: object) -> Tree:
        return batch_spec(
            self.function,
            parents,
            batch_size=self.size,
            drop_remainder=self.drop_remainder,
        )

    def index_at(self, cursor: Cursor) -> int:
        return -(-self.parent.index_at(cursor) // self.size)

    def cursor_at(self, index: int) -> Cursor:
        is_at_end = index == self.length()  # the last batch may be short
        return self.parent.cursor_at(self.parent.length() if is_at_end else index * self.size)

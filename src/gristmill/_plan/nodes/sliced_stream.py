"""A slice of a user's own stream, which a worker process of its own reads."""

import copy
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, final, runtime_checkable

from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.grain.context import update_context
from gristmill._data.sampling.shard_lengths import contiguous_range
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.combine_streams import InterleaveNode
from gristmill._plan.nodes.dataset import CustomNode
from gristmill._plan.nodes.rearrange import SliceNode
from gristmill._plan.nodes.sampled import SourceNode
from gristmill._plan.nodes.stream import CustomStreamNode, StreamLeafNode
from gristmill.errors import PlanError
from gristmill.options import MultiprocessingOptions, RayOptions, ShardOptions, WorkerOptions
from gristmill.types import Element


@runtime_checkable
class SupportsSetSlice(Protocol):
    """A dataset that can be restricted to some of its elements, in place."""

    def set_slice(self, sl: slice, sequential_slice: bool = False, /) -> None: ...


@final
@frozen_dataclass
class SlicedStreamNode(StreamLeafNode):
    """Slice `index` of `count` of a user's own stream."""

    dataset: Any
    name: str
    index: int
    count: int
    is_sequential: bool
    options: MultiprocessingOptions
    worker: WorkerOptions

    @property
    def label(self) -> str:
        return f"{self.name} ({self.index} of {self.count})"


@final
@dataclass(kw_only=True)
class SliceReader:
    """The elements of a slice starting at a state, by number, each with the state after it.

    It continues with the iterator that it has if elements are read in order. Otherwise, as after
    the death of a worker, it reads again from the state.
    """

    node: SlicedStreamNode
    start: list[Any]
    """The state to start from, in a list; empty for the beginning."""
    options: Mapping[str, Any]
    """The options of the whole pipeline, by name."""
    _iterator: Any = field(default=None, init=False)
    _next: int = field(default=0, init=False)

    def __len__(self) -> int:
        return sys.maxsize

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_iterator": None, "_next": 0}

    def __getitem__(self, number: int) -> tuple[Element, Any]:
        if self._iterator is None or number < self._next:
            self._open()
        while self._next < number:
            self._take()
        element = self._take()
        iterator: Any = self._iterator
        try:
            return element, copy.deepcopy(iterator.get_state())
        except NotImplementedError as error:
            return element, error.with_traceback(None)

    def _take(self) -> Element:
        element = next(self._iterator)
        self._next += 1
        return element

    def _open(self) -> None:
        node = self.node
        part = slice(node.index, None, node.count)
        dataset = _sliced_copy(node.dataset, part, is_sequential=node.is_sequential)
        self._iterator, self._next = iter(dataset), 0
        update_context(
            getattr(self._iterator, "_ctx", None),
            self.options,
            process_index=node.index,
            process_count=node.count,
        )
        if self.start:
            self._iterator.set_state(copy.deepcopy(self.start[0]))


def slice_records(plan: Node, part: slice) -> Node:
    """Return a plan over contiguous ranges of the records of its sources.

    Args:
        plan: A plan with random access.
        part: The number of the range, as `start`, and the number of ranges, as `step`.

    Raises:
        PlanError: It reads a dataset of the user's own without `set_slice`.
    """
    if isinstance(plan, SourceNode):
        shard = ShardOptions(shard_index=part.start, shard_count=part.step)
        records = contiguous_range(plan.length(), shard)
        return SliceNode(
            site=plan.site, parent=plan, start=records.start, stop=records.stop, step=1
        )
    if isinstance(plan, CustomNode) and isinstance(plan.dataset, SupportsSetSlice):
        return replace(plan, dataset=_sliced_copy(plan.dataset, part, is_sequential=True))
    if not plan.parents:
        raise PlanError(
            f"{plan.label} has no `set_slice`, so that its records cannot be divided into "
            "contiguous ranges. Leave out `sequential_slice`, or define `set_slice(sl, "
            "sequential_slice)` in its class."
        )
    return plan.with_parents([slice_records(parent, part) for parent in plan.parents])


def _sliced_copy(dataset: Any, part: slice, *, is_sequential: bool) -> Any:
    """Return a copy of a dataset that is restricted to a slice."""
    sliced = copy.deepcopy(dataset)
    if len(inspect.signature(sliced.set_slice).parameters) > 1:
        sliced.set_slice(part, is_sequential)
    else:
        sliced.set_slice(part)
    return sliced


def sliced_streams(
    plan: Node,
    options: MultiprocessingOptions,
    worker: WorkerOptions,
    *,
    is_sequential: bool,
    site: str,
) -> InterleaveNode | None:
    """Return the slices of a plan in turn, as Grain's workers yield them.

    `None` if the plan reads anything but users' own streams with `set_slice`.

    Raises:
        PlanError: The number of workers, on which the stream depends, is not fixed.
    """
    leaves = list(_leaves(plan))
    is_sliced = all(
        isinstance(leaf, CustomStreamNode) and isinstance(leaf.dataset, SupportsSetSlice)
        for leaf in leaves
    )
    if leaves and is_sliced and isinstance(worker, RayOptions) and worker.num_workers is None:
        raise PlanError(
            "A stream with `set_slice` depends on the number of workers. Pass "
            "`RayOptions(num_workers=...)`."
        )
    count = options.num_workers
    if not leaves or not is_sliced or count < 2:
        return None
    node_at = partial(_slice_of, plan, count, options, worker, is_sequential)
    return InterleaveNode(site=site, node_at=node_at, count=count, cycle=count)


def _leaves(plan: Node) -> Iterator[Node]:
    if not plan.parents:
        yield plan
    for parent in plan.parents:
        yield from _leaves(parent)


def _slice_of(
    plan: Node,
    count: int,
    options: MultiprocessingOptions,
    worker: WorkerOptions,
    is_sequential: bool,
    index: int,
) -> Node:
    if isinstance(plan, CustomStreamNode):
        function = worker.worker_init_fn
        start = None if function is None else partial(_call_init, function, index, count)
        single = {"num_workers": 1} if isinstance(worker, RayOptions) else {}
        return SlicedStreamNode(
            site=plan.site,
            dataset=plan.dataset,
            name=plan.name,
            index=index,
            count=count,
            is_sequential=is_sequential,
            options=options,
            worker=replace(worker, worker_init_fn=start, **single),
        )
    slice_below = partial(_slice_of, count=count, options=options, worker=worker, index=index)
    return plan.with_parents(
        [slice_below(parent, is_sequential=is_sequential) for parent in plan.parents]
    )


def _call_init(
    worker_init_fn: Callable[[int, int], None], index: int, count: int, _: int, __: int
) -> None:
    """Call the user's function with the number of the slice: its worker is the only one there."""
    worker_init_fn(index, count)

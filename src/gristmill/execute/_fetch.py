"""Read a dataset at any indices: a block of them at a time, absent elements as `None`.

Indices that follow each other are a `range` as far down as they do, which is also how sources read
fastest; others are arrays.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import Columns
from gristmill._seed import generators, indexed_states
from gristmill._span import as_indices
from gristmill.errors import PlanError
from gristmill.execute._batch import make_batch
from gristmill.execute._blame import blame, call_each, step_name
from gristmill.execute._block import Block
from gristmill.execute._flat_map import splitter
from gristmill.execute._map import map_step
from gristmill.execute._outcome import Outcome
from gristmill.execute._sample import in_windows, record_reader
from gristmill.execute._track import index_track
from gristmill.observe import named, traced
from gristmill.plan import (
    BatchNode,
    ChooseNode,
    CustomNode,
    FanOutNode,
    FilterNode,
    MapNode,
    MapWithIndexNode,
    MixNode,
    Node,
    RearrangeNode,
    SeededMapNode,
    SeedNode,
    ShuffleNode,
    SourceNode,
    ZipNode,
)
from gristmill.sources import ArraySource, RangeDataSource
from gristmill.types import Element, Indices, Span

Fetch: TypeAlias = Callable[[Span], Outcome]
"""A `range` here goes up by one."""

Allocate: TypeAlias = Callable[..., NDArray[Any]]


def open_fetch(  # noqa: C901  (a case for each node)
    node: Node, allocate: Allocate = np.empty
) -> Fetch:
    """Give the function that reads a dataset; `allocate` makes the arrays of its batches."""
    if not node.length():
        return partial(_nothing, node)
    match node:
        case SourceNode():
            return _source(node)
        case CustomNode():
            return partial(_custom, node)
        case SeedNode():
            return open_fetch(node.parent, allocate)
        case ShuffleNode():
            return _shuffle(node, open_fetch(node.parent, allocate))
        case RearrangeNode():
            return partial(_rearrange, node, open_fetch(node.parent, allocate))
        case ChooseNode():
            return _choose(node, [open_fetch(parent, allocate) for parent in node.parents])
        case ZipNode():
            return partial(_zip, [open_fetch(parent) for parent in node.parents])
        case BatchNode():
            return partial(_batch, node, open_fetch(node.parent), allocate)
        case FanOutNode():
            return partial(_fan_out, node, splitter(node), open_fetch(node.parent))
        case MapNode():
            return _then(node, map_step(node))
        case MapWithIndexNode():
            return _then(node, partial(_map_with_index, node))
        case SeededMapNode():
            return _then(node, partial(_seeded_map, node))
        case FilterNode():
            return _then(node, partial(_filter, node))
        case _:
            raise TypeError(f"{node.label} cannot be read at an index")


def fetch_one(fetch: Fetch, index: int) -> Element:
    """Read one element, or raise what stands in its place."""
    made = fetch(range(index, index + 1))
    if made.error is not None:
        raise made.error
    return made.block.rows()[0]


def is_absent(element: Element) -> bool:
    """Tell a place without an element."""
    return element is None


def present_rows(rows: Sequence[Element]) -> list[int] | None:
    """Give the rows that hold an element; `None` if all do, as they mostly do."""
    absent = list(map(operator.is_, rows, (None,) * len(rows)))
    return [row for row, is_none in enumerate(absent) if not is_none] if True in absent else None


def around_none(run: Callable[[Block], Outcome], block: Block) -> Outcome:
    """Run a step on the elements that are there, and leave the absent ones where they are."""
    if isinstance(block.data, Columns):
        return run(block)
    present = present_rows(block.data)
    if present is None:
        return run(block)
    made = run(block.take(np.array(present, dtype=np.int64)))
    rows: list[Element] = [None] * len(block)
    for row, element in zip(present, made.block.rows(), strict=False):
        rows[row] = element
    if made.error is None:
        return Outcome(block.with_rows(rows))
    end = present[made.row]
    return Outcome(Block(rows[:end], block.track[:end]), made.error, end)


def _then(node: Any, run: Callable[[Block], Outcome]) -> Fetch:
    fetch = open_fetch(node.parent)
    run = named(node.label, run)
    if not _is_full(node.parent):
        run = partial(around_none, run)
    return lambda indices: fetch(indices).then(run)


def _is_full(node: Node) -> bool:
    """Tell where it is known that no element is absent."""
    while isinstance(node, RearrangeNode | SeedNode):
        node = node.parent
    return isinstance(node, SourceNode) and isinstance(node.source, RangeDataSource | ArraySource)


def _nothing(node: Node, indices: Span) -> Outcome:
    track = index_track(indices)
    if not len(track):
        return Outcome(Block.empty())
    error = IndexError(f"index {indices[0]} of an empty dataset")
    return Outcome(Block.empty(), blame(error, node, track, 0))


def _source(node: SourceNode) -> Fetch:
    length = node.length()
    read = named(step_name(node), record_reader(node, blamed=node))

    def fetch(indices: Span) -> Outcome:
        return read(_within(indices, length), index_track(indices))

    return fetch


def _within(indices: Span, length: int) -> Span:
    """Give the places of indices of any epoch."""
    if isinstance(indices, range):
        start = indices.start % length
        if start + len(indices) <= length:
            return range(start, start + len(indices))
    places = as_indices(indices) % length
    run = _as_run(places)
    return places if run is None else run


def _custom(node: CustomNode, indices: Span) -> Outcome:
    track = index_track(indices)
    numbers = indices if isinstance(indices, range) else indices.tolist()
    rows, error = call_each(node, track, node.dataset.__getitem__, numbers)
    return Outcome(Block(rows, track[: len(rows)]), error, len(rows))


def _rearrange(node: RearrangeNode, fetch: Fetch, indices: Span) -> Outcome:
    run = node.run_in_parent(indices) if isinstance(indices, range) else None
    made = fetch(node.to_parent(as_indices(indices)) if run is None else run)
    return _at(indices, made.block.data, made.error)


def _shuffle(node: ShuffleNode, fetch: Fetch) -> Fetch:
    """Find where many elements are in one go, where they are asked for one after the other."""
    find = in_windows(
        lambda run: node.to_parent(as_indices(run)),
        epoch=node.length(),
    )

    def fetch_shuffled(indices: Span) -> Outcome:
        run = _as_run(indices)
        made = fetch(find(run) if run is not None else node.to_parent(as_indices(indices)))
        return _at(indices, made.block.data, made.error)

    return fetch_shuffled


def _as_run(indices: Span) -> range | None:
    """Give indices that follow each other as a range."""
    if isinstance(indices, range):
        return indices
    if not len(indices) or indices[-1] - indices[0] != len(indices) - 1:
        return None
    return range(int(indices[0]), int(indices[-1]) + 1) if (np.diff(indices) == 1).all() else None


def _choose(node: ChooseNode, fetches: list[Fetch]) -> Fetch:
    locate = _located_in_windows(node) if isinstance(node, MixNode) else _located(node)

    def fetch_chosen(indices: Span) -> Outcome:
        try:
            numbers, within = locate(indices)
        except Exception as error:
            return Outcome(Block.empty(), blame(error, node, index_track(indices), 0))
        first = int(numbers[0]) if len(numbers) else 0
        if (numbers == first).all():
            made = fetches[first](within)
            return _at(indices, made.block.data, made.error)
        return _fetch_from_several(fetches, numbers, within, indices)

    return fetch_chosen


def _located(node: ChooseNode) -> Callable[[Span], tuple[Indices, Indices]]:
    return lambda indices: node.locate(as_indices(indices))


def _located_in_windows(node: MixNode) -> Callable[[Span], tuple[Indices, Indices]]:
    """Find who gives many elements in one go, where they are asked for one after the other."""
    find = in_windows(
        lambda run: np.column_stack(node.locate_run(run)),
        epoch=node.length(),
    )

    def locate(indices: Span) -> tuple[Indices, Indices]:
        run = _as_run(indices)
        if run is None:
            return node.locate(as_indices(indices))
        places = as_indices(find(run))
        return places[:, 0], places[:, 1]

    return locate


def _fetch_from_several(
    fetches: list[Fetch], numbers: Indices, within: Indices, indices: Span
) -> Outcome:
    """Ask each parent once, and put what they give in order, up to the first error."""
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(fetches)))
    grouped = within[order]
    rows: list[Element] = []
    end, error = len(indices), None
    for number in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        stop = int(ends[number])
        made = fetches[number](grouped[len(rows) : stop])
        rows += made.block.rows()
        if made.error is not None and order[len(rows)] < end:
            end, error = int(order[len(rows)]), made.error
        rows += [None] * (stop - len(rows))
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return _at(indices, list(map(rows.__getitem__, places[:end].tolist())), error)


def _zip(fetches: list[Fetch], indices: Span) -> Outcome:
    parts = [fetch(indices) for fetch in fetches]
    end = min(len(part.block) for part in parts)
    error = next((part.error for part in parts if len(part.block) == end), None)
    return _at(indices, list(zip(*(part.block.rows()[:end] for part in parts), strict=True)), error)


def _batch(node: BatchNode, fetch: Fetch, allocate: Allocate, indices: Span) -> Outcome:
    elements, ends = _batched(node, indices)
    made = fetch(elements)
    data = made.block.data if node.function is None else made.block.rows()
    batches: list[Element] = []
    error, name = made.error, node.label
    for first, end in pairwise([0, *ends]):
        if end > len(made.block):
            break
        part = data[first:end]
        try:
            with traced(name):
                batch = make_batch(node, part, allocate)
            if batch is None:
                raise PlanError("The batch is None, which stands for an absent element.")
        except Exception as raised:
            told = _about_absent(part) or raised
            error = blame(told, node, index_track(indices), len(batches))
            break
        batches.append(batch)
    return _at(indices, batches, error)


def _batched(node: BatchNode, indices: Span) -> tuple[Span, list[int]]:
    """Give the parent's indices of all elements of some batches, and where each batch ends."""
    total, size = node.parent.length(), node.size
    if isinstance(indices, range) and 0 <= indices.start <= indices.stop <= node.length():
        run = range(indices.start * size, min(indices.stop * size, total))
        return run, [*range(size, len(run), size), len(run)][: len(indices)]
    epochs, places = np.divmod(as_indices(indices), max(1, node.length()))
    starts = places * size
    sizes = np.minimum(starts + size, total) - starts
    ends = np.cumsum(sizes)
    offsets = np.repeat(starts + epochs * total - (ends - sizes), sizes)
    return np.arange(len(offsets)) + offsets, ends.tolist()


def _about_absent(part: list[Element] | Columns) -> PlanError | None:
    if not isinstance(part, list) or present_rows(part) is None:
        return None
    return PlanError(
        "An element of the batch is absent (None). Call `to_iter_dataset()` before `batch`, which "
        "leaves absent elements out."
    )


def _fan_out(
    node: FanOutNode, split: Callable[[Element], list[Element]], fetch: Fetch, indices: Span
) -> Outcome:
    parents, pieces = np.divmod(as_indices(indices), node.max_fan_out)
    unique, places = np.unique(parents, return_inverse=True)
    made = fetch(unique).then(partial(around_none, lambda block: _split_all(node, split, block)))
    groups = made.block.rows()
    rows: list[Element] = []
    for place, piece in zip(places.tolist(), pieces.tolist(), strict=True):
        if place >= len(groups):
            return _at(indices, rows, made.error)
        group = groups[place]
        rows.append(group[piece] if group is not None and piece < len(group) else None)
    return _at(indices, rows, None)


def _split_all(
    node: FanOutNode, split: Callable[[Element], list[Element]], block: Block
) -> Outcome:
    groups, error = call_each(node, block.track, split, block.rows())
    return Outcome(block.with_rows(groups), error, len(groups))


def _map_with_index(node: MapWithIndexNode, block: Block) -> Outcome:
    numbers = _indices_of(block).tolist()
    rows, error = call_each(node, block.track, node.function, numbers, block.rows())
    return Outcome(block.with_rows(rows), error, len(rows))


def _seeded_map(node: SeededMapNode, block: Block) -> Outcome:
    drawn = generators(indexed_states(node.seed, _indices_of(block).tolist()))
    rows, error = call_each(node, block.track, node.function, block.rows(), drawn)
    return Outcome(block.with_rows(rows), error, len(rows))


def _filter(node: FilterNode, block: Block) -> Outcome:
    rows = block.rows()
    answers, error = call_each(node, block.track, node.function, rows)
    passed, unclear = call_each(node, block.track[: len(answers)], bool, answers)
    kept = [row if has else None for row, has in zip(rows, passed, strict=False)]
    return Outcome(block.with_rows(kept), unclear or error, len(kept))


def _indices_of(block: Block) -> Indices:
    return block.track.sparse().origins[:, 0]


def _at(indices: Span, data: list[Element] | Columns, error: BaseException | None) -> Outcome:
    return Outcome(Block(data, index_track(indices[: len(data)])), error, len(data))

"""Cursors for the states of Grain's dataset iterators.

Such a state does not describe the pipeline it belongs to: each iterator of Grain adds its fields
to the state of the one below it, or passes that on unchanged. So a plan with the same steps
determines what each field means:

    {"next_index": 7}                                     a dataset that is read in order
    {"parent": {"next_index": 7}, "counter": 7}           `map_with_index` on it
    {"parents": [...], "index": 9, "stop": False}         a mix

Where Grain stores how many elements of a window, of packed rows or of a split element it has
yielded, as many are computed again here, as Grain does when it restores the state.
"""

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast, final, runtime_checkable

import numpy as np

from gristmill._base.trees.tree import leaves_with_paths
from gristmill._checkpoint.grain_state import FINISH, is_shuffled_differently
from gristmill._checkpoint.state import Position
from gristmill._engine.inline_plan import inline_plan, inline_settings
from gristmill._engine.settings import Settings
from gristmill._engine.stream import Stream
from gristmill._plan.nodes.base import Node, Step
from gristmill._plan.nodes.combine_streams import InterleaveNode, MixStreamNode, ZipStreamNode
from gristmill._plan.nodes.dataset import AccessNode, next_index_error
from gristmill._plan.nodes.hints import HintNode, WorkersNode
from gristmill._plan.nodes.packing import ConcatSplitNode, PackNode
from gristmill._plan.nodes.rearrange import ShuffleNode
from gristmill._plan.nodes.steps import FlatMapNode, MapNode
from gristmill._plan.nodes.stream import (
    CacheNode,
    CountedMapNode,
    CustomStreamNode,
    LimitNode,
    RebatchNode,
    RecordStreamNode,
    RepeatStreamNode,
    WindowShuffleStreamNode,
)
from gristmill.errors import StateError
from gristmill.types import Cursor, Element

GrainState: TypeAlias = Any
"""A state of one of Grain's iterators, or of one that a user derived from them."""


@runtime_checkable
class HasGrainFields(Protocol):
    """A stream of records whose positions are also those of Grain."""

    @property
    def grain_fields(self) -> tuple[str, ...]:
        """The fields of Grain's states, one for each number of a position."""
        ...


_WHOLE = (-1, -1)
"""How Grain writes the slice of a feature that was not split."""


def grain_cursor(plan: Node, settings: Settings, state: GrainState) -> Cursor:
    """Return the cursor at which a plan continues as Grain would from a state.

    Args:
        plan: A plan with the steps of the dataset that Grain iterated over.
        settings: How the plan is run. Elements that must be read are read inline.
        state: The result of `get_state` of Grain's iterator.

    Raises:
        StateError: The state is of other steps, or nothing here can continue from it.
    """
    return _Translation(inline_settings(settings)).cursor(plan, state)


@final
@dataclass(frozen=True)
class _Translation:
    """Translates the states of a plan, from the top down."""

    settings: Settings
    is_repeated: bool = False
    """Whether the state is of a later epoch of a repeated stream."""

    def cursor(self, node: Node, state: GrainState) -> Cursor:
        """Return the cursor of the highest node of a plan."""
        match node:
            case WorkersNode():
                return self._cursor_of_workers(node, state)
            case FlatMapNode():
                below, count = _fields(node, state, "parent", "next_index_in_buffer")
                return self._after(node, (*self.cursor(node.parent, below), 0), _count(node, count))
            case Step() | HintNode():
                return self.cursor(node.parent, state)
            case AccessNode():
                (index,) = _fields(node, state, "next_index")
                return _at_index(node, index)
            case _:
                translate = _STAGES.get(type(node))
                if translate is None:
                    raise _not_translatable(node)
                return translate(self, node, state)

    def _after(self, node: Node, cursor: Cursor, count: int) -> Cursor:
        """Return the cursor `count` elements after another one."""
        return self._read(node, cursor, count)[0]

    def _read(self, node: Node, cursor: Cursor, count: int) -> tuple[Cursor, list[Element]]:
        """Return some elements after a cursor, and the cursor after them."""
        if not count:
            return cursor, []
        stream = Stream(inline_plan(node), self.settings)
        elements: list[Element] = []
        try:
            stream.seek(Position(cursor))
            with contextlib.suppress(StopIteration):  # the state is from the end of the stream
                while len(elements) < count:
                    elements.append(next(stream))
            return stream.cursor, elements
        finally:
            stream.close()

    def _cursor_of_workers(self, node: WorkersNode, state: GrainState) -> Cursor:
        """Return the cursor of the steps in workers: Grain interleaves what each of them yields."""
        states, _ = _interleaved(node, state)
        if len(states) != node.options.num_workers:
            raise _misfit(node, f"it is of {len(states)} workers")
        if len(states) == 1:
            return self.cursor(node.parent, states[0])
        bottom = node.parent
        while isinstance(bottom, HintNode | MapNode):
            bottom = bottom.parent
        if not (isinstance(bottom, AccessNode) and bottom.is_dense):
            raise StateError(
                f"The state is from Grain with {len(states)} workers. Each of them filtered, "
                "batched or packed its own share of the elements, and this stream is the same for "
                f"any number of workers. {FINISH}."
            )
        taken = [self.cursor(bottom, one)[0] for one in states]
        total = sum(taken)
        if taken != [len(range(first, total, len(taken))) for first in range(len(taken))]:
            raise _misfit(node, f"the positions of its workers are {taken}")
        return _at_index(bottom, total)

    def counted_map(self, node: CountedMapNode, state: GrainState) -> Cursor:
        name = "counter" if node.seed is None else "index_for_rng"
        below, count = _fields(node, state, "parent", name)
        return ([self.cursor(node.parent, below), _count(node, count)],)

    def limit(self, node: LimitNode, state: GrainState) -> Cursor:
        below, count = _fields(node, state, "parent", "count_elements_read")
        return ([self.cursor(node.parent, below), _count(node, count)],)

    def repeat(self, node: RepeatStreamNode, state: GrainState) -> Cursor:
        below, epoch = _fields(node, state, "parent", "epoch")
        epoch = _count(node, epoch)
        if node.num_epochs is not None:  # at its end, Grain counts an epoch more
            epoch = min(epoch, node.num_epochs - 1)
        translation = replace(self, is_repeated=self.is_repeated or epoch > 0)
        return ([translation.cursor(node.parent, below), epoch],)

    def cache(self, node: CacheNode, state: GrainState) -> Cursor:
        below, count, is_filled = _fields(node, state, "parent", "position", "cache_filled")
        count = _count(node, count)
        if not is_filled:
            return ([self.cursor(node.parent, below), count],)
        # Grain does not advance the parent when it yields cached elements.
        stream = Stream(inline_plan(node.parent), self.settings)
        start = stream.cursor
        stream.close()
        return ([self._after(node.parent, start, count), count],)

    def window_shuffle(self, node: WindowShuffleStreamNode, state: GrainState) -> Cursor:
        names = ("parent_window_start_state", "window_index", "pos_in_window")
        below, number, count = _fields(node, state, *names)
        number, count = _count(node, number), _count(node, count)
        if count > node.window:
            raise _misfit(node, f"{count} elements of a window of {node.window} were yielded")
        if count == node.window:  # Grain has counted this window already
            number -= 1
        return self._after(node, ([self.cursor(node.parent, below), number, 0],), count)

    def rebatch(self, node: RebatchNode, state: GrainState) -> Cursor:
        below, count = _fields(node, state, "parent", "batch_idx")
        before, count = self.cursor(node.parent, below), _count(node, count)
        after, batches = self._read(node.parent, before, 1 if count else 0)
        if not batches:
            return ([before, 0],)
        num_rows = min(len(leaf) for _, leaf in leaves_with_paths(batches[0], "batch"))
        return ([before, count, 1, after] if count < num_rows else [after, 0],)

    def pack(self, node: PackNode, state: GrainState) -> Cursor:
        below, row, counter = _fields(node, state, "parent", "next_row", "counter")
        row, counter = _count(node, row), _count(node, counter)
        return self._after(node, ([self.cursor(node.parent, below), 0, counter - row],), row)

    def concat_split(self, node: ConcatSplitNode, state: GrainState) -> Cursor:
        names = ("parent_state", "remainder_slices", "elements_from_buffer_after_checkpoint")
        below, slices, count = _fields(node, state, *names)
        before = self.cursor(node.parent, below)
        cuts = {name: tuple(map(int, one)) for name, one in slices.items()}
        remaining = None
        if any(one != _WHOLE for one in cuts.values()):
            _, documents = self._read(node.parent, before, 1)
            document: Mapping[Any, Any] = documents[0] if documents else {}
            remaining = tuple(
                _remaining_of(document[feature.path[0]], cuts.get(feature.path[0], _WHOLE))
                for feature in node.features
            )
        return self._after(node, ([before, remaining, 0],), _count(node, count))

    def mix(self, node: MixStreamNode, state: GrainState) -> Cursor:
        below, index, has_ended = _fields(node, state, "parents", "index", "stop")
        index = _count(node, index) - bool(has_ended)  # Grain counts the element that was missing
        if node.names is None:
            return ([index, self._each(node, node.inputs, below)],)
        if not isinstance(below, Mapping):
            raise _misfit(node, "its datasets have no names")
        known = cast("Mapping[str, GrainState]", below)
        inputs = dict(zip(node.names, node.inputs, strict=True))
        cursors = {
            name: self.cursor(parent, known[name])
            for name, parent in inputs.items()
            if name in known
        }
        return ([index, cursors],)

    def zip(self, node: ZipStreamNode, state: GrainState) -> Cursor:
        (below,) = _fields(node, state, "parents")
        return (self._each(node, node.inputs, below),)

    def _each(self, node: Node, parents: Sequence[Node], states: GrainState) -> list[Cursor]:
        if not isinstance(states, list | tuple):
            raise _misfit(node, "its datasets have names")
        several = cast("Sequence[GrainState]", states)
        if len(several) != len(parents):
            raise _misfit(node, f"it is of {len(several)} datasets, these are {len(parents)}")
        return [self.cursor(*pair) for pair in zip(parents, several, strict=True)]

    def interleave(self, node: InterleaveNode, state: GrainState) -> Cursor:
        _, slots = _interleaved(node, state)
        if self.is_repeated and any(state["exhausted"]):
            # Grain sets this field to 1 at the end of a dataset, and never back to 0.
            raise StateError(
                f"The state is from Grain, of {node.label} in a repeated epoch. Datasets that "
                f"ended in an earlier epoch are marked as ended in this one, too. {FINISH}."
            )
        if state.get("future_states"):
            raise StateError(
                f"The state is from Grain, of {node.label} after a change of the number of shards, "
                f"which cannot be continued here. {FINISH}."
            )
        found: list[Any] = []
        for slot in slots:
            parent = None if slot is None else node.node_at(slot[0])
            if slot is None or parent is None:
                found.append(None)
            else:
                found.append([slot[0], self.cursor(parent, slot[1])])
        turn, num_opened = state["next_index_in_cycle"], state["next_index_in_datasets"]
        return ([_count(node, turn), _count(node, num_opened), found],)

    def record_stream(self, node: RecordStreamNode, state: GrainState) -> Cursor:
        if not isinstance(node.stream, HasGrainFields):
            raise _not_translatable(node)
        numbers = _fields(node, state, *node.stream.grain_fields)
        position = [_count(node, number) for number in numbers]
        return (position if len(position) > 1 else position[0],)

    def custom(self, node: CustomStreamNode, state: GrainState) -> Cursor:
        return (state,)  # the user's iterator restores its own states


_STAGES: dict[type[Node], Callable[[_Translation, Any, GrainState], Cursor]] = {
    CacheNode: _Translation.cache,
    ConcatSplitNode: _Translation.concat_split,
    CountedMapNode: _Translation.counted_map,
    CustomStreamNode: _Translation.custom,
    InterleaveNode: _Translation.interleave,
    LimitNode: _Translation.limit,
    MixStreamNode: _Translation.mix,
    PackNode: _Translation.pack,
    RebatchNode: _Translation.rebatch,
    RecordStreamNode: _Translation.record_stream,
    RepeatStreamNode: _Translation.repeat,
    WindowShuffleStreamNode: _Translation.window_shuffle,
    ZipStreamNode: _Translation.zip,
}


def _interleaved(
    node: Node, state: GrainState
) -> tuple[list[GrainState], list[tuple[int, GrainState] | None]]:
    """Return the states of interleaved iterators, and the datasets in the slots of the cycle.

    A slot is empty if its dataset has ended, or if there was none for it.
    """
    names = ("iterators_in_use_indices", "iterators_in_use_states", "exhausted")
    others = {"next_index_in_cycle", "next_index_in_datasets", "future_states"}
    body = {name: value for name, value in _as_mapping(node, state).items() if name not in others}
    numbers, states, exhausted = _fields(node, body, *names)
    slots = [
        None if one is None or is_exhausted else (_count(node, number), one)
        for number, one, is_exhausted in zip(numbers, states, exhausted, strict=True)
    ]
    return list(states), slots


def _fields(node: Node, state: GrainState, *names: str) -> list[Any]:
    """Return the fields of a state, which must have exactly these."""
    body = _as_mapping(node, state)
    if set(body) != set(names):
        there = ", ".join(f"`{name}`" for name in body) or "none"
        raise _misfit(node, f"it has the fields {there}")
    return [body[name] for name in names]


def _as_mapping(node: Node, state: GrainState) -> Mapping[str, Any]:
    if not isinstance(state, Mapping):
        raise _misfit(node, f"it is {state!r:.100}")
    return cast("Mapping[str, Any]", state)


def _count(node: Node, value: object) -> int:
    """Return a non-negative integer, which Orbax may have restored as an array."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(cast(Any, value))
    except TypeError:
        number = -1
    if number < 0:
        raise _misfit(node, f"its position is {value!r:.100}")
    return number


def _at_index(node: AccessNode, value: object) -> Cursor:
    index = value if isinstance(value, int) and value < 0 else _count(node, value)
    if not 0 <= index <= node.length():
        raise next_index_error(index, node.length())
    shuffle = _differing_shuffle(node) if index else None
    if shuffle is not None:
        raise StateError(
            f"The state is from Grain, after {index} elements of a dataset that {shuffle.label} "
            f"reorders. Grain's shuffle of {shuffle.length()} elements yields one of them twice "
            f"and another never; here each comes once, in another order. {FINISH}."
        )
    return (index,)


def _differing_shuffle(node: Node) -> ShuffleNode | None:
    """Return a shuffle below a node that orders its elements in another way than Grain's."""
    if isinstance(node, ShuffleNode) and is_shuffled_differently(node.length()):
        return node
    return next(filter(None, map(_differing_shuffle, node.parents)), None)


def _remaining_of(feature: Any, cut: tuple[int, ...]) -> tuple[int, int]:
    """Return the remaining fragment of a feature. Scalars and meta features are not split."""
    if np.ndim(feature) == 0:
        return 0, 1
    start, end = (0, len(feature)) if cut == _WHOLE else cut
    return start, end


def _misfit(node: Node, found: str) -> StateError:
    return StateError(
        f"The state is from Grain's Dataset API, and is not one of {node.label}: {found}. Restore "
        "it into a pipeline with the same steps as the one it was taken from."
    )


def _not_translatable(node: Node) -> StateError:
    return StateError(
        f"The state is from Grain's Dataset API, and {node.label} cannot continue from a state of "
        f"Grain's. {FINISH}."
    )

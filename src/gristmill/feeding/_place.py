"""Where batches go: onto a device, or shared out over several, of this process or of many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, final

import numpy as np

from gristmill._extras import load_extra
from gristmill.errors import FeedError, PlanTypeError
from gristmill.feeding._leaves import as_held, can_hold
from gristmill.feeding._shortcut import Shortcut
from gristmill.types import Tree

Others: TypeAlias = Literal["raise", "pass"]
T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class _Parts:
    """A batch taken apart: those of its leaves that go to JAX, and where to."""

    leaves: list[Any]
    structure: Any
    numbers: list[int]
    """Which of the leaves go there."""
    arrays: list[Any]
    places: list[Any]

    def joined(self, placed: Sequence[Any]) -> Tree:
        """Give the batch with what JAX made of the arrays."""
        leaves = self.leaves.copy()
        for number, array in zip(self.numbers, placed, strict=True):
            leaves[number] = array
        return self.structure.unflatten(leaves)


@final
class Place:
    """Puts batches where they are wanted."""

    def __init__(self, where: Tree, *, others: Others) -> None:
        """Take a device or a sharding, or a tree of them that begins as batches do."""
        self._jax: Any = load_extra("jax", extra="jax", wanted_by="`feed`")
        self._where = where
        self._others = others
        self._targets: dict[Any, list[Any]] = {}
        self._shortcut = Shortcut()
        shardings = [one for one in self._jax.tree.leaves(where) if self._is_sharding(one)]
        self.processes: frozenset[int] = frozenset(
            device.process_index
            for sharding in shardings
            if not sharding.is_fully_addressable
            for device in sharding.device_set
        )
        """Those among which batches are shared out, if they are more than this one."""
        # Contexts of the user's thread, which the one that calls `put` is not in.
        self._default_device = self._jax.config.jax_default_device
        self._has_64_bits: bool = self._jax.config.jax_enable_x64

    def check(self, batch: Tree) -> None:
        """Raise if a batch holds what JAX cannot."""
        self._as_the_user(lambda: self._parts(batch))

    def put(self, batch: Tree, mask: Any) -> tuple[Tree, Any]:
        """Give a batch with its arrays there, and its mask, if there is one, beside their rows."""
        return self._as_the_user(lambda: self._placed(batch, mask))

    def _as_the_user(self, function: Callable[[], T]) -> T:
        if self._jax.config.jax_enable_x64 == self._has_64_bits:
            return function()
        with self._jax.enable_x64(self._has_64_bits):
            return function()

    def _parts(self, batch: Tree) -> _Parts:
        leaves, structure = self._jax.tree.flatten(batch)
        targets = self._targets.get(structure)
        if targets is None:
            targets = self._targets[structure] = self._targets_of(batch, structure)
        parts = _Parts(leaves, structure, numbers=[], arrays=[], places=[])
        for number, leaf in enumerate(leaves):
            if can_hold(leaf):
                parts.numbers.append(number)
                parts.arrays.append(as_held(leaf, _Name(batch, number)))
                parts.places.append(targets[number])
            elif self._others == "raise":
                raise FeedError(
                    f"{_Name(batch, number)} is {_told(leaf)}, which JAX cannot hold. Leave it out "
                    'with a `map` before the feeding, or pass `others="pass"` to get it as it is.'
                )
        return parts

    def _placed(self, batch: Tree, mask: Any) -> tuple[Tree, Any]:
        parts = self._parts(batch)
        masks, their_places = ([], []) if mask is None else ([mask], [self._along_rows(parts)])
        try:
            placed = self._put(parts.arrays + masks, parts.places + their_places)
        except (ValueError, TypeError) as error:
            error.add_note(_advice(batch, parts.leaves))
            raise
        count = len(parts.arrays)
        return parts.joined(placed[:count]), placed[count] if masks else None

    def _along_rows(self, parts: _Parts) -> Any:
        """Give where an array with one item for each row goes: with the rows of the first array."""
        pairs = zip(parts.arrays, parts.places, strict=True)
        first: Any = next((place for array, place in pairs if np.ndim(array)), None)
        if not isinstance(first, self._jax.sharding.NamedSharding):
            return first
        spec = self._jax.sharding.PartitionSpec(*first.spec[:1])
        return self._jax.sharding.NamedSharding(first.mesh, spec, memory_kind=first.memory_kind)

    def _put(self, arrays: list[Any], places: list[Any]) -> Sequence[Any]:
        if not self.processes:
            known = [self._shortcut.put(*pair) for pair in zip(arrays, places, strict=True)]
            if not any(one is None for one in known):
                return known
            with self._jax.default_device(self._default_device):
                placed = self._jax.device_put(arrays, places)
            for pair in zip(arrays, places, placed, strict=True):
                self._shortcut.learn(*pair)
            return placed
        make = self._jax.make_array_from_process_local_data
        return [
            self._jax.device_put(array, place)
            if place is None or not self._is_sharding(place) or place.is_fully_addressable
            else make(place, np.asarray(array))
            for array, place in zip(arrays, places, strict=True)
        ]

    def _targets_of(self, batch: Tree, structure: Any) -> list[Any]:
        """Give the place of each leaf of a batch."""
        is_place = self._is_place
        if is_place(self._where):
            return [self._where] * structure.num_leaves
        try:
            return self._jax.tree.leaves(
                self._jax.tree.broadcast(self._where, batch, is_leaf=is_place), is_leaf=is_place
            )
        except ValueError as error:
            raise FeedError(
                f"The tree of devices or shardings does not begin as the batch does: {error}"
            ) from None

    def _is_sharding(self, value: Any) -> bool:
        return isinstance(value, self._jax.sharding.Sharding)

    def _is_place(self, value: Any) -> bool:
        return value is None or self._is_sharding(value) or isinstance(value, self._jax.Device)


def _advice(batch: Tree, leaves: Sequence[Any]) -> str:
    shapes = [f"{_Name(batch, number)} {np.shape(leaf)}" for number, leaf in enumerate(leaves)]
    return (
        f"It was to be fed: {', '.join(shapes)}. If the rows do not divide among the devices, pass "
        '`last="pad"` or `last="drop"`, or make batches of another size; if some leaves go '
        "elsewhere, pass a tree of places."
    )


def as_place(device: Any, spec: Any, *, others: Others) -> Place:
    """Take what says where batches go."""
    jax: Any = load_extra("jax", extra="jax", wanted_by="`feed`")
    mesh_kind, spec_kind = jax.sharding.Mesh, jax.sharding.PartitionSpec
    if isinstance(device, mesh_kind):
        # By default all of its devices take their part of the rows.
        specs = spec_kind(device.axis_names) if spec is None else spec
        for leaf in jax.tree.leaves(specs):
            if not isinstance(leaf, spec_kind):
                raise PlanTypeError(
                    f"`spec` must be a `jax.sharding.PartitionSpec` or a tree of them, got "
                    f"{leaf!r:.100}."
                )
        where = jax.tree.map(partial(jax.sharding.NamedSharding, device), specs)
        return Place(where, others=others)
    if spec is not None:
        raise PlanTypeError(
            f"`spec` says how a mesh is used, and `device` is {device!r:.100}. Pass a "
            "`jax.sharding.Mesh`, or a `NamedSharding` without a spec."
        )
    kinds = (jax.Device, jax.sharding.Sharding)
    for leaf in jax.tree.leaves(device):
        if not isinstance(leaf, kinds):
            raise PlanTypeError(
                f"`device` must be a device, a sharding, a mesh or a tree of the first two, got "
                f"{leaf!r:.100}."
            )
    return Place(device, others=others)


class _Name:
    """The name of a leaf, found when somebody reads it."""

    def __init__(self, batch: Tree, number: int) -> None:
        self._batch = batch
        self._number = number

    def __str__(self) -> str:
        jax: Any = load_extra("jax", extra="jax", wanted_by="`feed`")
        path, _ = jax.tree_util.tree_flatten_with_path(self._batch)[0][self._number]
        return f"batch{jax.tree_util.keystr(path)}"


def _told(leaf: Any) -> str:
    dtype = getattr(leaf, "dtype", None)
    return f"of type {type(leaf).__name__}" if dtype is None else f"an array of {dtype}"

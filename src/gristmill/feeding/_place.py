"""Where batches go: onto a device, or shared out over several, of this process or of many."""

from collections.abc import Callable, Sequence
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
        self._as_the_user(lambda: self._held(batch))

    def put(self, batch: Tree, mask: Any) -> tuple[Tree, Any]:
        """Give a batch with its arrays there, and its mask, if there is one, beside their rows."""
        return self._as_the_user(lambda: self._placed(batch, mask))

    def _as_the_user(self, function: Callable[[], T]) -> T:
        if self._jax.config.jax_enable_x64 == self._has_64_bits:
            return function()
        with self._jax.enable_x64(self._has_64_bits):
            return function()

    def _held(self, batch: Tree) -> tuple[list[Any], list[Any], list[int], list[Any], Any]:
        """Give what goes to JAX, where to, and from where in the leaves; these; the structure."""
        leaves, structure = self._jax.tree.flatten(batch)
        targets = self._targets.get(structure)
        if targets is None:
            targets = self._targets[structure] = self._targets_of(batch, structure)
        arrays: list[Any] = []
        places: list[Any] = []
        numbers: list[int] = []
        for number, leaf in enumerate(leaves):
            if can_hold(leaf):
                arrays.append(as_held(leaf, _Name(batch, number)))
                places.append(targets[number])
                numbers.append(number)
            elif self._others == "raise":
                raise FeedError(
                    f"{_Name(batch, number)} is {_told(leaf)}, which JAX cannot hold. Leave it out "
                    'with a `map` before the feeding, or pass `others="pass"` to get it as it is.'
                )
        return arrays, places, numbers, leaves, structure

    def _placed(self, batch: Tree, mask: Any) -> tuple[Tree, Any]:
        arrays, places, numbers, leaves, structure = self._held(batch)
        if mask is not None:
            arrays.append(mask)
            places.append(self._along_rows(arrays[:-1], places))
        try:
            placed = self._put(arrays, places)
        except (ValueError, TypeError) as error:
            error.add_note(_advice(batch, leaves))
            raise
        for number, array in zip(numbers, placed, strict=False):
            leaves[number] = array
        return structure.unflatten(leaves), None if mask is None else placed[-1]

    def _along_rows(self, arrays: list[Any], places: list[Any]) -> Any:
        """Give where an array with one item for each row goes: with the rows of the first array."""
        first: Any = next(
            (place for array, place in zip(arrays, places, strict=True) if np.ndim(array)), None
        )
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
